"""Client tracking: listeners are notified of keys that change, and when any may have."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import ServerError
from ephemera.wire import Invalidations, NodeClient
from tests.wire.clients import connection_of, node_client
from tests.wire.conditions import eventually


async def test_a_key_that_was_read_is_tracked(client: NodeClient, server: Valkey, key: str) -> None:
    """A change of a key that the client read is reported; that of another key is not."""
    received: list[Invalidations] = []
    await client.track(received.append)
    await client.call("GET", key)
    server.ask("SET", f"{key}:other", "1")
    server.ask("SET", key, "1")
    await eventually(lambda: received)
    assert received == [[key.encode()]]


async def test_prefixes_are_tracked_without_reading(client: NodeClient, server: Valkey, key: str) -> None:
    """In prefix mode every change of a key with the prefix is reported, and no other."""
    received: list[Invalidations] = []
    await client.track(received.append, prefixes=[f"{key}:a", f"{key}:b"])
    for name in ("a1", "c1", "b1"):
        server.ask("SET", f"{key}:{name}", "1")
    await eventually(lambda: len(received) == 2)
    assert received == [[f"{key}:a1".encode()], [f"{key}:b1".encode()]]


async def test_all_keys_may_have_changed(client: NodeClient) -> None:
    """FLUSHALL is reported as None: any key may have changed."""
    received: list[Invalidations] = []
    await client.track(received.append)
    await client.call("FLUSHALL")
    await eventually(lambda: received)
    assert received == [None]


async def test_a_lost_connection_is_reported_and_tracking_resumes(
    client: NodeClient, server: Valkey, key: str
) -> None:
    """A lost connection is reported as None; the next one tracks keys again."""
    received: list[Invalidations] = []
    await client.track(received.append)
    await client.call("GET", key)
    connection_of(client).abort("dropped by the test")
    await eventually(lambda: received)
    assert received == [None]
    await eventually(lambda: client.up)
    await client.call("GET", key)
    server.ask("SET", key, "1")
    await eventually(lambda: len(received) == 2)
    assert received[1] == [key.encode()]


async def test_all_listeners_are_notified(client: NodeClient, server: Valkey, key: str) -> None:
    """Listeners with the same prefixes share one tracking command; all of them are notified."""
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
async def test_a_failing_listener_affects_no_other(server: Valkey, key: str, dropped: bool) -> None:
    """A listener's exception is reported to the loop; other listeners, callers and reconnection go on."""
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
    received: list[Invalidations] = []
    mistake = RuntimeError("the listener's own mistake")

    def fail(_: Invalidations) -> None:
        raise mistake

    async with node_client(server.url) as client:
        await client.track(fail)
        await client.track(received.append)
        await client.call("GET", key)
        if dropped:
            connection_of(client).abort("dropped by the test")
        else:
            server.ask("SET", key, "1")
        await eventually(lambda: received and client.up)
        assert reported == [mistake]
        assert await client.call("PING") == b"PONG"


async def test_refused_tracking_is_dropped(client: NodeClient, server: Valkey, key: str) -> None:
    """Tracking that the server refuses is an error of `track`, and does not prevent reconnecting."""
    received: list[Invalidations] = []
    await client.track(received.append, prefixes=[key])
    with pytest.raises(ServerError, match="overlaps"):
        await client.track(received.append, prefixes=[f"{key}:sub"])
    with pytest.raises(ServerError, match="BCAST"):
        await client.track(received.append)
    connection_of(client).abort("dropped by the test")
    await eventually(lambda: client.link.connects == 2 and client.up)
    server.ask("SET", f"{key}:sub:1", "1")
    await eventually(lambda: len(received) == 2)
    assert received == [None, [f"{key}:sub:1".encode()]]


async def test_tracking_starts_when_the_server_comes_up() -> None:
    """A listener registered while the server is down is notified from the first connection on."""
    received: list[Invalidations] = []
    with embedded.valkey() as server:
        server.kill()
        async with node_client(server.url, required=False) as client:
            await client.track(received.append)
            await asyncio.to_thread(server.restart)
            await eventually(lambda: client.up)
            await client.call("GET", "x")
            server.ask("SET", "x", "1")
            await eventually(lambda: received)
    assert received == [[b"x"]]
