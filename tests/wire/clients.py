"""Clients of the kind a test expects, with access to their internals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ephemera.wire import ClusterClient, NodeClient, open_client
from ephemera.wire._connection import Connection
from tests import server_choice


@asynccontextmanager
async def node_client(url: str, *, required: bool = True) -> AsyncIterator[NodeClient]:
    """The client of one server, or of a Sentinel-watched one."""
    if url.startswith(tuple(server_choice.STANDING_IN)):
        pytest.skip("it is about the client of one server; tests/wire/test_cluster*.py are about a cluster's")
    async with open_client(url, required=required) as client:
        assert isinstance(client, NodeClient)
        yield client


@asynccontextmanager
async def cluster_client(url: str, *, required: bool = True) -> AsyncIterator[ClusterClient]:
    """The client of a cluster."""
    async with open_client(url, required=required) as client:
        assert isinstance(client, ClusterClient)
        yield client


def connection_of(client: NodeClient) -> Connection:
    """The multiplexed connection of a client that is up."""
    connection = client.link._connection
    assert connection is not None
    return connection
