"""Fan-out: messages to a user on any process, a deadline for each connection, dropping slow ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from ephemera import Catalogue, Store, connect, keyspace, sliding
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed, InvalidDeclaration, SlowConsumer
from ephemera.patterns.fanout import MISSED, Fanout
from tests.chaos.conftest import victim
from tests.patterns.fanout_fixtures import CATALOGUE, NOTES, Note
from tests.wire.conditions import answered, eventually
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors", "victim"]


@pytest.fixture
async def stores(url: str) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores, like those of two processes, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE) as one, keyspace.connect(url, CATALOGUE) as other:
        yield one, other


async def test_a_push_reaches_every_connection_of_a_user(stores: tuple[Store, Store], key: str) -> None:
    """Each connection of a user on two processes gets the message once, and no other user's does."""
    one, other = stores
    async with (
        one[NOTES].connect(user_id=key) as first,
        one[NOTES].connect(user_id=key) as second,
        other[NOTES].connect(user_id=key) as third,
        other[NOTES].connect(user_id=f"{key}-other") as stranger,
    ):
        assert await one[NOTES].push(Note("hello"), user_id=key) == 3
        assert await other[NOTES].push(Note("again"), user_id=key) == 3
        for connection in (first, second, third):
            assert [await anext(connection), await anext(connection)] == [Note("hello"), Note("again")]
        assert await one[NOTES].push(Note("yours"), user_id=f"{key}-other") == 1
        assert await anext(stranger) == Note("yours")


async def test_a_push_to_a_disconnected_user_returns_zero(stores: tuple[Store, Store], key: str) -> None:
    """A push to a user who is not connected, or no longer is, returns 0."""
    one, other = stores
    assert await one[NOTES].push(Note("?"), user_id=key) == 0
    async with other[NOTES].connect(user_id=key):
        assert await one[NOTES].push(Note("?"), user_id=key) == 1
    assert await one[NOTES].push(Note("?"), user_id=key) == 0
    assert not await one[NOTES.keyspace].exists(user_id=key)
    assert other[NOTES].local_connections == 0


async def test_a_broadcast_reaches_every_connection(stores: tuple[Store, Store], key: str) -> None:
    """All connections of all users on all processes get a broadcast."""
    one, other = stores
    async with (
        one[NOTES].connect(user_id=f"{key}-1") as first,
        other[NOTES].connect(user_id=f"{key}-2") as second,
    ):
        await one[NOTES].broadcast(Note("all"))
        assert await anext(first) == await anext(second) == Note("all")


async def test_connections_are_listed_with_their_process(stores: tuple[Store, Store], key: str) -> None:
    """A user's connections are listed with their process and their deadline, by the server's clock."""
    one, other = stores
    async with one[NOTES].connect(user_id=key) as first, other[NOTES].connect(user_id=key) as second:
        listed = await one[NOTES].connections(user_id=key)
        names = {f"{each.server}:{each.connection}" for each in listed}
        assert names == {first.id, second.id}
        assert {each.server for each in listed} == {one[NOTES].server_id, other[NOTES].server_id}
        (seconds, _) = await one.call("TIME")
        assert all(290 < each.until.timestamp() - int(seconds) <= 301 for each in listed)
        assert 290_000 < await one.call("PTTL", NOTES.keyspace.key(user_id=key)) <= 300_000


