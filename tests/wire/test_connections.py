"""From a URL to a connection: databases, sockets, names, users; and closing it."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey, free_ports
from ephemera.embedded import Valkey as ServerProcess
from ephemera.errors import CannotConnect, ConnectionFailed, ServerError, StoreClosed
from ephemera.wire import NodeClient
from tests.wire.clients import connection_of, node_client
from tests.wire.conditions import answered, eventually
from tests.wire.debian_redis import BINARY, DebianRedis
from tests.wire.scripted_server import Peer, scripted_server


async def test_databases_are_separate(server: Valkey, key: str) -> None:
    """The number in the URL is the database of all calls, even after a reconnection and for blocking ones."""
    async with node_client(f"{server.url}/3") as third, node_client(server.url) as zeroth:
        await third.call("RPUSH", key, "here")
        assert await zeroth.call("EXISTS", key) == 0
        connection_of(third).abort("dropped by the test")
        await eventually(lambda: third.link.connection_count == 2)
        assert await third.call("LLEN", key) == 1
        assert await third.call("BLPOP", key, 1) == [key.encode(), b"here"]


@pytest.mark.on_both_loops
async def test_unix_sockets() -> None:
    """A server on a unix socket is reached by its path, with its password and database."""
    with embedded.valkey(unix=True, password="päss/word?@") as server:
        async with node_client(f"{server.url}?db=2") as client:
            await client.call("SET", "x", "1")
            assert b" db=2 " in await client.call("CLIENT", "INFO")
            async with client.subscribe("news") as messages:
                await client.call("PUBLISH", "news", "hello")
                assert (await anext(messages)).data == b"hello"


async def test_the_client_has_a_name(server: Valkey) -> None:
    """Connections are named, `ephemera` or as the URL says, so that an operator can distinguish them."""
    async with node_client(server.url) as usual, node_client(f"{server.url}?client_name=web-1") as named:
        assert await usual.call("CLIENT", "GETNAME") == b"ephemera"
        assert await named.call("CLIENT", "GETNAME") == b"web-1"
        async with named.subscribe("news"):
            assert " name=web-1 " in str(server.ask("CLIENT", "LIST", "TYPE", "pubsub"))


async def test_acl_users() -> None:
    """Calls run as the URL's user; what it may not do is a server error that names the command."""
    with embedded.valkey() as server:
        server.ask("ACL", "SETUSER", "ann", "on", ">p@ss", "~ann:*", "+@all")
        server.ask("ACL", "SETUSER", "open", "on", "nopass", "~*", "+@all")
        async with node_client(f"redis://ann:p%40ss@127.0.0.1:{server.port}") as client:
            assert await client.call("ACL", "WHOAMI") == b"ann"
            assert await client.call("SET", "ann:1", "x") == b"OK"
            with pytest.raises(ServerError, match="NOPERM") as caught:
                await client.call("SET", "bob:1", "x")
            assert (caught.value.command, caught.value.key) == ("SET", "bob:1")
        async with node_client(f"redis://open@127.0.0.1:{server.port}") as client:
            assert await client.call("ACL", "WHOAMI") == b"open"


async def test_a_switch_before_the_subscription_to_a_sentinel_is_noticed() -> None:
    """A master that is replaced before the client subscribes to its Sentinels is left all the same."""
    left = asyncio.Event()
    named: list[str] = []

    async def former(peer: Peer) -> None:
        await peer.handshake()
        try:
            while await peer.command():
                await peer.send(b"+former\r\n")
        finally:
            left.set()

    async def present(peer: Peer) -> None:
        await peer.handshake()
        while await peer.command():
            await peer.send(b"+present\r\n")

    async def sentinel(peer: Peer) -> None:
        await peer.handshake(mode="sentinel")
        while (await peer.command())[0] != b"SENTINEL":
            await peer.send(b"+OK\r\n")
        named.append(new if named else old)
        host, port = named[-1].split(":")
        await peer.send(f"*2\r\n+{host}\r\n+{port}\r\n".encode())
        await peer.wait_for_disconnect()

    async with (
        scripted_server(former) as old,
        scripted_server(present) as new,
        scripted_server(sentinel) as address,
        node_client(f"redis+sentinel://{address}/main") as client,
    ):
        await asyncio.wait_for(left.wait(), 20)
        await answered(lambda: client.call("PING"))
        assert await client.call("GET", "x") == b"present"


async def test_sentinels_have_their_own_password(server: Valkey) -> None:
    """The Sentinels' user and password are separate from the master's."""
    settings = [
        f"sentinel monitor main 127.0.0.1 {server.port} 1",
        f"sentinel auth-pass main {server.password}",
    ]
    with ServerProcess(free_ports(1)[0], settings, password="theirs", sentinel=True) as sentinel:
        url = f"redis+sentinel://:{server.password}@127.0.0.1:{sentinel.port}/main/2?sentinel_password"
        async with node_client(f"{url}=theirs") as client:
            assert b" db=2 " in await client.call("CLIENT", "INFO")
        with pytest.raises(CannotConnect, match="the user name or password is wrong"):
            async with node_client(f"{url}=wrong"):
                pass


