"""Client tracking: listeners are notified of keys that change, and when any may have."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import ServerError
from ephemera.wire import Invalidations, NodeClient, open_client
from tests.wire.clients import cluster_client, connection_of, node_client
from tests.wire.conditions import answered, eventually


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
    assert not any(received)  # once for each connection that reads


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
    """A listener's exception goes to the loop; other listeners, callers and reconnection still work."""
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
    with pytest.raises(ServerError, match="BCAST"):
        await client.track(received.append)
    connection_of(client).abort("dropped by the test")
    await eventually(lambda: client.link.connection_count == 2 and client.up)
    server.ask("SET", f"{key}:sub:1", "1")
    await eventually(lambda: len(received) == 2)
    assert received == [None, [f"{key}:sub:1".encode()]]


async def test_a_listener_that_was_refused_is_not_notified_later() -> None:
    """A user who may not track gets an error, and nothing when the permission comes with another call."""
    with embedded.valkey() as server:
        server.ask("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-client|tracking")
        refused: list[Invalidations] = []
        received: list[Invalidations] = []
        async with open_client(f"redis://app:secret@127.0.0.1:{server.port}") as client:
            assert isinstance(client, NodeClient)
            with pytest.raises(ServerError, match="NOPERM"):
                await client.track(refused.append, prefixes=["a:"])
            server.ask("ACL", "SETUSER", "app", "+client|tracking")
            await client.track(received.append, prefixes=["a:"])
            server.ask("SET", "a:1", "1")
            await eventually(lambda: received)
            assert (received, refused) == ([[b"a:1"]], [])


async def test_overlapping_prefixes_are_tracked_once(client: NodeClient, server: Valkey, key: str) -> None:
    """A wider prefix replaces those it covers, even after a reconnection, and a narrower one adds nothing."""
    received: list[Invalidations] = []
    for prefixes in ([f"{key}:a", f"{key}:b"], [f"{key}:"], [f"{key}:c"]):
        await client.track(lambda _: None, prefixes=prefixes)
    await client.track(received.append, prefixes=[f"{key}:a"])
    server.ask("SET", f"{key}:d", "1")
    await eventually(lambda: len(received) == 1)
    connection_of(client).abort("dropped by the test")
    await eventually(lambda: client.link.connection_count == 2 and client.up)
    server.ask("SET", f"{key}:e", "1")
    await eventually(lambda: len(received) == 3)
    assert received == [[f"{key}:d".encode()], None, [f"{key}:e".encode()]]
    assert len([each for each in client.link.setup if "TRACKING" in each]) == 1


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


async def test_a_node_that_joins_a_cluster_is_tracked() -> None:
    """A listener of a cluster is notified of keys on a node that the client connects to later."""
    received: list[Invalidations] = []
    with embedded.valkey(config={"cluster-enabled": "yes"}) as node:
        url = f"redis+cluster://:{node.password}@127.0.0.1:{node.port}"
        node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        node.kill()
        async with cluster_client(url, required=False) as client:
            await client.track(received.append, prefixes=["seen:"])
            assert not client.nodes()
            await asyncio.to_thread(node.restart)
            await answered(lambda: client.call("SET", "unseen:1", "1"))
            await client.call("SET", "seen:1", "1")
            await eventually(lambda: [b"seen:1"] in received)
            assert [b"unseen:1"] not in received