async def test_a_heartbeat_keeps_connections_listed(
    stores: tuple[Store, Store], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection stays listed after its first deadline as long as its process runs."""
    one, other = stores
    assert one[NOTES]._registry._interval <= NOTES.lifetime / 3000
    monkeypatch.setattr(one[NOTES]._registry, "_interval", 0.1)  # seconds, where it would be 100
    async with one[NOTES].connect(user_id=key) as connection:
        (before,) = await other[NOTES].connections(user_id=key)

        async def renewed() -> bool:
            (now,) = await other[NOTES].connections(user_id=key)
            return now.until >= before.until

        for _ in range(2):  # two thirds of its lifetime pass each time, for its deadline only
            await one.call(
                "ZINCRBY", NOTES.keyspace.key(user_id=key), -NOTES.lifetime * 2 // 3, connection.id
            )
            async with asyncio.timeout(60):
                while not await renewed():
                    await asyncio.sleep(0.02)
        assert await other[NOTES].push(Note("still there"), user_id=key) == 1
        assert await anext(connection) == Note("still there")


async def test_a_lost_list_is_restored(stores: tuple[Store, Store], key: str) -> None:
    """After the list of connections was deleted, the next heartbeat restores it, and delivers `MISSED`."""
    one, other = stores
    async with one[NOTES].connect(user_id=key) as connection:
        await one[NOTES.keyspace].delete(user_id=key)
        async with asyncio.timeout(60):
            assert await other[NOTES].push(Note("lost"), user_id=key) == 0
            one[NOTES]._registry._renewal_at = 0.0  # not before: the push must come first
            assert await anext(connection) is MISSED
            assert await other[NOTES].push(Note("after"), user_id=key) == 1
            assert await anext(connection) == Note("after")


async def test_a_new_connection_does_not_disturb_others(stores: tuple[Store, Store], key: str) -> None:
    """A second connection of a user does not make the first one miss anything."""
    one, other = stores
    async with one[NOTES].connect(user_id=key) as first, one[NOTES].connect(user_id=key) as second:
        await other[NOTES].push(Note("to both"), user_id=key)
        assert await anext(first) == await anext(second) == Note("to both")


async def test_a_slow_connection_is_dropped(server: Valkey, key: str) -> None:
    """A connection with ten waiting messages is dropped, frees them, and delays no other."""
    async with connect(server.url, CATALOGUE) as store:
        async with store[NOTES].connect(user_id=key) as slow, store[NOTES].connect(user_id=key) as quick:
            for number in range(20):
                await store[NOTES].push(Note(str(number)), user_id=key)
                assert await anext(quick) == Note(str(number))
            assert slow.dropped.done()
            with pytest.raises(SlowConsumer, match="10 messages"):
                await anext(slow)


async def test_a_connection_gets_missed_after_an_interruption(server: Valkey, key: str) -> None:
    """After an interrupted subscription, every connection gets `MISSED` once."""
    async with connect(server.url, CATALOGUE) as store, store[NOTES].connect(user_id=key) as connection:
        server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        async with asyncio.timeout(60):
            assert await anext(connection) is MISSED
        await store[NOTES].push(Note("after"), user_id=key)
        assert await anext(connection) == Note("after")


async def test_an_undecodable_message_is_delivered_as_missed(server: Valkey, key: str) -> None:
    """A message that this version cannot decode is delivered as `MISSED`."""
    async with connect(server.url, CATALOGUE) as store, store[NOTES].connect(user_id=key) as connection:
        await store[NOTES.broadcasts].publish(b'["1other",{}]')
        assert await anext(connection) is MISSED


async def test_a_message_that_is_not_text_is_ignored(stores: tuple[Store, Store], key: str) -> None:
    """Bytes that are not text, on a process's own channel, are ignored; later messages are delivered."""
    one, other = stores
    async with one[NOTES].connect(user_id=key) as connection:
        for bad in (b"\xff\xfe\nboom", b"\xff\xfe", b"", b"\n"):
            await other[NOTES.processes].publish(bad, server_id=one[NOTES].server_id)
        assert await other[NOTES].push(Note("hello"), user_id=key) == 1
        async with asyncio.timeout(60):
            assert await anext(connection) == Note("hello")


class Fussy(msgspec.Struct):
    """A message whose own check raises something other than a validation error."""

    text: str

    def __post_init__(self) -> None:
        if self.text == "fuss":
            raise RuntimeError(self.text)


async def test_an_error_while_listening_is_an_interruption(
    server: Valkey, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in decoding is logged; the process subscribes again, and its connections get `MISSED`."""
    catalogue = Catalogue("test-fussy")
    fussy = Fanout(catalogue, "fussy:{user_id}", Fussy, channel="pubsub:fussy")
    fuss = fussy.encode(Fussy("calm")).replace(b"calm", b"fuss")
    async with connect(server.url, catalogue) as store, store[fussy].connect(user_id=key) as connection:
        await store[fussy.broadcasts].publish(fuss)
        async with asyncio.timeout(60):
            assert await anext(connection) is MISSED
            assert await store[fussy].push(Fussy("calm"), user_id=key) == 1
            assert await anext(connection) == Fussy("calm")
    assert ["subscribing again" in record.getMessage() for record in caplog.records] == [True]


async def test_connections_outlive_an_outage(victim: Valkey) -> None:
    """When Redis dies with its data, connections stay, get `MISSED`, and are reached again afterwards."""
    async with connect(victim.url, CATALOGUE) as store, store[NOTES].connect(user_id="u") as connection:
        victim.kill()
        await eventually(lambda: not store.client().up)
        with pytest.raises(ConnectionFailed):
            await store[NOTES].push(Note("lost"), user_id="u")
        async with store[NOTES].connect(user_id="late") as late:
            victim.restart()
            await answered(lambda: store.call("PING"))
            async with asyncio.timeout(60):
                assert await anext(connection) is MISSED
                for user in ("u", "late"):
                    while not await store[NOTES].push(Note("back"), user_id=user):
                        await asyncio.sleep(0.02)
                assert await anext(connection) == Note("back")
                while await anext(late) != Note("back"):
                    pass


async def test_a_hung_server_costs_a_connection_only_time(victim: Valkey) -> None:
    """While the server is stopped pushing fails; afterwards no message sent after `MISSED` is lost."""
    async with connect(victim.url, CATALOGUE) as pushing, connect(victim.url, CATALOGUE) as store:
        async with store[NOTES].connect(user_id="u") as connection:
            victim.pause()
            with pytest.raises(ConnectionFailed):
                await pushing[NOTES].push(Note("unknown"), user_id="u")
            with pytest.raises(ConnectionFailed):
                await pushing[NOTES].broadcast(Note("unknown"))
            await eventually(lambda: not store.client().up)
            async with store[NOTES].connect(user_id="late") as late:
                victim.resume()
                await answered(lambda: pushing.call("PING"))
                async with asyncio.timeout(60):
                    # Its subscription may have survived the pause; if not, it gets MISSED.
                    while not await pushing[NOTES].push(Note("after"), user_id="u"):
                        await asyncio.sleep(0.02)
                    while (seen := await anext(connection)) != Note("after"):
                        if seen is MISSED:
                            assert await pushing[NOTES].push(Note("after"), user_id="u") == 1
                    while not await pushing[NOTES].push(Note("late"), user_id="late"):
                        await asyncio.sleep(0.02)
                    while (await anext(late)) != Note("late"):
                        pass


async def test_a_store_that_starts_without_a_server_lists_connections_later(victim: Valkey) -> None:
    """A process that starts before Redis accepts connections, and lists them when it can."""
    victim.kill()
    async with connect(victim.url, CATALOGUE, required=False) as store:
        async with store[NOTES].connect(user_id="u") as connection:
            victim.restart()
            await answered(lambda: store.call("PING"))
            async with asyncio.timeout(60):
                while not await store[NOTES].push(Note("?"), user_id="u"):
                    await asyncio.sleep(0.02)
                while await anext(connection) is MISSED:
                    pass


async def test_a_connection_cancelled_while_it_starts_is_discarded(victim: Valkey) -> None:
    """A connection whose `async with` is cancelled while it starts is neither kept nor renewed."""
    async with connect(victim.url, CATALOGUE) as store:
        async with store[NOTES].connect(user_id="other"):
            victim.pause()
            entering = asyncio.create_task(store[NOTES].connect(user_id="u").__aenter__())
            await eventually(lambda: store[NOTES].local_connections == 2)
            entering.cancel()
            await asyncio.gather(entering, return_exceptions=True)
            assert store[NOTES].local_connections == 1
            victim.resume()


async def test_a_store_that_closes_ends_its_connections(server: Valkey, key: str) -> None:
    """Closing a store ends the iterations and removes the connections from the lists."""
    async with connect(server.url, CATALOGUE) as watching:
        async with connect(server.url, CATALOGUE) as store:
            connection = store[NOTES].connect(user_id=key)
            await connection.__aenter__()
            assert len(await watching[NOTES].connections(user_id=key)) == 1
        assert [message async for message in connection] == []
        assert await watching[NOTES].connections(user_id=key) == []


@pytest.mark.parametrize("options", [{"lifetime": sliding(seconds=3)}, {"backlog": 0}])
def test_wrong_declarations_are_refused(options: Any) -> None:
    """A declaration that cannot work is refused with the reason."""
    with pytest.raises(InvalidDeclaration):
        Fanout(Catalogue("wrong"), "c:{user}", Note, channel="n", **options)
