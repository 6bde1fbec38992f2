"""Channels and tracking on a cluster: messages and invalidations arrive from every node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ephemera.embedded import Cluster as Servers
from ephemera.embedded import Valkey
from ephemera.errors import ServerError
from ephemera.wire import Invalidations, Message
from tests.wire.clients import cluster_client
from tests.wire.conditions import eventually
from tests.wire.scripted_server import Peer, scripted_server


async def test_a_message_published_on_any_node_arrives(cluster: Servers) -> None:
    """A message on a plain channel arrives, whichever node it is published on."""
    async with cluster_client(cluster.url) as client, client.subscribe("news") as messages:
        for node in cluster.nodes:
            node.ask("PUBLISH", "news", node.port)
        received = {int((await asyncio.wait_for(anext(messages), 60)).data) for _ in cluster.nodes}
        assert received == {node.port for node in cluster.nodes}
        assert await client.call("PUBLISH", "news", "ours") is not None
        assert await anext(messages) == Message(b"news", b"ours")


async def test_pattern_messages_arrive_from_every_node(cluster: Servers) -> None:
    """Messages for a pattern arrive from every node, too."""
    async with cluster_client(cluster.url) as client, client.subscribe("news:*", kind="pattern") as messages:
        for n in range(6):
            await client.call("PUBLISH", f"news:{n}", n)
        assert {(await anext(messages)).data for _ in range(6)} == {b"%d" % n for n in range(6)}


async def test_shard_channels_of_every_slot(cluster: Servers) -> None:
    """One subscription may have shard channels of many nodes; each is subscribed to at its own."""
    names = [f"shard:{n}" for n in range(20)]
    async with cluster_client(cluster.url) as client, client.subscribe(*names, kind="shard") as messages:
        for name in names:
            assert await client.call("SPUBLISH", name, name) == 1
        received = {(await anext(messages)).channel.decode() for _ in names}
        assert received == set(names)
        subscribed = [len(_shard_channels(node)) for node in cluster.nodes[:3]]
        assert sum(subscribed) == 20
        assert min(subscribed) > 0
    assert not any(_shard_channels(node) for node in cluster.nodes)


async def test_a_shard_channel_is_left_while_its_client_stays(cluster: Servers) -> None:
    """Who leaves a subscription is unsubscribed at its node at once; others of the channel stay."""
    async with cluster_client(cluster.url) as client:
        async with client.subscribe("shard:left", kind="shard") as staying:
            async with client.subscribe("shard:left", "shard:other", kind="shard"):
                assert sum(len(_shard_channels(node)) for node in cluster.nodes) == 2
            await eventually(lambda: sum(len(_shard_channels(node)) for node in cluster.nodes) == 1)
            assert await client.call("SPUBLISH", "shard:left", "x") == 1
            assert await anext(staying) == Message(b"shard:left", b"x")
        await eventually(lambda: not any(_shard_channels(node) for node in cluster.nodes))


async def test_a_shard_channel_that_its_node_dropped_is_joined_again() -> None:
    """A node that ends a subscription, as when a slot leaves it, is followed by a mark and new messages."""
    joined: list[bytes] = []

    async def conversation(peer: Peer) -> None:
        await peer.handshake(mode="cluster")
        while True:
            words = await peer.command()
            if words[0] == b"CLUSTER":
                await peer.send_slot_map()
            elif words[0] == b"SSUBSCRIBE":
                joined.append(words[1])
                await peer.send(b">3\r\n+ssubscribe\r\n$5\r\nshard\r\n:1\r\n")
                if len(joined) == 1:
                    await peer.send(b">3\r\n+sunsubscribe\r\n$5\r\nshard\r\n:0\r\n")
                else:
                    await peer.send(b">3\r\n+smessage\r\n$5\r\nshard\r\n$5\r\nhello\r\n")
            elif words[0] == b"SUNSUBSCRIBE":
                await peer.send(b">3\r\n+sunsubscribe\r\n$5\r\nshard\r\n:0\r\n")
            else:
                await peer.send(b"+PONG\r\n")

    async with (
        scripted_server(conversation) as address,
        cluster_client(f"redis+cluster://{address}") as client,
        client.subscribe("shard", kind="shard") as messages,
    ):
        assert (await asyncio.wait_for(anext(messages), 20)).lost
        assert await anext(messages) == Message(b"shard", b"hello")
    assert joined == [b"shard", b"shard"]


def _shard_channels(node: Valkey) -> list[Any]:
    channels = node.ask("PUBSUB", "SHARDCHANNELS")
    assert isinstance(channels, list)
    return channels


def _names(received: list[Invalidations]) -> set[str]:
    return {key.decode() for keys in received for key in keys or ()}


async def test_invalidations_come_from_every_node(cluster: Servers) -> None:
    """Invalidations arrive from all nodes, for keys that were read and for keys with a prefix."""
    keys = {f"tracked:{n}" for n in range(30)}
    async with (
        cluster_client(cluster.url) as reading,
        cluster_client(cluster.url) as watching,
        cluster_client(cluster.url) as other,
    ):
        read: list[Invalidations] = []
        watched: list[Invalidations] = []
        await reading.track(read.append)
        await watching.track(watched.append, prefixes=["tracked:"])
        await asyncio.gather(*(reading.call("GET", key) for key in keys))
        await asyncio.gather(*(other.call("SET", key, "1") for key in keys))
        await eventually(lambda: _names(read) == _names(watched) == keys)
        await asyncio.gather(*(other.call("DEL", key) for key in keys))


async def test_refused_tracking_is_dropped_on_every_node(cluster: Servers) -> None:
    """Tracking that a node refuses is an error, and no node keeps it for its next connection."""
    async with cluster_client(cluster.url) as client:
        await client.track(lambda _: None, prefixes=["a"])
        with pytest.raises(ServerError, match="BCAST"):
            await client.track(lambda _: None)
        assert [len(node.link.setup) for node in client.nodes()] == [1, 1, 1]
        assert len(client._nodes._trackers) == 1
