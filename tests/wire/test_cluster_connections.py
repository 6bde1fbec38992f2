"""Opening and closing a cluster's client: what may go wrong, and that nothing is left open."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster as Servers
from ephemera.embedded import Valkey
from ephemera.errors import CannotConnect, StoreClosed, Unavailable
from ephemera.wire import key_slot
from tests.wire.clients import cluster_client
from tests.wire.conditions import answered, eventually
from tests.wire.scripted_server import Peer, scripted_server


async def test_a_cluster_without_slots() -> None:
    """A node without slots is an error that says so; once it has slots, a client that waits for it works."""
    with embedded.valkey(config={"cluster-enabled": "yes"}) as node:
        url = f"redis+cluster://:{node.password}@127.0.0.1:{node.port}"
        with pytest.raises(CannotConnect, match=r"without slots.*--cluster create"):
            async with cluster_client(url):
                pass
        assert len(asyncio.all_tasks()) == 1
        async with cluster_client(url, required=False) as client:
            assert not client.up
            with pytest.raises(Unavailable):
                await client.call("GET", "x")
            node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            await eventually(lambda: client.up)


async def test_a_slot_map_that_is_missing_is_read_with_pauses() -> None:
    """While a cluster has no slots its map is read again ten times a second, not in a busy loop."""
    with embedded.valkey(config={"cluster-enabled": "yes"}) as node:
        url = f"redis+cluster://:{node.password}@127.0.0.1:{node.port}"
        async with cluster_client(url, required=False):
            before = _reads_of_the_map(node)
            took = await eventually(lambda: _reads_of_the_map(node) >= before + 4)
            assert took > 0.25  # at least three pauses


async def test_a_lost_node_makes_the_client_read_the_slot_map() -> None:
    """When the connection to a node is lost, the map is read again: its slots may have another master."""
    with embedded.valkey(config={"cluster-enabled": "yes"}) as node:
        node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await eventually(lambda: "cluster_state:ok" in str(node.ask("CLUSTER", "INFO")))
        async with cluster_client(f"redis+cluster://:{node.password}@127.0.0.1:{node.port}") as client:
            before = _reads_of_the_map(node)
            node.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await eventually(lambda: _reads_of_the_map(node) > before)
            await answered(lambda: client.call("SET", "x", "2"))


def _reads_of_the_map(node: Valkey) -> int:
    stats = str(node.ask("INFO", "commandstats"))
    return int(stats.partition("cmdstat_cluster|slots:calls=")[2].partition(",")[0] or 0)


async def test_half_a_cluster_is_not_up() -> None:
    """Slots without a master are unavailable and make the cluster incomplete; the others are served."""
    config = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    served, unserved = "a", "b"
    with embedded.valkey(config=config) as node:
        node.ask("CLUSTER", "ADDSLOTS", key_slot(served))
        async with cluster_client(f"redis+cluster://:{node.password}@127.0.0.1:{node.port}") as client:
            await answered(lambda: client.call("SET", served, "1"))
            assert not client.up
            with pytest.raises(Unavailable, match=f"no node serves slot {key_slot(unserved)}"):
                await client.call("SET", unserved, "1")
            with pytest.raises(Unavailable, match="no node serves its slot"):
                async with client.subscribe(unserved, kind="shard"):
                    pass


async def test_a_user_without_permission_for_the_slot_map() -> None:
    """For a user without CLUSTER SLOTS the error says what to allow, and no connection stays open."""
    with embedded.valkey(config={"cluster-enabled": "yes"}) as node:
        node.ask("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all", "-cluster")
        with pytest.raises(CannotConnect, match="Allow the user CLUSTER SLOTS by ACL"):
            async with cluster_client(f"redis+cluster://ann:pw@127.0.0.1:{node.port}"):
                pass
        assert len(asyncio.all_tasks()) == 1


async def test_the_same_problem_is_reported_once(cluster: Servers) -> None:
    """A problem that all nodes share, such as the password, is reported once, with its own advice."""
    with pytest.raises(CannotConnect) as caught:
        async with cluster_client(f"redis+cluster://ann:wrong@{cluster.url.rpartition('@')[2]}"):
            pass
    assert str(caught.value).count("password is wrong") == 1
    assert "ACL LIST" in caught.value.advice


async def test_cancelled_while_connecting(cluster: Servers) -> None:
    """A caller cancelled at any moment of connecting leaves no task behind."""

    async def connect() -> None:
        async with cluster_client(cluster.url) as client:
            await client.call("PING")

    for moments in range(20):
        connecting = asyncio.create_task(connect())
        await asyncio.sleep(moments * 0.0007)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        assert len(asyncio.all_tasks()) == 1


async def test_closing_while_the_slot_map_is_read(cluster: Servers) -> None:
    """A client closed while it reads the slot map leaves no task, and refuses calls."""
    for moments in range(10):
        async with cluster_client(f"{cluster.url}?read_from=replicas") as client:
            client._nodes.refresh_soon()
            await asyncio.sleep(moments * 0.0003)
        assert len(asyncio.all_tasks()) == 1
        for words in (("GET", "x"), ("PING",), ("BLPOP", "x", 1)):
            with pytest.raises(StoreClosed):
                await client.call(*words)


async def test_a_redirection_to_an_unreachable_node() -> None:
    """A command redirected to a node that cannot be reached fails as not executed, including on closing."""

    async def stray(peer: Peer) -> None:
        await peer.handshake(mode="cluster")
        while True:
            words = await peer.command()
            if words[0] == b"CLUSTER":
                await peer.send_slot_map()
            elif words[1:] == [b"refused"]:
                await peer.send(b"-MOVED 1 127.0.0.1:1\r\n")
            elif words[1:] == [b"silent"]:
                await peer.send(b"-ASK 1 %s\r\n" % silent.encode())
            else:
                await peer.send(b"+PONG\r\n")

    async def ignore(peer: Peer) -> None:
        await peer.wait_for_disconnect()

    async with scripted_server(ignore) as silent, scripted_server(stray) as address:
        async with cluster_client(f"redis+cluster://{address}?connect_timeout=1") as client:
            with pytest.raises(Unavailable, match="refused"):
                await client.call("GET", "refused")
            pending = client.call("GET", "silent")
            await asyncio.sleep(0.05)
        with pytest.raises(Unavailable):
            await asyncio.wait_for(pending, 60)
    assert len(asyncio.all_tasks()) == 1


async def test_closing_waits_for_a_command_that_is_to_be_retried() -> None:
    """A command whose slot is moving when the client is closed is retried, and its caller gets the reply."""
    refused = asyncio.Event()

    async def moving(peer: Peer) -> None:
        await peer.handshake(mode="cluster")
        while True:
            match (await peer.command())[0]:
                case b"CLUSTER":
                    await peer.send_slot_map()
                case b"GET" if refused.is_set():
                    await peer.send(b"+moved\r\n")
                case b"GET":
                    refused.set()
                    await peer.send(b"-TRYAGAIN its slot is moving\r\n")
                case _:
                    await peer.send(b"+PONG\r\n")

    async with scripted_server(moving) as address:
        async with cluster_client(f"redis+cluster://{address}") as client:
            pending = client.call("GET", "key")
            await eventually(lambda: refused.is_set() and not client.nodes()[0].link.in_flight)
        assert await asyncio.wait_for(pending, 60) == b"moved"


@pytest.mark.parametrize(
    "reply",
    [
        b"+OK\r\n",
        b"_\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n*2\r\n:0\r\n:16383\r\n",
        b"*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        b"*1\r\n*3\r\n:-2\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n",
        b"*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\na\r\n,inf\r\n",
    ],
    ids=["text", "nothing", "a number", "no master", "too many slots", "slots below 0", "no port"],
)
async def test_a_malformed_slot_map(reply: bytes) -> None:
    """A malformed reply to CLUSTER SLOTS is a clean error that says so."""

    async def confuse(peer: Peer) -> None:
        await peer.handshake(mode="cluster")
        await peer.command()
        await peer.send(reply)
        await peer.wait_for_disconnect()

    async with scripted_server(confuse) as address:
        with pytest.raises(CannotConnect, match="its reply to CLUSTER SLOTS is malformed"):
            async with cluster_client(f"redis+cluster://{address}"):
                pytest.fail("it must not open")
