"""A master watched by Sentinels: clients follow a fail-over by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Sentinel, Valkey
from ephemera.errors import CannotConnect, OutcomeUnknown, Unavailable
from ephemera.wire import NodeClient
from tests.wire.clients import node_client
from tests.wire.conditions import answered, eventually

_DOWN_AFTER = 500  # milliseconds


@pytest.fixture
def watched() -> Iterator[Sentinel]:
    """A master, a replica and three Sentinels for one test alone."""
    with embedded.sentinel(down_after=_DOWN_AFTER) as running:
        yield running


class _Load:
    """Callers that increment one counter all the time, and count the outcomes."""

    def __init__(self, client: NodeClient) -> None:
        self.done = 0
        self.unknown = 0
        self._client = client
        self._stopped = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run()) for _ in range(10)]

    async def stop(self) -> None:
        self._stopped.set()
        await asyncio.gather(*self._tasks)
        assert int(await self._client.call("GET", "count")) <= self.done + self.unknown

    async def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                await self._client.call("INCR", "count")
                self.done += 1
            except OutcomeUnknown:
                self.unknown += 1
            except Unavailable:
                await asyncio.sleep(0.002)


async def _where(client: NodeClient) -> int:
    """The port of the server that the client is connected to."""
    info = await client.call("INFO", "server")
    return int(info.partition(b"tcp_port:")[2].split(b"\r\n")[0])


async def _follows(client: NodeClient, watched: Sentinel, old: Valkey, within: float) -> None:
    async def at_another() -> None:
        if await _where(client) == old.port:
            raise Unavailable("still", "at the old master")

    await answered(at_another, within)
    assert await _where(client) == watched.master.port


async def test_a_manual_failover_is_followed(watched: Sentinel) -> None:
    """SENTINEL FAILOVER under load: correct outcomes, and the client moves to the new master by itself."""
    old = watched.master
    async with node_client(watched.url) as client, client.subscribe("news") as messages:
        load = _Load(client)
        await eventually(lambda: load.done > 100)
        watched.sentinels[0].ask("SENTINEL", "FAILOVER", "mymaster")
        await _follows(client, watched, old, within=90)
        await load.stop()
        message = await asyncio.wait_for(anext(messages), 60)
        assert (message.channel, message.lost) == (b"news", True)
        await answered(lambda: _subscribed(client))
        while (message := await asyncio.wait_for(anext(messages), 60)).lost:
            pass
        assert message.data == b"from the new master"


async def _subscribed(client: NodeClient) -> None:
    if not await client.call("PUBLISH", "news", "from the new master"):
        raise Unavailable("news", "not subscribed at the new master yet")


async def test_a_master_that_dies_is_replaced(watched: Sentinel) -> None:
    """SIGKILL under load: correct outcomes, and the client moves to the new master by itself."""
    old = watched.master
    async with node_client(watched.url) as client:
        load = _Load(client)
        await eventually(lambda: load.done > 100)
        old.kill()
        await _follows(client, watched, old, within=90)
        done = load.done
        await eventually(lambda: load.done > done + 100)
        await load.stop()


async def test_a_demoted_master_is_left(watched: Sentinel) -> None:
    """A write that a demoted master refuses fails as not executed; a client waits for a real master."""
    master = watched.master
    other = next(node for node in watched.nodes if node is not master)
    async with node_client(watched.url) as client:
        waiting = asyncio.ensure_future(client.call("BLPOP", "list", 0))
        await eventually(lambda: "blocked_clients:1\r\n" in str(master.ask("INFO", "clients")))
        master.ask("REPLICAOF", "127.0.0.1", other.port)
        with pytest.raises(Unavailable, match="it is a replica now"):
            await client.call("SET", "x", "1")
        with pytest.raises(Unavailable, match="it is a replica now"):
            await asyncio.wait_for(waiting, 60)
        await eventually(lambda: "it is a" in client.link._problem)
        master.ask("REPLICAOF", "NO", "ONE")
        await answered(lambda: client.call("SET", "x", "2"), within=90)


async def test_a_majority_of_sentinels_is_enough(watched: Sentinel) -> None:
    """With one of three Sentinels dead the master is found; with another frozen no majority names it."""
    dead, frozen, _ = watched.sentinels
    dead.kill()
    async with node_client(watched.url) as client:
        assert await client.call("PING") == b"PONG"
    frozen.pause()
    with pytest.raises(CannotConnect, match="1 of 3 Sentinels name"):
        async with node_client(watched.url):
            pass
    frozen.resume()
