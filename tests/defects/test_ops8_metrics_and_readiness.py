"""OPS8: services had no metrics of requests or of the process, and `/readyz` did not name what is down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera_services.runtime import Secret, ServiceSettings, create_application
from tests.services.test_application import SERVICE, asking, router, shop

TOKEN = "a-token-for-prometheus-of-32-letters"


@pytest.fixture
def queue() -> Iterator[Valkey]:
    """A server for role queue alone, that may die."""
    with embedded.valkey() as running:
        yield running


async def test_ops8_requests_and_the_process_are_measured(server: Valkey, postgres: Postgres) -> None:
    """Every request counts by its route's pattern and status; what no route has shares one label."""
    settings = ServiceSettings(
        url=Secret(server.url), database_url=Secret(postgres.url), metrics_token=Secret(TOKEN)
    )
    app = create_application(settings, SERVICE, shop, router)
    async with asking(app) as client:
        await client.get("/healthz")
        for path in ("/nowhere", "/else"):
            await client.get(path)
        await client.request("BREW", "/healthz")
        text = (await client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})).text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    name = "ephemera_http_request_duration_seconds_count"
    assert lines[f'{name}{{method="GET",route="/healthz",status="200"}}'] == "1.0"
    assert lines[f'{name}{{method="GET",route="other",status="404"}}'] == "2.0"
    assert [line for line in lines if "BREW" in line] == []
    assert float(lines["process_resident_memory_bytes"]) > 0
    assert "process_open_fds" in lines


async def test_ops8_readiness_names_role_and_node(server: Valkey, queue: Valkey, postgres: Postgres) -> None:
    """With one of two servers down, the answer says which, and for what it is used."""
    settings = ServiceSettings(
        url=Secret(server.url), queue_url=Secret(queue.url), database_url=Secret(postgres.url)
    )
    async with asking(create_application(settings, SERVICE, shop, router)) as client:
        assert (await client.get("/readyz")).json()["unavailable"] == []
        queue.kill()
        async with asyncio.timeout(60):
            while (found := (await client.get("/readyz")).json())["status"] == "ready":
                pass
        assert found["unavailable"] == [f"queue: {queue.url.rpartition('@')[2]}"]
        assert found["status"] == "degraded"
