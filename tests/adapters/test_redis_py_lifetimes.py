"""Where a shared connection begins and ends: with its event loop, its pool and its process."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvloop
from redis.asyncio.connection import BlockingConnectionPool, Connection, ConnectionPool
from redis.credentials import UsernamePasswordCredentialProvider
from redis.exceptions import ConnectionError as RedisConnectionError

from ephemera import embedded
from ephemera.adapters.redis_py import Redis
from ephemera.embedded import Valkey
from tests.adapters.redis_clients import NEVER, connections, eventually, ours
from tests.wire.certificates import Authority
from tests.wire.forwarders import forwarding

pytestmark = pytest.mark.standalone("redis.asyncio.Redis is the client of one server")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_one_client_serves_one_loop_after_the_other(server: Valkey, key: str, run: Any) -> None:
    """A client that is never closed works in each of several event loops, and ends with each."""
    client = Redis.from_url(server.url, client_name=key)

    async def count() -> int:
        number: int = await client.incr(key)
        assert connections(server, key) == 1
        return number

    for expected in (1, 2, 3):
        assert run(count()) == expected
        run(eventually(lambda: connections(server, key) == 0))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of redis-py, as without us
def test_a_command_of_a_task_that_is_cancelled_with_its_loop(server: Valkey, key: str) -> None:
    """What a task sends in its `finally` while the loop ends is executed, and leaves no task behind."""

    async def work(client: Redis) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            while client.connection_pool._ephemera_links.by_loop:  # until the loop's end has closed them
                await asyncio.sleep(0)
            await client.incr(key)

    async def main() -> None:
        client = Redis.from_url(server.url)
        await client.incr(key)
        tasks.append(asyncio.create_task(work(client)))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(main())
    assert server.ask("GET", key) == "2"
    assert not asyncio.all_tasks(tasks.pop().get_loop())
    gc.collect()  # redis-py's connection, whose warning is not of the next test


def test_loops_of_several_threads_have_a_connection_each(server: Valkey, key: str) -> None:
    """Threads with event loops of their own use one client at the same time."""
    client = Redis.from_url(server.url, client_name=key)
    everybody = threading.Barrier(4)
    seen: list[int] = []

    async def count() -> None:
        await client.incr(key)
        await asyncio.to_thread(everybody.wait, 60)
        seen.append(connections(server, key))
        await asyncio.to_thread(everybody.wait, 60)
        await asyncio.gather(*(client.incr(key) for _ in range(100)))

    threads = [threading.Thread(target=asyncio.run, args=(count(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (seen, server.ask("GET", key)) == ([4] * 4, "404")


async def test_a_client_that_is_dropped_closes_its_connection(server: Valkey, key: str) -> None:
    """A pool that is garbage takes its connection along."""
    client: Any = Redis.from_url(server.url, client_name=key)
    await client.incr(key)
    assert connections(server, key) == 1
    del client
    gc.collect()
    await eventually(lambda: connections(server, key) == 0)


async def test_a_client_that_is_dropped_while_it_connects(server: Valkey, key: str) -> None:
    """Its only caller is cancelled, and the pool is garbage before the connection is open."""
    before = asyncio.all_tasks()
    client: Any = Redis.from_url(server.url, client_name=key)
    call: Any = asyncio.create_task(client.incr(key))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait((call,))
    assert asyncio.all_tasks() != before
    del client, call
    gc.collect()
    await eventually(lambda: asyncio.all_tasks() == before and connections(server, key) == 0)


async def test_closing_waits_for_what_is_in_flight(server: Valkey, key: str) -> None:
    """Commands that were issued before `aclose` get their replies."""
    client = Redis.from_url(server.url, client_name=key)
    await client.ping()
    calls = asyncio.gather(*(client.incr(key) for _ in range(500)))
    await asyncio.sleep(0)
    await client.aclose()
    assert sorted(await calls) == list(range(1, 501))
    await eventually(lambda: connections(server, key) == 0)


async def test_a_forked_child_opens_its_own(server: Valkey, key: str) -> None:
    """The child and its parent use the same client, each on connections of its own."""
    async with ours(server, client_name=key) as client:
        await client.incr(key)
        await client.client_getname()  # leaves an idle connection in redis-py's pool
        child = await asyncio.to_thread(_forked, client, key)
        assert [await client.incr(key) for _ in range(50)] == list(range(52, 102))
        assert child == 0
        assert await client.client_getname() == key


def _forked(client: Any, key: str) -> int:
    """The exit code of a forked child that counts on with the client of its parent."""

    async def count() -> int:
        numbers = [await client.incr(key) for _ in range(50)]
        return 0 if numbers == list(range(2, 52)) and await client.client_getname() == key else 1

    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = asyncio.run(count())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


async def test_a_unix_socket(key: str) -> None:
    """`unix://` shares, too, and says where it cannot connect to as redis-py does."""
    with embedded.valkey(unix=True) as own:
        async with Redis.from_url(f"unix://{own.address}?db=2", client_name=key) as client:
            await asyncio.gather(*(client.incr(key) for _ in range(100)))
            assert connections(own, key) == 1
            assert int(str(own.ask("DBSIZE"))) == 0  # it is in database 2
    async with Redis.from_url(f"unix://{own.address}", retry=NEVER) as client:
        with pytest.raises(RedisConnectionError, match="connecting to"):
            await client.get(key)


async def test_tls(server: Valkey, key: str, tmp_path: Path) -> None:
    """`rediss://` takes redis-py's TLS options, and refuses a certificate that is not trusted."""
    authority = Authority(tmp_path, "ours")
    async with forwarding(server, tls=authority.server_context("127.0.0.1")) as forwarder:
        url = f"rediss://{forwarder.address}"
        async with Redis.from_url(url, ssl_ca_certs=str(authority.ca), client_name=key) as client:
            await asyncio.gather(*(client.incr(key) for _ in range(100)))
            assert connections(server, key) == 1
        async with Redis.from_url(url, retry=NEVER) as client:
            with pytest.raises(RedisConnectionError, match=r"(?i)certificate"):
                await client.get(key)


