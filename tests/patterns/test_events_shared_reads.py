"""One connection on which the consumers of many streams wait, and their events in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from ephemera import Store, keyspace
from ephemera.embedded import Valkey, valkey
from ephemera.patterns.events._group_member import Doorbell
from tests.patterns.event_fixtures import ACCOUNTS, CATALOGUE, Removed, Seen, settled, until
from tests.wire.conditions import eventually
from tests.wire.forwarders import forwarding
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]

_STREAMS = 20


@pytest.fixture
def alone() -> Iterator[Valkey]:
    """A server of this test's own, whose clients are counted."""
    with valkey() as running:
        yield running


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for events, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        yield opened


def _blocked(server: Valkey) -> list[str]:
    """The commands in which clients wait."""
    clients = str(server.ask("CLIENT", "LIST")).splitlines()
    fields = [dict(word.partition("=")[::2] for word in line.split()) for line in clients]
    return sorted(each["cmd"] for each in fields if "b" in each["flags"])


async def test_many_streams_wait_on_two_connections(alone: Valkey) -> None:
    """Consumers of twenty streams and two groups block two connections, and each gets its events."""
    async with keyspace.connect(alone.url, CATALOGUE) as store, AsyncExitStack() as stack:
        seen = {(name, group): Seen() for name in range(_STREAMS) for group in ("g", "h")}
        for (name, group), handler in seen.items():
            await stack.enter_async_context(store[ACCOUNTS].consume(group, handler, name=name))

        async def waiting() -> bool:
            return await asyncio.to_thread(_blocked, alone) == ["xread", "xreadgroup"]

        await until(waiting)
        for number in range(3):
            for name in range(_STREAMS):
                await store[ACCOUNTS].publish(Removed(str(number)), name=name)
        for name in range(_STREAMS):
            await settled(store, ACCOUNTS, name=name)
        await until(waiting)
    assert all(handler.users == ["0", "1", "2"] for handler in seen.values())


async def test_an_event_ends_the_wait_at_once(store: Store, key: str) -> None:
    """An event on any of several streams is handled without waiting for the read's own end."""
    names = [f"{key}-{number}" for number in range(4)]
    seen = {name: Seen() for name in names}
    async with AsyncExitStack() as stack:
        for name in names:
            await stack.enter_async_context(store[ACCOUNTS].consume("g", seen[name], name=name))
        await asyncio.sleep(0.1)  # all of them wait; the read would end by itself after 5 s
        began = asyncio.get_running_loop().time()
        for name in names * 5:
            before = len(seen[name].users)
            await store[ACCOUNTS].publish(Removed(name), name=name)

            async def handled(name: str = name, before: int = before) -> bool:
                return len(seen[name].users) > before

            await until(handled)
        assert asyncio.get_running_loop().time() - began < 4.5  # twenty waits


async def test_a_read_that_ends_late_does_not_hide_the_next(alone: Valkey) -> None:
    """A read that was cancelled while it connects, and ends after the next one began, leaves that one known.

    A stream that has news joins the wait at once; otherwise it would wait for the end of the read, 5 s.
    """
    async with (
        forwarding(alone) as line,
        keyspace.connect(f"redis://{line.address}?timeout=20&connect_timeout=20", CATALOGUE) as store,
    ):
        await store[ACCOUNTS].publish(Removed("7"), name="has-news")
        bell = Doorbell(store.client("queue"), ACCOUNTS.bell_key({"name": "quiet"}, "test"))
        quiet, has_news = (ACCOUNTS.keys({"name": name}).stream for name in ("quiet", "has-news"))
        line.gate.clear()
        connections = line.accepted
        cancelled = asyncio.ensure_future(bell.wait(quiet, b"0-0"))
        await eventually(lambda: line.accepted > connections)
        cancelled.cancel()
        waiting = asyncio.ensure_future(bell.wait(quiet, b"0-0"))
        await asyncio.wait([cancelled])
        line.gate.set()

        async def is_blocked() -> bool:
            return await asyncio.to_thread(_blocked, alone) == ["xread"]

        await until(is_blocked)
        await asyncio.wait_for(bell.wait(has_news, b"0-0"), 3)
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_streams_that_are_not_consumed_any_more_are_forgotten(alone: Valkey) -> None:
    """A store that has consumed from 1,100 streams remembers 1,000 at most, and those it consumes now."""
    async with keyspace.connect(alone.url, CATALOGUE) as store:

        async def consume_once(number: int) -> None:
            async with store[ACCOUNTS].consume("g", Seen(), name=number):
                pass

        async with store[ACCOUNTS].consume("g", Seen(), name="now"):
            for start in range(0, 1100, 50):
                await asyncio.gather(*(consume_once(number) for number in range(start, start + 50)))
            known = {each.key for each in await store[ACCOUNTS].consumed_streams(10_000)}
            assert len(known) <= 1001
            assert ACCOUNTS.keys({"name": "now"}).stream in known
            (first,) = await store[ACCOUNTS].consumed_streams(1)
            assert first.key == ACCOUNTS.keys({"name": "now"}).stream


async def test_consumers_come_and_go(store: Store, key: str) -> None:
    """A consumer that stops while others wait leaves them waiting, and one that starts joins them."""
    names = [f"{key}-{number}" for number in range(3)]
    seen = Seen()
    consumers = [store[ACCOUNTS].consume("g", seen, name=name) for name in names]
    for consumer in consumers:
        await consumer.__aenter__()
        await asyncio.sleep(0.01)
    for consumer in consumers[:2]:
        await consumer.__aexit__(None, None, None)
    async with store[ACCOUNTS].consume("g", seen, name=names[0]):
        for name in (names[0], names[2]):
            await store[ACCOUNTS].publish(Removed(name), name=name)

        async def handled() -> bool:
            return sorted(seen.users) == [names[0], names[2]]

        await until(handled)
    await consumers[2].__aexit__(None, None, None)


async def test_consumers_that_share_a_wait_survive_a_restart(alone: Valkey) -> None:
    """After the server was restarted empty, every consumer creates its group again and gets its events."""
    async with keyspace.connect(alone.url, CATALOGUE) as store, AsyncExitStack() as stack:
        seen = [Seen() for _ in range(3)]
        for name, handler in enumerate(seen):
            await stack.enter_async_context(store[ACCOUNTS].consume("g", handler, name=name))
        await asyncio.to_thread(alone.kill)
        await asyncio.to_thread(alone.restart)

        async def connected() -> bool:
            return store.client("queue").up

        await until(connected)
        for name in range(3):
            await store[ACCOUNTS].publish(Removed("after"), name=name)

        async def handled() -> bool:
            return all(handler.users == ["after"] for handler in seen)

        await until(handled)
