"""The demonstration plays matches: one is live, others can be predicted, and a result is never far away."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera_services.demo.clients import TrafficContext
from ephemera_services.demo.traffic.league import Referee
from tests.defects.service_apps import App, opened


@pytest.fixture
async def app(server: Valkey, postgres: Postgres) -> AsyncIterator[App]:
    """A league with its demonstration, in this process."""
    limits = ("REQUESTS_PER_10_SECONDS", "PAGES_PER_10_SECONDS", "ADMINISTRATION_PER_MINUTE")
    unlimited = {f"EPHEMERA_LEAGUE_{name}": "1000000" for name in limits}
    unlimited["EPHEMERA_LEAGUE_DEMO"] = "true"
    async with opened("league", server, postgres, unlimited) as app:
        yield app


class _InProcess(Referee):
    """A referee of an application in this process."""

    def __init__(self, app: App) -> None:
        no_servers: Any = None
        super().__init__(TrafficContext({"league": "http://localhost"}, no_servers, "a-token"))
        self._client.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app.app), base_url="http://localhost", trust_env=False
        )


async def test_matches_are_played_one_after_the_other(app: App) -> None:
    """In seventy acts, about six minutes, two matches end; one is always live, and two can be predicted."""
    random.seed(7)
    referee = _InProcess(app)

    async def page(path: str) -> Any:
        answer = await app.ask("GET", path)
        assert answer.status_code == 200
        return answer.json()

    async def something_is_live(response: httpx.Response) -> None:
        """Also right after a match has ended."""
        if response.request.url.path.endswith("/finalize"):
            assert await page("/api/matches/live") != []

    referee._client.http.event_hooks = {"response": [something_is_live]}
    played = len(await page("/api/league/results"))
    for act in range(70):
        await referee.act()
        assert await page("/api/matches/live") != []
        if act >= 3:
            assert len(await page("/api/predictions")) >= 2
    results = await page("/api/league/results")
    assert len(results) >= played + 2
    assert results[0]["status"] == "finished"
    await referee._client.http.aclose()
