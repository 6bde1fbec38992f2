"""`/metrics`: the metrics in the format that Prometheus asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ephemera.embedded import Valkey
from ephemera.keyspace import connect
from ephemera.operations.metrics import StoreMetrics
from ephemera.web import MetricsEndpoint
from tests.operations.metrics_fixtures import GREETING, catalogue, parsed
from tests.untyped import untyped

_OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
async def client(server: Valkey, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the endpoint of a store with some activity."""
    async with connect(server.url, catalogue) as store:
        await store[GREETING].put("hello", user_id=key)
        metrics = StoreMetrics(store)
        await metrics.sample()
        endpoint: Any = MetricsEndpoint(lambda _: metrics)
        transport = httpx.ASGITransport(endpoint)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as made:
            yield made


async def test_the_default_is_prometheus_text(client: httpx.AsyncClient) -> None:
    """Without an Accept header the response is the text format, with `no-store`."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert answer.headers["cache-control"] == "no-store"
    shown = parsed(answer.text)
    assert shown["ephemera_keyspace_writes_total", "keyspace=greeting:{user_id}"] == 1
    assert "# HELP ephemera_keyspace_writes_total Writes and deletions." in answer.text


async def test_openmetrics_is_served_on_request(client: httpx.AsyncClient) -> None:
    """The response to Prometheus's Accept header passes the strict OpenMetrics parser."""
    answer = await client.get("/metrics", headers={"accept": _OPEN_METRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = untyped(text_string_to_metric_families)(answer.text)
    names = {family.name for family in families}
    assert "ephemera_call_duration_seconds" in names
    assert "ephemera_server_memory_bytes" in names


async def test_head_and_other_methods(client: httpx.AsyncClient) -> None:
    """HEAD has only headers; other methods are refused."""
    head = await client.head("/metrics")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 1000
    posted = await client.post("/metrics")
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
