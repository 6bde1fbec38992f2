"""Blocking commands: each waits on a connection of its own and blocks no other command."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import (
    CannotConnect,
    OutcomeUnknown,
    ServerError,
    StoreClosed,
    Unavailable,
    UnsupportedCommand,
)
from ephemera.wire import NodeClient
from tests.wire.clients import node_client
from tests.wire.conditions import eventually


def _blocked(server: Valkey) -> int:
    """How many clients wait in a blocking command."""
    info = str(server.ask("INFO", "clients"))
    return int(info.partition("blocked_clients:")[2].split("\r\n")[0])


async def test_a_waiting_command_blocks_no_other(client: NodeClient, server: Valkey, key: str) -> None:
    """While one caller waits in BLPOP, others are served; a pushed element wakes it."""
    waiting = asyncio.ensure_future(client.call("BLPOP", key, 5))
    await eventually(lambda: _blocked(server) == 1)
    begun = time.perf_counter()
    assert await client.call("PING") == b"PONG"
    assert time.perf_counter() - begun < 4
    await client.call("RPUSH", key, "element")
    assert await waiting == [key.encode(), b"element"]


async def test_many_wait_at_once(client: NodeClient, server: Valkey, key: str) -> None:
    """Many blocking calls wait at the same time, each gets one element, and few connections stay open."""
    waiting = [asyncio.ensure_future(client.call("BLPOP", key, 5)) for _ in range(30)]
    await eventually(lambda: _blocked(server) == 30)
    await client.call("RPUSH", key, *range(30))
    elements = {int(element) for _, element in await asyncio.gather(*waiting)}
    assert elements == set(range(30))

    def kept() -> int:  # those of other tests on this server are not ours
        clients = str(server.ask("CLIENT", "LIST")).splitlines()
        return sum("cmd=blpop" in line and "name=ephemera" in line for line in clients)

    await eventually(lambda: kept() <= 8)


async def test_a_connection_is_used_again(client: NodeClient, key: str) -> None:
    """One blocking call after another uses the same connection, even after an error."""
    await client.call("SET", key, "text")
    for _ in range(3):
        with pytest.raises(ServerError, match="WRONGTYPE"):
            await client.call("BLPOP", key, 1)
    await client.call("DEL", key)
    assert await client.call("BLPOP", key, 0.01) is None
    connects = await client.call("INFO", "stats")
    await client.call("BLPOP", key, 0.01)
    received = b"total_connections_received:"
    after = await client.call("INFO", "stats")
    assert after.partition(received)[2].split()[0] == connects.partition(received)[2].split()[0]


@pytest.mark.parametrize(
    "words",
    [
        ("BLPOP", "{0}", 0.05),
        ("BRPOP", "{0}", "0.05"),
        ("BLMOVE", "{0}", "{0}", "LEFT", "LEFT", b"0.05"),
        ("BRPOPLPUSH", "{0}", "{0}", 0.05),
        ("BZPOPMIN", "{0}", 0.05),
        ("BLMPOP", 0.05, 1, "{0}", "LEFT"),
        ("BZMPOP", 0.05, 1, "{0}", "MIN"),
        ("XREAD", "COUNT", 1, "BLOCK", 50, "STREAMS", "{0}", "$"),
        ("xread", b"block", 50, "streams", "{0}", "$"),
    ],
)
async def test_each_blocking_command_waits_its_time(
    client: NodeClient, key: str, words: tuple[Any, ...]
) -> None:
    """Every blocking command waits for its time limit, and then returns nothing."""
    begun = time.perf_counter()
    call = client.call(*(word.format(key) if isinstance(word, str) else word for word in words))
    assert await client.call("PING") == b"PONG"
    assert await call is None
    assert time.perf_counter() - begun > 0.049


async def test_reading_streams(client: NodeClient, key: str) -> None:
    """XREAD BLOCK and XREADGROUP BLOCK wait for the next entry and return it."""
    await client.call("XGROUP", "CREATE", key, "group", "$", "MKSTREAM")
    plain = asyncio.ensure_future(client.call("XREAD", "BLOCK", 5000, "STREAMS", key, "$"))
    words = ("XREADGROUP", "GROUP", "group", "me", "BLOCK", 5000, "STREAMS", key, ">")
    grouped = asyncio.ensure_future(client.call(*words))
    await eventually(lambda: not plain.done())
    while not (plain.done() and grouped.done()):
        await client.call("XADD", key, "*", "field", "value")
        await asyncio.sleep(0.005)
    for reply in (await plain, await grouped):
        assert reply[key.encode()][0][1] == [b"field", b"value"]
    await client.call("DEL", key)


async def test_a_cancelled_waiter_takes_nothing(client: NodeClient, server: Valkey, key: str) -> None:
    """A cancelled waiter is removed from the server, and takes no element."""
    waiting = asyncio.ensure_future(client.call("BLPOP", key, 0))
    await eventually(lambda: _blocked(server) == 1)
    waiting.cancel()
    await eventually(lambda: _blocked(server) == 0)
    await client.call("RPUSH", key, "element")
    assert await client.call("BLPOP", key, 1) == [key.encode(), b"element"]
    assert client.link.connection_count == 1


@pytest.mark.parametrize("limit", ["soon", -1, "nan", "inf"])
async def test_a_time_limit_must_be_a_number(client: NodeClient, key: str, limit: Any) -> None:
    """A blocking command whose time limit is not a number >= 0 is refused."""
    with pytest.raises(UnsupportedCommand, match="time limit"):
        client.call("BLPOP", key, limit)


async def test_a_hung_server_is_detected_after_the_time_limit() -> None:
    """A blocking call to a frozen server fails after its own time limit plus one timeout."""
    with embedded.valkey() as server:
        async with node_client(server.url) as client:
            # Two connections, so that none has to be opened while the server does not answer.
            await asyncio.gather(*(client.call("BLPOP", "x", 0.01) for _ in range(2)))
            server.pause()
            begun = time.perf_counter()
            calls = [client.call("BLPOP", "x", 0.2), client.call("XREAD", "BLOCK", 200, "STREAMS", "x", "$")]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert 0.2 < time.perf_counter() - begun < 0.2 + 10  # a timeout here is 2 s
            assert [type(error) for error in errors] == [OutcomeUnknown, Unavailable]
            server.resume()


async def test_waiters_fail_when_the_server_dies() -> None:
    """A waiter without a time limit fails when its server is killed."""
    with embedded.valkey() as server:
        async with node_client(server.url) as client:
            waiting = asyncio.ensure_future(client.call("BLPOP", "x", 0))
            await eventually(lambda: _blocked(server) == 1)
            server.kill()
            with pytest.raises(OutcomeUnknown):
                await asyncio.wait_for(waiting, 1)
            await eventually(lambda: not client.up)
            with pytest.raises((Unavailable, CannotConnect)):
                await client.call("BLPOP", "x", 0)


async def test_closing_ends_the_waiters(server: Valkey, key: str) -> None:
    """Closing a client ends its waiters, even those that are still opening their connection."""
    async with node_client(server.url) as client:
        waiting = asyncio.ensure_future(client.call("BLPOP", key, 0))
        await eventually(lambda: _blocked(server) == 1)
        opening = asyncio.ensure_future(client.call("BLPOP", key, 0))
        await asyncio.sleep(0)
    with pytest.raises(OutcomeUnknown):
        await waiting
    with pytest.raises(StoreClosed):
        await opening
    await eventually(lambda: _blocked(server) == 0)