async def test_a_credential_provider(server: Valkey, key: str) -> None:
    """The shared connection authenticates by redis-py's credential providers."""
    parts = urlsplit(server.url)
    provider = UsernamePasswordCredentialProvider(password=parts.password)
    options = {"host": parts.hostname, "port": parts.port, "client_name": key}
    async with Redis(credential_provider=provider, **options) as client:
        await asyncio.gather(*(client.incr(key) for _ in range(100)))
        assert connections(server, key) == 1


async def test_commands_of_their_own_open_nothing_else(server: Valkey, key: str) -> None:
    """A client that only waits or listens has no shared connection."""
    async with ours(server, client_name=key) as client:
        assert await client.blpop([key], timeout=0.01) is None
        assert connections(server, key) == 1


async def test_a_blocking_pool(server: Valkey, key: str) -> None:
    """A pool of one connection serves any number of tasks."""
    pool = BlockingConnectionPool.from_url(server.url, max_connections=1, client_name=key)
    client = Redis.from_pool(pool)
    assert len(set(await asyncio.gather(*(client.incr(key) for _ in range(100))))) == 100
    assert connections(server, key) == 1
    await client.aclose()


async def test_connections_of_your_own_are_used(server: Valkey, key: str) -> None:
    """A connection class or a hook of the user's is not bypassed."""
    connected: list[object] = []

    class Counted(Connection):  # type: ignore[misc]
        async def _connect(self) -> None:
            connected.append(self)
            await super()._connect()

    async def hook(connection: Any) -> None:
        connected.append(connection)
        await connection.on_connect()

    for options in ({"connection_class": Counted}, {"redis_connect_func": hook}):
        pool = ConnectionPool.from_url(server.url, **options)
        client = Redis.from_pool(pool)
        assert await client.set(key, "value") is True
        assert await client.pipeline().get(key).execute() == [b"value"]
        await client.aclose()
        assert connected.pop() is not None
