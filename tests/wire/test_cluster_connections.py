"""Opening and closing a cluster's client: what may go wrong, and that nothing is left open."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster as Servers
from ephemera.errors import CannotConnect, StoreClosed, Unavailable
from ephemera.wire import key_slot
from tests.wire.clients import cluster_client
from tests.wire.conditions import answered, eventually
from tests.wire.scripted_server import Peer, scripted_server


async def test_a_cluster_without_slots() -> None:
    """A node without slots is an error that says so; once it has slots, a client that waits for it works."""
    with embedded.valkey(config={"cluster-enabled": "yes"}) as node:
        url = f"redis+cluster://127.0.0.1:{node.port}"
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


async def test_half_a_cluster_is_not_up() -> None:
    """Slots without a master are unavailable and make the cluster incomplete; the others are served."""
    config = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    served, unserved = "a", "b"
    with embedded.valkey(config=config) as node:
        node.ask("CLUSTER", "ADDSLOTS", key_slot(served))
        async with cluster_client(f"redis+cluster://127.0.0.1:{node.port}") as client:
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
        async with cluster_client(cluster.url.replace("//", "//ann:wrong@")):
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
    """A command redirected to a node that cannot be reached fails as not executed, also on closing."""

    async def stray(peer: Peer) -> None:
        await peer.handshake(mode="cluster")
        while True:
            words = await peer.command()
            if words[0] == b"CLUSTER":
                await peer.send(b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n_\r\n:%d\r\n" % port)
            elif words[1:] == [b"refused"]:
                await peer.send(b"-MOVED 1 127.0.0.1:1\r\n")
            elif words[1:] == [b"silent"]:
                await peer.send(b"-ASK 1 %s\r\n" % silent.encode())
            else:
                await peer.send(b"+PONG\r\n")

    async def ignore(peer: Peer) -> None:
        await peer.wait_for_disconnect()

    async with scripted_server(ignore) as silent, scripted_server(stray) as address:
        port = int(address.rpartition(":")[2])
        async with cluster_client(f"redis+cluster://{address}?connect_timeout=1") as client:
            with pytest.raises(Unavailable, match="refused"):
                await client.call("GET", "refused")
            pending = client.call("GET", "silent")
            await asyncio.sleep(0.05)
        with pytest.raises(Unavailable):
            await asyncio.wait_for(pending, 60)
    assert len(asyncio.all_tasks()) == 1


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