@pytest.mark.skipif(not BINARY.exists(), reason=f"{BINARY} is not installed here")
async def test_redis_7_serves_as_well() -> None:
    """Debian's Redis 7 works as Valkey does: calls, scripts, blocking commands, channels, tracking."""
    with DebianRedis() as redis:
        async with node_client(redis.url) as client:
            received: list[object] = []
            await client.track(received.append)
            assert await client.call("HSET", "h", "f", "v") == 1
            assert await client.call("HGETALL", "h") == {b"f": b"v"}
            assert await client.call("EVAL", "return redis.call('HLEN', KEYS[1])", 1, "h") == 1
            assert await client.call("BLPOP", "l", 0.01) is None
            async with client.subscribe("s", kind="shard") as messages:
                await client.call("SPUBLISH", "s", "hello")
                assert (await anext(messages)).data == b"hello"
            await client.call("DEL", "h")
            await eventually(lambda: received)
            assert all(keys == [b"h"] for keys in received)  # from each connection that has read it


async def test_calls_after_closing(server: Valkey) -> None:
    """A closed client refuses every call, and closing it twice does nothing."""
    async with node_client(server.url) as client:
        await client.call("PING")
    for words in (("GET", "x"), ("PING",), ("BLPOP", "x", 1), ("get", "x")):
        with pytest.raises(StoreClosed, match="open a new one"):
            await client.call(*words)
    assert not client.up
    await client.aclose()


@pytest.mark.parametrize("limit", [1000, 10])
async def test_closing_waits_for_what_is_in_flight(server: Valkey, key: str, limit: int) -> None:
    """Calls made before closing get their replies, even those that were waiting at the limit."""
    async with node_client(f"{server.url}?max_in_flight={limit}") as client:
        calls = [client.call("INCR", key) for _ in range(100)]
    assert await asyncio.gather(*calls) == list(range(1, 101))
    async with node_client(server.url) as client:
        await client.call("DEL", key)


async def test_closing_waits_one_timeout_at_most() -> None:
    """A server that no longer answers delays closing by one timeout; its callers get an error."""
    with embedded.valkey() as server:
        loop = asyncio.get_running_loop()
        async with node_client(server.url) as client:
            server.pause()
            call = client.call("INCR", "x")
            large = client.call("SET", "y", b"x" * 20_000_000)
            begun = loop.time()
        assert loop.time() - begun < 5
        for error in await asyncio.gather(call, large, return_exceptions=True):
            assert isinstance(error, ConnectionFailed)
        server.resume()


async def test_cancelled_while_closing() -> None:
    """A cancelled close still closes: no connection and no task stays."""
    with embedded.valkey() as server:
        async with node_client(server.url) as client:
            server.pause()
            call = client.call("GET", "x")
            closing = asyncio.create_task(client.aclose())
            await asyncio.sleep(0.05)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            with pytest.raises(ConnectionFailed):
                await asyncio.wait_for(call, 0.1)
            assert len(asyncio.all_tasks()) == 1
        server.resume()


async def test_cancelled_while_connecting(server: Valkey) -> None:
    """A caller cancelled at any moment of connecting leaves no task and no connection behind."""

    async def connect() -> None:
        async with node_client(server.url) as client:
            await client.call("PING")

    for moments in range(25):
        connecting = asyncio.create_task(connect())
        for _ in range(moments):
            await asyncio.sleep(0.0002)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        assert len(asyncio.all_tasks()) == 1
    await eventually(lambda: str(server.ask("CLIENT", "LIST")).count("\n") <= 1)


async def test_lost_in_the_middle_of_a_handshake() -> None:
    """A server that repeatedly closes the connection during the handshake is retried without end."""
    refusals = 5

    async def moody(peer: Peer) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            await peer.command()
            await peer.send(b"%3\r\n+server\r\n")
            return
        await peer.handshake()
        await peer.wait_for_disconnect()

    async with scripted_server(moody) as address, node_client(f"redis://{address}", required=False) as client:
        await eventually(lambda: client.up)
        assert refusals == 0


async def test_closing_while_reconnecting(client: NodeClient, server: Valkey) -> None:
    """A client closed in the middle of reconnecting does not come up again afterwards."""
    async with node_client(server.url) as reconnecting:
        for moments in range(6):
            if reconnecting.up:
                connection_of(reconnecting).abort("dropped by the test")
            for _ in range(moments):
                await asyncio.sleep(0.0003)
    assert not reconnecting.up
    assert len(asyncio.all_tasks()) == 1 + 1  # this one, and the keeper of the other client
