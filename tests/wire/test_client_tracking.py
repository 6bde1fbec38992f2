"""Client tracking: who keeps copies of keys is told when they change, and when that cannot be known."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import ServerError
from ephemera.wire import Invalidations, NodeClient
from tests.wire.clients import connection_of, node_client
from tests.wire.conditions import eventually


async def test_a_key_that_was_read_is_watched(client: NodeClient, server: Valkey, key: str) -> None:
    """A key read through the client is told once it changes; a key not read is not."""
    heard: list[Invalidations] = []
    await client.track(heard.append)
    await client.call("GET", key)
    server.ask("SET", f"{key}:other", "1")
    server.ask("SET", key, "1")
    await eventually(lambda: heard)
    assert heard == [[key.encode()]]


async def test_prefixes_are_watched_without_reading(client: NodeClient, server: Valkey, key: str) -> None:
    """In prefix mode every change of a key with the prefix is told, and of no other."""
    heard: list[Invalidations] = []
    await client.track(heard.append, prefixes=[f"{key}:a", f"{key}:b"])
    for name in ("a1", "c1", "b1"):
        server.ask("SET", f"{key}:{name}", "1")
    await eventually(lambda: len(heard) == 2)
    assert heard == [[f"{key}:a1".encode()], [f"{key}:b1".encode()]]


async def test_all_keys_may_have_changed(client: NodeClient) -> None:
    """FLUSHALL is told as None: everything may have changed."""
    heard: list[Invalidations] = []
    await client.track(heard.append)
    await client.call("FLUSHALL")
    await eventually(lambda: heard)
    assert heard == [None]


async def test_a_lost_connection_is_told_and_watching_resumes(
    client: NodeClient, server: Valkey, key: str
) -> None:
    """None is told when the connection is lost; on the next one keys are watched again."""
    heard: list[Invalidations] = []
    await client.track(heard.append)
    await client.call("GET", key)
    connection_of(client).abort("dropped by the test")
    await eventually(lambda: heard)
    assert heard == [None]
    await eventually(lambda: client.up)
    await client.call("GET", key)
    server.ask("SET", key, "1")
    await eventually(lambda: len(heard) == 2)
    assert heard[1] == [key.encode()]


async def test_several_listeners_are_all_told(client: NodeClient, server: Valkey, key: str) -> None:
    """Listeners with the same wishes share the server's attention; all of them are told."""
    one: list[Invalidations] = []
    two: list[Invalidations] = []
    await client.track(one.append, prefixes=[key])
    await client.track(two.append, prefixes=[key])
    server.ask("SET", f"{key}:1", "1")
    await eventually(lambda: one and two)
    assert one == two == [[f"{key}:1".encode()]]


@pytest.mark.standalone(
    "it is about the client of one server; tests/wire/test_cluster*.py are about a cluster's"
)
@pytest.mark.parametrize("dropped", [False, True])
async def test_a_listener_that_fails_harms_nobody(server: Valkey, key: str, dropped: bool) -> None:
    """A listener's exception is reported to the loop; other listeners, callers and reconnection go on."""
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
    heard: list[Invalidations] = []
    mistake = RuntimeError("the listener's own mistake")

    def fail(_: Invalidations) -> None:
        raise mistake

    async with node_client(server.url) as client:
        await client.track(fail)
        await client.track(heard.append)
        await client.call("GET", key)
        if dropped:
            connection_of(client).abort("dropped by the test")
        else:
            server.ask("SET", key, "1")
        await eventually(lambda: heard and client.up)
        assert reported == [mistake]
        assert await client.call("PING") == b"PONG"


async def test_a_refused_wish_is_forgotten(client: NodeClient, server: Valkey, key: str) -> None:
    """A wish the server refuses is an error of `track`, and does not stand in the way of reconnecting."""
    heard: list[Invalidations] = []
    await client.track(heard.append, prefixes=[key])
    with pytest.raises(ServerError, match="overlaps"):
        await client.track(heard.append, prefixes=[f"{key}:sub"])
    with pytest.raises(ServerError, match="BCAST"):
        await client.track(heard.append)
    connection_of(client).abort("dropped by the test")
    await eventually(lambda: client.link.connects == 2 and client.up)
    server.ask("SET", f"{key}:sub:1", "1")
    await eventually(lambda: len(heard) == 2)
    assert heard == [None, [f"{key}:sub:1".encode()]]


async def test_watching_starts_with_the_server() -> None:
    """A listener that was registered while the server was away is told from its first connection on."""
    heard: list[Invalidations] = []
    with embedded.valkey() as server:
        server.kill()
        async with node_client(server.url, required=False) as client:
            await client.track(heard.append)
            await asyncio.to_thread(server.restart)
            await eventually(lambda: client.up)
            await client.call("GET", "x")
            server.ask("SET", "x", "1")
            await eventually(lambda: heard)
    assert heard == [[b"x"]]
