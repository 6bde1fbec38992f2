"""From a URL to a client of the right kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ephemera.wire._client import Client, SentinelClient, standalone
from ephemera.wire._cluster import ClusterClient
from ephemera.wire._url import parse_url


@asynccontextmanager
async def open_client(
    url: str, *, required: bool = True, modules: Collection[str] | None = None
) -> AsyncIterator[Client]:
    """A connected client for a URL; with `required=False` the server may be absent at first.

    A server that carries other modules than these is refused, whenever it is connected to.
    """
    target = parse_url(url)
    if modules is not None:
        target = replace(target, modules=frozenset(name.lower() for name in modules))
    client: Client
    if target.kind == "cluster":
        client = cluster = ClusterClient(target)
        await cluster.start(required=required)
    else:
        client = single = SentinelClient(target) if target.kind == "sentinel" else standalone(target)
        await single.start(required=required)
    try:
        yield client
    finally:
        await _to_its_end(client.aclose())


async def _to_its_end(closing: Coroutine[Any, Any, None]) -> None:
    """Close whatever comes: that takes some timeouts at most, so a cancellation waits for it."""
    task = asyncio.ensure_future(closing)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
