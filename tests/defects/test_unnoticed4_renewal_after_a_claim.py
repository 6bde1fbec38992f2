"""Unnoticed 4: a consumer that renews an event which another has claimed changes nothing."""

from __future__ import annotations

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.patterns.events._group_member import SET_IDLE
from tests.patterns.event_fixtures import ACCOUNTS, CATALOGUE, Registered


async def pending(store: Store, stream: str) -> list[tuple[str, str, int, int]]:
    """The pending entries: id, consumer, idle milliseconds, deliveries."""
    found = await store.client("queue").call("XPENDING", stream, "g", "-", "+", 10)
    return [(entry[0].decode(), entry[1].decode(), entry[2], entry[3]) for entry in found]


async def test_unnoticed4_renewing_what_another_has_claimed_does_nothing(server: Valkey, key: str) -> None:
    """It returns 0 and leaves the other's idle time and number of deliveries; its own event is renewed."""
    async with connect(server.url, CATALOGUE) as store:
        stream = ACCOUNTS.keyspace.key(name=key)
        client = store.client("queue")
        for user in ("taken", "kept"):
            await store[ACCOUNTS].publish(Registered(user), name=key)
        await client.call("XGROUP", "CREATE", stream, "g", "0")
        await client.call("XREADGROUP", "GROUP", "g", "late", "COUNT", 2, "STREAMS", stream, ">")
        (taken, *_), (kept, *_) = await pending(store, stream)
        await client.call("XCLAIM", stream, "g", "prompt", 0, taken, "IDLE", 5000, "RETRYCOUNT", 4, "JUSTID")
        assert await client.run(SET_IDLE, (stream,), ("g", "late", taken, 0, 1)) == 0
        entry = (await pending(store, stream))[0]
        assert entry[:2] == (taken, "prompt")
        assert entry[2] >= 5000
        assert entry[3] == 4
        arguments = ("g", "late", taken, 0, 1, kept, 7000, 3)
        assert await client.run(SET_IDLE, (stream,), arguments) == 1
        entries = await pending(store, stream)
        assert [each[1] for each in entries] == ["prompt", "late"]
        assert (entries[0][3], entries[1][3]) == (4, 3)
        assert 7000 <= entries[1][2] < 12_000
        await client.call("XACK", stream, "g", kept)
        assert await client.run(SET_IDLE, (stream,), ("g", "late", kept, 0, 1)) == 0
        assert len(await pending(store, stream)) == 1
