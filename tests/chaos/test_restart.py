"""A server killed and restarted under load: every call has a correct outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import OutcomeUnknown, Unavailable
from ephemera.wire import NodeClient
from tests.wire.clients import connection_of, node_client
from tests.wire.conditions import answered, eventually
from tests.wire.scripted_server import Peer, scripted_server

_CALLERS = 20
_ROUNDS = 4


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Valkey]:
    """A server that has every acknowledged write on disk."""
    config = {"appendonly": "yes", "appendfsync": "always"}
    with embedded.valkey(data=tmp_path, config=config) as running:
        yield running


class _Caller:
    """A caller that increments its own counter and counts the outcomes."""

    def __init__(self, client: NodeClient, name: int) -> None:
        self.key = f"counter:{name}"
        self.outcomes: Counter[type] = Counter()
        self._client = client
        self._highest = 0

    async def run(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            try:
                value = await self._client.call("INCR", self.key)
            except (Unavailable, OutcomeUnknown) as error:
                self.outcomes[type(error)] += 1
                await asyncio.sleep(0.002)
            else:
                self.outcomes[int] += 1
                assert value > self._highest, "an acknowledged increment was lost"
                self._highest = value


async def _served(callers: list[_Caller], more: int) -> None:
    """Wait until the callers have been served some more times."""
    before = sum(caller.outcomes[int] for caller in callers)
    await eventually(lambda: sum(caller.outcomes[int] for caller in callers) > before + more)


@pytest.mark.patient
@pytest.mark.on_both_loops
async def test_killed_and_restarted_under_load(durable: Valkey) -> None:
    """Counts are never above what may have been executed, nor below what was acknowledged."""
    async with node_client(durable.url) as client:
        stopped = asyncio.Event()
        callers = [_Caller(client, name) for name in range(_CALLERS)]
        running = [asyncio.create_task(caller.run(stopped)) for caller in callers]
        for _ in range(_ROUNDS):
            await _served(callers, 500)
            await asyncio.to_thread(durable.kill)
            await eventually(lambda: not client.up)
            await asyncio.to_thread(durable.restart)
            await eventually(lambda: client.up)
        stopped.set()
        await asyncio.gather(*running)

        counts = await asyncio.gather(*(client.call("GET", caller.key) for caller in callers))
        for caller, count in zip(callers, counts, strict=True):
            acknowledged, unknown = caller.outcomes[int], caller.outcomes[OutcomeUnknown]
            assert acknowledged <= int(count) <= acknowledged + unknown
        assert sum(caller.outcomes[OutcomeUnknown] for caller in callers) > 0
        assert client.link.connection_count == 1 + _ROUNDS


async def test_reads_survive_a_dropped_connection(server: Valkey, key: str) -> None:
    """Reads in flight on a connection that is dropped are sent again on the next one, unnoticed."""
    async with node_client(server.url) as client:
        await client.call("SET", key, "value")
        reads = [client.call("GET", key) for _ in range(100)]
        await asyncio.sleep(0)  # now they are sent
        connection_of(client).abort("dropped by the test")
        assert set(await asyncio.gather(*reads)) == {b"value"}
        assert client.link.connection_count == 2


async def test_writes_in_flight_fail_as_unknown(server: Valkey, key: str) -> None:
    """Writes in flight on a dropped connection fail as unknown, those not yet sent as not executed."""
    async with node_client(server.url) as client:
        sent = [client.call("INCR", key) for _ in range(10)]
        await asyncio.sleep(0)
        unsent = [client.call("INCR", key) for _ in range(10)]
        connection_of(client).abort("dropped by the test")
        errors = await asyncio.gather(*sent, *unsent, return_exceptions=True)
        assert [type(error) for error in errors] == [OutcomeUnknown] * 10 + [Unavailable] * 10
        await answered(lambda: client.call("PING"))
        assert int(await client.call("GET", key) or 0) <= 10
        await client.call("DEL", key)


async def test_a_killed_client_reconnects(server: Valkey, key: str) -> None:
    """CLIENT KILL, as by an operator, costs the reads nothing."""
    async with node_client(server.url) as client:
        number = await client.call("CLIENT", "ID")
        await client.call("SET", key, "value")
        for _ in range(5):
            server.ask("CLIENT", "KILL", "ID", number)
            await answered(lambda: client.call("GET", key))
            number = await client.call("CLIENT", "ID")
        assert client.link.connection_count == 6


async def test_reads_are_repeated_once(victim: Valkey) -> None:
    """When the next connection does not come up at once, reads fail as unavailable and do not wait."""
    async with node_client(victim.url) as client:
        await client.call("SET", "x", "1")
        victim.pause()
        read = client.call("GET", "x")
        await asyncio.sleep(0.01)
        await asyncio.to_thread(victim.kill)
        with pytest.raises(Unavailable):
            await asyncio.wait_for(read, 60)


async def test_closing_while_reads_wait_for_the_next_connection(victim: Valkey) -> None:
    """Reads that wait to be sent again fail when the client is closed in the meantime."""
    async with node_client(f"{victim.url}?connect_timeout=5&timeout=3") as client:
        victim.pause()
        read = client.call("GET", "x")
        await asyncio.sleep(0)
        connection_of(client).abort("dropped by the test")
        await eventually(lambda: not client.up)
        assert not read.done()
    with pytest.raises(Exception, match="closed"):
        await asyncio.wait_for(read, 60)


async def test_starting_before_the_server(victim: Valkey) -> None:
    """Calls of a client that starts before its server fail as unavailable, and succeed once it is up."""
    await asyncio.to_thread(victim.kill)
    async with node_client(victim.url, required=False) as client:
        with pytest.raises(Unavailable, match="connection refused"):
            await client.call("GET", "x")
        await asyncio.to_thread(victim.restart)
        await answered(lambda: client.call("PING"))


async def test_a_server_that_is_loading_counts_as_down(tmp_path: Path) -> None:
    """While a server reads its data back, calls fail as unavailable; then they succeed."""
    # Microseconds a key, 16 s in all; the delay is removed once its state was seen.
    slowly = {"key-load-delay": "8000", "loading-process-events-interval-bytes": "1024"}
    config = {"enable-debug-command": "yes", **slowly}
    with embedded.valkey(data=tmp_path, config=config) as server:
        async with node_client(server.url) as client:
            await client.call("DEBUG", "POPULATE", 2000, "filler", 100)
            await client.call("SAVE")
            server.kill()
            restarting = asyncio.create_task(asyncio.to_thread(server.restart))
            problems, loading = set(), "it is loading its data"
            while not restarting.done():
                try:
                    await client.call("GET", "filler:1")
                except Unavailable as error:
                    problems.add(error.problem)
                    if error.problem == loading:
                        await asyncio.to_thread(server.ask, "CONFIG", "SET", "key-load-delay", "0")
                await asyncio.sleep(0.001)
            await restarting
            assert loading in problems
            await answered(lambda: client.call("GET", "filler:1"))


async def test_reconnecting_backs_off_when_connections_are_brief() -> None:
    """A server that repeatedly accepts and then closes the connection is tried less and less often."""
    welcomed = 0

    async def hang_up(peer: Peer) -> None:
        nonlocal welcomed
        await peer.handshake()
        welcomed += 1

    async with scripted_server(hang_up) as address, node_client(f"redis://{address}", required=False):
        await asyncio.sleep(0.5)
    assert 3 < welcomed < 30
