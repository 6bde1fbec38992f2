"""Traps C3 and C5: events lost with their consumer, and streams that grow, or lose events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.patterns.events import Delivery
from tests.patterns.event_fixtures import ACCOUNTS, BRIEF, CATALOGUE, Removed, Seen, settled, until, users


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store for events."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


async def _read(store: Store, stream: str, consumer: str, count: int) -> list[Any]:
    """A naive consumer's read: XREADGROUP with `>`, ten at a time."""
    words = ("XREADGROUP", "GROUP", "g", consumer, "COUNT", count, "STREAMS", stream, ">")
    read = await store.call(*words)
    return read[stream.encode()] if read else []


async def _pending(store: Store, stream: str) -> int:
    return int((await store.call("XPENDING", stream, "g"))[0])


async def test_c3_pending_events_of_a_dead_consumer_are_claimed(store: Store, key: str) -> None:
    """Naive consumers read only new events, so those of a dead one stay pending; ours are claimed."""
    stream = BRIEF.keyspace.key(name=key)
    await store[BRIEF].publish_many(users(30), name=key)
    await store.call("XGROUP", "CREATE", stream, "g", "0")
    await _read(store, stream, "dead", 10)
    naive = await _read(store, stream, "alive", 100)
    assert len(naive) == 20
    await store.call("XACK", stream, "g", *(entry_id for entry_id, _ in naive))
    await asyncio.sleep(1)  # longer than a lease
    assert await _read(store, stream, "alive", 100) == []
    assert await _pending(store, stream) == 10

    seen = Seen()
    async with store[BRIEF].consume("g", seen, name=key):
        await settled(store, BRIEF, name=key)
    assert sorted(seen.users, key=int) == [str(number) for number in range(10)]


async def test_c3_one_xautoclaim_without_its_cursor_finds_only_the_first(store: Store, key: str) -> None:
    """XAUTOCLAIM from the start examines the same young entries each time; ours follows the cursor.

    One call for ten examines a hundred entries. A living consumer has the first 500, with a lease of a
    minute, so the ten entries of the dead one after them are only found by the cursor.
    """
    stream, lease = ACCOUNTS.keyspace.key(name=key), round(ACCOUNTS.delivery.lease.total_seconds() * 1000)
    await store[ACCOUNTS].publish_many(users(510), name=key)
    await store.call("XGROUP", "CREATE", stream, "g", "0")
    await _read(store, stream, "alive", 500)
    for entry_id, _ in await _read(store, stream, "dead", 10):
        await store.call("XCLAIM", stream, "g", "dead", 0, entry_id, "IDLE", 2 * lease, "JUSTID")

    for _ in range(20):
        _, claimed, _ = await store.call("XAUTOCLAIM", stream, "g", "naive", lease, "0-0", "COUNT", 10)
        assert claimed == []

    seen = Seen()

    async def found() -> bool:
        return len(seen.users) >= 10

    async with store[ACCOUNTS].consume("g", seen, concurrency=10, name=key):
        await until(found)
    assert sorted(seen.users) == [str(number) for number in range(500, 510)]


async def test_c3_a_poisoned_event_is_not_hammered_and_ends_as_a_dead_letter(store: Store, key: str) -> None:
    """A naive retry of all pending events repeats a poisoned one forever; ours backs off, and gives up."""
    stream = f"naive:{key}"
    await store.call("XADD", stream, "*", "event", "poison")
    await store.call("XGROUP", "CREATE", stream, "g", "0")
    await _read(store, stream, "one", 10)
    for _ in range(100):  # as fast as the loop turns
        _, claimed, _ = await store.call("XAUTOCLAIM", stream, "g", "one", 0, "0-0")
        assert len(claimed) == 1
    assert (await store.call("XPENDING", stream, "g", "-", "+", 1))[0][3] == 101

    times: list[float] = []

    def fails(_event: Any, _delivery: Delivery) -> Exception:
        times.append(asyncio.get_running_loop().time())
        return ValueError("poison")

    async with store[BRIEF].consume("g", Seen(fails), name=key):
        await store[BRIEF].publish(Removed("7"), name=key)
        await settled(store, BRIEF, name=key)
    (letter,) = await store[BRIEF].dead_letters(name=key)
    assert (len(times), letter.deliveries, letter.error) == (3, 3, "ValueError: poison")
    tick = 0.001  # the server counts idle time in whole milliseconds, so a retry may come one early
    assert times[1] - times[0] >= 0.05 - tick
    assert times[2] - times[1] >= 0.1 - tick
    assert await store[BRIEF].replay([letter.id], name=key) == 1


async def test_c5_a_blind_maxlen_drops_unhandled_events(store: Store, key: str) -> None:
    """MAXLEN drops events before a slow group has read them; ours are trimmed behind the slowest group."""
    naive = f"naive:{key}"
    await store.call("XGROUP", "CREATE", naive, "g", "0", "MKSTREAM")
    await store.call("XADD", naive, "*", "event", "pending")
    ((pending, _),) = await _read(store, naive, "one", 1)
    for number in range(50):
        await store.call("XADD", naive, "MAXLEN", 10, "*", "event", number)
    assert await store.call("XRANGE", naive, pending, pending) == []  # pending, and dropped
    assert len(await _read(store, naive, "one", 100)) == 10  # 40 were never delivered

    stream = ACCOUNTS.keyspace.key(name=key)
    release = asyncio.Event()

    async def slow(event: Any, _delivery: Delivery) -> None:
        if event.user_id == "20":
            await release.wait()

    async def all_but_one() -> bool:
        groups = (await bound.info(name=key)).groups
        known = {group.name: (group.pending, group.lag) for group in groups}
        return (known["fast"], known["slow"]) == ((0, 0), (1, 0))

    bound = store[ACCOUNTS]
    ids = await bound.publish_many(users(50), name=key)
    await store.call("XGROUP", "CREATE", stream, "absent", "0")
    for group in ("fast", "slow"):
        await store.call("XGROUP", "CREATE", stream, group, "0")
    async with bound.consume("fast", Seen(), name=key), bound.consume("slow", slow, name=key):
        await until(all_but_one)  # the slow group has handled the events after its 21st, too
        assert await bound.trim(name=key) == 0
        assert await store.call("XLEN", stream) == 50  # one group has read nothing yet
        await store.call("XGROUP", "DESTROY", stream, "absent")
        await bound.trim(name=key)
        left = [entry_id.decode() for entry_id, _ in await store.call("XRANGE", stream, "-", "+")]
        assert left == ids[20:]  # all before the pending one are trimmed, and it can still be read
        assert await bound.trim(name=key) == 0
        release.set()
        await settled(store, ACCOUNTS, name=key)
    assert (await bound.info(name=key)).length == 1


async def test_c5_an_untrimmed_stream_grows_forever(store: Store, key: str) -> None:
    """Acknowledged entries stay in a naive stream; ours is trimmed while its consumer runs."""
    naive = f"naive:{key}"
    await store.call("XGROUP", "CREATE", naive, "g", "0", "MKSTREAM")
    for number in range(200):
        await store.call("XADD", naive, "*", "event", number)
    for entry_id, _ in await _read(store, naive, "one", 200):
        await store.call("XACK", naive, "g", entry_id)
    assert await store.call("XLEN", naive) == 200

    async def short() -> bool:
        return (await store[ACCOUNTS].info(name=key)).length == 1

    async with store[ACCOUNTS].consume("g", Seen(), name=key):
        await store[ACCOUNTS].publish_many(users(200), name=key)
        await until(short)
