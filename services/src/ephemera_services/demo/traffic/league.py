"""Visitors of league: who polls, who votes and comments, the referee, and somebody who polls too fast."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

from ephemera_services.demo.visitors import Scene, Visitor
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


async def signed_in(visitor: Visitor, name: str) -> None:
    """Sign somebody in; the visitor keeps the cookie."""
    await visitor.want(200, "POST", "/api/session", json={"name": name, "password": DEMO_PASSWORD})


async def new_supporter(visitor: Visitor) -> str:
    """Somebody new who is signed in; their name."""
    name = f"fan-{uuid4().hex[:8]}"
    await visitor.want(201, "POST", "/api/users", json={"name": name, "password": DEMO_PASSWORD})
    await signed_in(visitor, name)
    return name


async def scheduled(visitor: Visitor) -> list[dict[str, Any]]:
    """The matches that are not over."""
    matches: list[dict[str, Any]] = await visitor.want(200, "GET", "/api/league/schedule")
    return matches


class Pollers:
    """A browser that polls: who names the tag it has gets 304 until something changes."""

    every = 0.5

    def __init__(self, scene: Scene) -> None:
        self._visitor = Visitor(scene, "league")
        self._tags: dict[str, str] = {}
        self._tally = scene.tally

    async def act(self) -> None:
        """Come once."""
        path = random.choice(_PAGES)
        known = {"if-none-match": self._tags[path]} if path in self._tags else {}
        answer = await self._visitor.ask("GET", path, headers=known)
        if answer.status_code == _UNCHANGED:
            self._tally["unchanged (304)"] += 1
        elif "etag" in answer.headers:
            self._tags[path] = answer.headers["etag"]


class Supporters:
    """Somebody new votes on some matches, foretells one, and comments."""

    every = 3.0

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def act(self) -> None:
        """Come once."""
        async with Visitor(self._scene, "league") as visitor:
            await new_supporter(visitor)
            matches = await scheduled(visitor)
            for match in random.sample(matches, min(4, len(matches))):
                ballot = {"choice": random.choice(("home", "draw", "away"))}
                await visitor.ask("POST", f"/api/matches/{match['id']}/votes", json=ballot)
            match = random.choice(matches)
            foretold = {"home_goals": random.randint(0, 3), "away_goals": random.randint(0, 2)}
            await visitor.ask("PUT", f"/api/me/predictions/{match['id']}", json=foretold)
            await visitor.ask("POST", f"/api/matches/{match['id']}/comments", json={"text": "What a match!"})


async def to_finalize(visitor: Visitor) -> dict[str, Any]:
    """A match of the league that is not over, or when all are, one whose result may be corrected."""
    open_ones = [match for match in await scheduled(visitor) if match["stage"] == "league"]
    results: list[dict[str, Any]] = await visitor.want(200, "GET", "/api/league/results")
    return (open_ones or results)[0]


class Referee:
    """Now and then a match ends: its result is on all pages at once."""

    every = 15.0

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def act(self) -> None:
        """Come once."""
        async with Visitor(self._scene, "league") as visitor:
            await signed_in(visitor, REFEREE)
            match = await to_finalize(visitor)
            result = {"home_goals": random.randint(0, 4), "away_goals": random.randint(0, 3)}
            await visitor.want(200, "POST", f"/api/admin/matches/{match['id']}/finalize", json=result)
            await visitor.want(200, "GET", "/api/admin/monitoring")


class Impatient:
    """Polls a live page some twenty times at once, from one address: the limit is 15 in 10 seconds."""

    every = 12.0

    def __init__(self, scene: Scene) -> None:
        self._visitor = Visitor(scene, "league", "203.0.113.77")

    async def act(self) -> None:
        """Come once."""
        for _ in range(20):
            await self._visitor.ask("GET", "/api/matches/live")
