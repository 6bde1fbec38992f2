"""`/healthz`: one status for load balancers, and details for operators."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from ephemera import embedded
from ephemera.keyspace import Store, connect
from ephemera.web import HealthEndpoint
from tests.operations.test_health import news


def client_of(store: Store, **options: Any) -> httpx.AsyncClient:
    """A client of the endpoint."""
    endpoint: Any = HealthEndpoint(lambda _: store, **options)
    return httpx.AsyncClient(transport=httpx.ASGITransport(endpoint), base_url="http://service")


async def test_the_status_follows_the_servers() -> None:
    """200 while the servers of both roles answer, 503 while one does not."""
    cache = {"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"}
    with embedded.valkey(config=cache) as first, embedded.valkey(config={"appendonly": "yes"}) as second:
        async with connect(first.url, news, queue_url=second.url) as store:
            async with client_of(store) as client:
                well = await client.get("/healthz")
            assert (well.status_code, well.json()["status"]) == (200, "ok"), well.text
            assert len(well.json()["servers"]) == 2
            assert well.headers["cache-control"] == "no-store"
            second.kill()
            async with client_of(store, details=False) as client:
                down = await client.get("/healthz")
                assert (down.status_code, down.json()) == (503, {"status": "problem"})
                head = await client.head("/healthz")
                assert (head.status_code, head.content) == (503, b"")


async def test_concurrent_requests_share_one_check() -> None:
    """A hundred concurrent requests cost the server one INFO."""
    with embedded.valkey() as server:
        async with connect(server.url, news) as store, client_of(store) as client:
            answers = await asyncio.gather(*(client.get("/healthz") for _ in range(100)))
            assert len({answer.text for answer in answers}) == 1
            said = (await store.call("INFO", "commandstats")).decode()
            assert "cmdstat_slowlog|len:calls=1," in said
