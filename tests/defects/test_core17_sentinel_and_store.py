"""CORE17: a minority of Sentinels decided; SCRIPT DEBUG was sent; two threads could bind a pattern twice."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest

from ephemera import Store, blocking, embedded
from ephemera.embedded import Sentinel, Valkey
from ephemera.errors import CannotConnect, EphemeraError, Unavailable, UnsupportedCommand
from ephemera.wire import NodeClient, open_client
from tests.wire.conftest import client
from tests.wire.scripted_server import Peer, scripted_server

__all__ = ["client"]


def naming(port: int) -> object:
    """The conversation of a Sentinel that names this port of the machine as its master's."""

    async def conversation(peer: Peer) -> None:
        await peer.handshake(mode="sentinel")
        while True:
            if (await peer.command())[0] == b"SENTINEL":
                await peer.send(b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port))
            else:
                await peer.send(b"+OK\r\n")

    return conversation


async def sentinel_url(opened: AsyncExitStack, password: str | None, *ports: int | None) -> str:
    """A URL of Sentinels that name these ports of servers with a password; None: one that is down."""
    hosts = [
        "127.0.0.1:1" if port is None else await opened.enter_async_context(scripted_server(naming(port)))  # type: ignore[arg-type]
        for port in ports
    ]
    return f"redis+sentinel://:{password}@{','.join(hosts)}/main"


async def test_core17_a_majority_of_sentinels_decides(server: Valkey) -> None:
    """Two of three that agree are followed, even when the third names another server."""
    async with AsyncExitStack() as opened:
        url = await sentinel_url(opened, server.password, server.port, 1, server.port)
        client = await opened.enter_async_context(open_client(url))
        assert await client.call("PING") == b"PONG"


@pytest.mark.parametrize("others", [(None, None), (1, None), (1, 2)], ids=["down", "one down", "disagree"])
async def test_core17_a_minority_is_not_followed(server: Valkey, others: tuple[int | None, ...]) -> None:
    """One of three Sentinels is not enough, whatever the others do."""
    async with AsyncExitStack() as opened:
        url = await sentinel_url(opened, server.password, server.port, *others)
        with pytest.raises(
            CannotConnect, match=r"1 of 3 Sentinels name .*A majority must name the same master"
        ):
            await opened.enter_async_context(open_client(url))


async def test_core17_a_replica_that_sentinels_name_is_refused(sentinel: Sentinel) -> None:
    """Sentinels that agree on a replica do not make it a master: nothing is sent to it."""
    replica = sentinel.replicas[0]
    async with AsyncExitStack() as opened:
        url = await sentinel_url(opened, replica.password, replica.port, replica.port)
        with pytest.raises(CannotConnect, match=r"it is a (replica|slave)"):
            await opened.enter_async_context(open_client(url))
        waiting = await opened.enter_async_context(open_client(url, required=False))
        with pytest.raises(EphemeraError, match=r"it is a (replica|slave)"):
            await asyncio.wait_for(_read(waiting), 60)


async def _read(client: object) -> None:
    await client.call("GET", "x")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words",
    [("SCRIPT", "DEBUG", "YES"), ("script", "debug", "sync"), ("CLIENT", "CAPA", "redirect")],
    ids=" ".join,
)
async def test_core17_commands_that_change_the_connection_are_refused(
    client: NodeClient, words: tuple[str, ...]
) -> None:
    """SCRIPT DEBUG would turn the shared connection into a debugger's."""
    with pytest.raises(UnsupportedCommand, match="changes a connection that all callers share"):
        await client.call(*words)
    assert await client.call("SCRIPT", "EXISTS", "0" * 40) == [0]


def test_core17_threads_bind_a_declaration_once(server: Valkey) -> None:
    """Eight threads that use a pattern for the first time get the same object."""
    bound: list[object] = []

    class Slow:
        def bind(self, store: Store) -> object:
            time.sleep(0.02)
            bound.append(SimpleNamespace())
            return bound[-1]

    declaration = Slow()
    with blocking.connect(server.url) as store, ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: store.aio[declaration], range(8)))
    assert len(bound) == 1
    assert all(each is bound[0] for each in got)


async def test_core17_a_write_to_a_demoted_master_fails_at_once() -> None:
    """The error says that nothing was written, and the caller does not wait for a reply that never comes."""
    with embedded.sentinel(down_after=60_000) as watched:
        async with open_client(watched.url) as client:
            await client.call("SET", "key", "value")
            master, other = watched.nodes[:2]
            master.ask("CONFIG", "SET", "masterauth", other.password or "")
            master.ask("REPLICAOF", "127.0.0.1", str(other.port))
            async with asyncio.timeout(10):
                with pytest.raises(Unavailable, match="it is a replica now"):
                    await client.call("SET", "key", "other")
