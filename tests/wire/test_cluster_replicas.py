"""Reads from replicas, where a URL asks for them."""

from __future__ import annotations

import asyncio
import re

from ephemera.embedded import Cluster as Servers
from ephemera.embedded import Valkey
from ephemera.wire import key_slot, pack_command
from tests.wire.clients import cluster_client
from tests.wire.conditions import eventually


def _served(node: Valkey, command: str) -> int:
    """How often a node has run a command."""
    found = re.search(f"cmdstat_{command}:calls=(\\d+)", str(node.ask("INFO", "commandstats")))
    return int(found[1]) if found else 0


async def _replicated(cluster: Servers, key: str) -> None:
    def has_it(node: Valkey) -> bool:
        return key in str(node.ask("CLUSTER", "GETKEYSINSLOT", key_slot(key), 10))

    await eventually(lambda: sum(map(has_it, cluster.nodes)) == 2)


async def test_reads_go_to_replicas_and_writes_to_masters(cluster: Servers) -> None:
    """With read_from=replicas reads are run by replicas, writes and scripts by masters."""
    masters, replicas = cluster.nodes[:3], cluster.nodes[3:]
    keys = [f"replica:{n}" for n in range(30)]
    async with cluster_client(f"{cluster.url}?read_from=replicas") as client:
        await asyncio.gather(*(client.call("SET", key, key) for key in keys))
        for key in keys:
            await _replicated(cluster, key)
        before = [_served(node, "get") for node in cluster.nodes]
        replies = await asyncio.gather(*(client.call("GET", key) for key in keys))
        assert replies == [key.encode() for key in keys]
        after = [_served(node, "get") for node in cluster.nodes]
        assert after[:3] == before[:3]
        assert sum(after[3:]) == sum(before[3:]) + 30
        assert sum(_served(node, "set") for node in masters) >= 30
        assert await client.call("EVAL", "return redis.call('GET', KEYS[1])", 1, keys[0]) == keys[0].encode()
        assert sum(_served(node, "eval") for node in replicas) == 0
        await asyncio.gather(*(client.call("DEL", key) for key in keys))


async def test_packed_reads_go_to_replicas_and_packed_writes_to_masters(cluster: Servers) -> None:
    """With read_from=replicas it makes no difference whether a command was packed before it is sent."""
    async with cluster_client(f"{cluster.url}?read_from=replicas") as client:
        assert await client.send(pack_command(("SET", "replica:packed", "1"))) == b"OK"
        await _replicated(cluster, "replica:packed")
        before = [_served(node, "get") for node in cluster.nodes]
        assert await client.send(pack_command(("GET", "replica:packed"))) == b"1"
        after = [_served(node, "get") for node in cluster.nodes]
        assert after[:3] == before[:3]
        assert sum(after[3:]) == sum(before[3:]) + 1
        await client.call("DEL", "replica:packed")


async def test_masters_serve_reads_by_default(cluster: Servers) -> None:
    """Without the option no connection is made to a replica."""
    async with cluster_client(cluster.url) as client:
        before = [_served(node, "get") for node in cluster.nodes[3:]]
        await asyncio.gather(*(client.call("GET", f"master:{n}") for n in range(30)))
        assert [_served(node, "get") for node in cluster.nodes[3:]] == before
        assert len(client._nodes._by_address) == 3


async def test_reading_the_slot_map_keeps_connections(cluster: Servers) -> None:
    """Reading the slot map again keeps the connections, to replicas as well."""
    async with cluster_client(f"{cluster.url}?read_from=replicas") as client:
        nodes = dict(client._nodes._by_address)
        for _ in range(6):
            await client._nodes._refresh()
        assert client._nodes._by_address == nodes
        assert len(nodes) == 6
        assert {node.link.connection_count for node in nodes.values()} == {1}
