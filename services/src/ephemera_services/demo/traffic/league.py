"""Visitors of league: pollers, supporters who vote and comment, the referee, and one who polls too fast."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

from ephemera_services.demo.visitors import TrafficContext, Visitor
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


async def sign_in(visitor: Visitor, name: str) -> None:
    """Sign a user in; the visitor keeps the cookie."""
    await visitor.expect(200, "POST", "/api/session", json={"name": name, "password": DEMO_PASSWORD})


async def new_supporter(visitor: Visitor) -> str:
    """Register and sign in a new user; the name."""
    name = f"fan-{uuid4().hex[:8]}"
    await visitor.expect(201, "POST", "/api/users", json={"name": name, "password": DEMO_PASSWORD})
    await sign_in(visitor, name)
    return name


async def scheduled(visitor: Visitor) -> list[dict[str, Any]]:
    """The matches that are not over."""
    matches: list[dict[str, Any]] = await visitor.expect(200, "GET", "/api/league/schedule")
    return matches


class Pollers:
    """Browsers that poll: with If-None-Match they get 304 until something changes."""

    every = 0.5

    def __init__(self, context: TrafficContext) -> None:
        self._visitor = Visitor(context, "league")
        self._tags: dict[str, str] = {}
        self._counts = context.counts

    async def act(self) -> None:
        """Visit once."""
        path = random.choice(_PAGES)
        known = {"if-none-match": self._tags[path]} if path in self._tags else {}
        response = await self._visitor.request("GET", path, headers=known)
        if response.status_code == _UNCHANGED:
            self._counts["unchanged (304)"] += 1
        elif "etag" in response.headers:
            self._tags[path] = response.headers["etag"]


class Supporters:
    """A new user votes on some matches, predicts a score, and comments."""

    every = 3.0

    def __init__(self, context: TrafficContext) -> None:
        self._context = context

    async def act(self) -> None:
        """Visit once."""
        async with Visitor(self._context, "league") as visitor:
            await new_supporter(visitor)
            matches = await scheduled(visitor)
            for match in random.sample(matches, min(4, len(matches))):
                ballot = {"choice": random.choice(("home", "draw", "away"))}
                await visitor.request("POST", f"/api/matches/{match['id']}/votes", json=ballot)
            match = random.choice(matches)
            prediction = {"home_goals": random.randint(0, 3), "away_goals": random.randint(0, 2)}
            await visitor.request("PUT", f"/api/me/predictions/{match['id']}", json=prediction)
            await visitor.request(
                "POST", f"/api/matches/{match['id']}/comments", json={"text": "What a match!"}
            )


async def match_to_finalize(visitor: Visitor) -> dict[str, Any]:
    """A league match that is not over, or else one whose result can be corrected."""
    open_ones = [match for match in await scheduled(visitor) if match["stage"] == "league"]
    results: list[dict[str, Any]] = await visitor.expect(200, "GET", "/api/league/results")
    return (open_ones or results)[0]


class Referee:
    """Finalizes a match from time to time: its result appears on all pages at once."""

    every = 15.0

    def __init__(self, context: TrafficContext) -> None:
        self._context = context

    async def act(self) -> None:
        """Visit once."""
        async with Visitor(self._context, "league") as visitor:
            await sign_in(visitor, REFEREE)
            match = await match_to_finalize(visitor)
            result = {"home_goals": random.randint(0, 4), "away_goals": random.randint(0, 3)}
            await visitor.expect(200, "POST", f"/api/admin/matches/{match['id']}/finalize", json=result)
            await visitor.expect(200, "GET", "/api/admin/monitoring")


class FastPoller:
    """Polls a live page twenty times at once, from one address: the limit is 15 in 10 seconds."""

    every = 12.0

    def __init__(self, context: TrafficContext) -> None:
        self._visitor = Visitor(context, "league", "203.0.113.77")

    async def act(self) -> None:
        """Visit once."""
        for _ in range(20):
            await self._visitor.request("GET", "/api/matches/live")
