"""Commands that every connection starts with, and the nodes that reads go to."""

from __future__ import annotations

import pytest

from ephemera.embedded import Cluster, Valkey
from ephemera.errors import ServerError
from ephemera.wire import NodeClient, as_text
from tests.wire.clients import cluster_client, connection_of, node_client
from tests.wire.conditions import eventually

NO_TOUCH = ("CLIENT", "NO-TOUCH", "ON")


async def flags(client: NodeClient) -> str:
    """The flags of a client's connection; T stands for no-touch."""
    await eventually(lambda: client.up)
    info = as_text(await client.call("CLIENT", "INFO"))
    return next(word for word in info.split() if word.startswith("flags=")).removeprefix("flags=")


async def _lose(client: NodeClient) -> None:
    """End the client's connection, and wait until the client notices."""
    connection = connection_of(client)
    connection.abort("a test")
    await connection.lost


@pytest.mark.valkey("CLIENT NO-TOUCH came with Redis 7.2")
async def test_every_connection_starts_with_the_setup_commands(server: Valkey) -> None:
    """A setup command applies at once, and again after the connection was lost."""
    async with node_client(server.url) as client:
        assert "T" not in await flags(client)
        await client.add_setup(*NO_TOUCH)
        await client.add_setup(*NO_TOUCH)
        assert "T" in await flags(client)
        await _lose(client)
        assert "T" in await flags(client)


async def test_a_refused_setup_command_is_not_repeated(server: Valkey) -> None:
    """A refused command raises, and does not prevent the next connection."""
    async with node_client(server.url) as client:
        with pytest.raises(ServerError):
            await client.add_setup("CLIENT", "NO-SUCH-THING", "ON")
        await _lose(client)
        await eventually(lambda: client.up)


async def test_reads_go_to_masters_or_to_replicas(cluster: Cluster) -> None:
    """`read_nodes` are the masters, or a replica of each when the URL says so; of one server, itself."""
    masters, replicas = (
        {f"127.0.0.1:{node.port}" for node in part} for part in (cluster.nodes[:3], cluster.nodes[3:])
    )
    async with cluster_client(cluster.url) as client:
        assert {str(node.endpoint) for node in client.read_nodes()} == masters
    async with cluster_client(f"{cluster.url}?read_from=replicas") as client:
        assert {str(node.endpoint) for node in client.read_nodes()} == replicas
        assert {str(node.endpoint) for node in client.nodes()} == masters
