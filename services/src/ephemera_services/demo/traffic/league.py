"""Simulated users of league: pollers, supporters who vote and comment, one who polls too fast.

The service plays the matches itself: see `ephemera_services.league.demo_referee`.
"""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

from ephemera_services.demo.clients import DemoClient, TrafficContext
from ephemera_services.runtime import DEMO_PASSWORD

REFEREE = "referee"
_PAGES = (
    "/api/league/table",
    "/api/league/results",
    "/api/league/schedule",
    "/api/matches/live",
    "/api/leaderboards/season",
    "/api/predictions?range=6d",
)
_UNCHANGED = 304


async def sign_in(client: DemoClient, name: str) -> None:
    """Sign a user in; the client keeps the cookie."""
    await client.expect(200, "POST", "/api/session", json={"name": name, "password": DEMO_PASSWORD})


async def new_supporter(client: DemoClient) -> str:
    """Register and sign in a new user, and return the name."""
    name = f"fan-{uuid4().hex[:8]}"
    await client.expect(201, "POST", "/api/users", json={"name": name, "password": DEMO_PASSWORD})
    await sign_in(client, name)
    return name


async def scheduled(client: DemoClient) -> list[dict[str, Any]]:
    """The matches that are not over."""
    matches: list[dict[str, Any]] = await client.expect(200, "GET", "/api/league/schedule")
    return matches


class Pollers:
    """Browsers that poll: with If-None-Match they get 304 until something changes."""

    every = 0.5

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "league")
        self._tags: dict[str, str] = {}
        self._counts = context.counts

    async def act(self) -> None:
        """Act once."""
        path = random.choice(_PAGES)
        headers = {"if-none-match": self._tags[path]} if path in self._tags else {}
        response = await self._client.request("GET", path, headers=headers)
        if response.status_code == _UNCHANGED:
            self._counts["unchanged (304)"] += 1
        elif "etag" in response.headers:
            self._tags[path] = response.headers["etag"]


class SimulatedSupporters:
    """A new user votes on some matches, predicts a score, and comments."""

    every = 3.0

    def __init__(self, context: TrafficContext) -> None:
        self._context = context

    async def act(self) -> None:
        """Act once."""
        async with DemoClient(self._context, "league") as client:
            await new_supporter(client)
            matches = await scheduled(client)
            for match in random.sample(matches, min(4, len(matches))):
                ballot = {"choice": random.choice(("home", "draw", "away"))}
                await client.request("POST", f"/api/matches/{match['id']}/votes", json=ballot)
            match = random.choice(matches)
            prediction = {"home_goals": random.randint(0, 3), "away_goals": random.randint(0, 2)}
            await client.request("PUT", f"/api/me/predictions/{match['id']}", json=prediction)
            await client.request(
                "POST", f"/api/matches/{match['id']}/comments", json={"text": "What a match!"}
            )


async def match_to_finalize(client: DemoClient) -> dict[str, Any]:
    """A league match that is not over, or else one whose result can be corrected."""
    unfinished = [match for match in await scheduled(client) if match["stage"] == "league"]
    results: list[dict[str, Any]] = await client.expect(200, "GET", "/api/league/results")
    return (unfinished or results)[0]


class FastPoller:
    """Polls a live page twenty times at once, from one address: the limit is 15 in 10 seconds."""

    every = 12.0

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "league", "203.0.113.77")

    async def act(self) -> None:
        """Act once."""
        for _ in range(20):
            await self._client.request("GET", "/api/matches/live")
