"""From a URL to a client of the right kind."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ephemera.wire import url as urls
from ephemera.wire.client import followed, standalone
from ephemera.wire.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ephemera.wire.client import Client


@asynccontextmanager
async def open_client(url: str, *, required: bool = True) -> AsyncIterator[Client]:
    """A connected client for a URL; with `required=False` the server may be absent at first."""
    target = urls.parse(url)
    client: Client
    if target.kind == "cluster":
        client = cluster = Cluster(target)
        await cluster.start(required=required)
    else:
        client = single = followed(target) if target.kind == "sentinel" else standalone(target)
        await single.start(required=required)
    try:
        yield client
    finally:
        await client.aclose()
