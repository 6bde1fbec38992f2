"""Simulated users of league: pollers, supporters who vote and comment, a referee, one who polls too fast."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
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
_UNCHANGED, _SIGNED_OUT = 304, 401
_SCORERS = ("Orlov", "Belov", "Serov", "Titov", "Panin", "Zorin")
_NEARLY_OVER = 87
_GOAL_CHANCE = 0.1
"""For each time that the referee acts: about three goals in a match."""
_SOON, _PLANNED = timedelta(minutes=25), 3
"""Matches that are planned for the next minutes: the referee may start them, and they can be predicted."""
_EXTRA_ROUND = 15  # after the last one of the demo data


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


class Referee:
    """Plays matches of about three minutes, one after the other, and plans the next ones.

    At any time one is live, others can be predicted, and a result is never far away.
    """

    every = 5.0

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "league")

    async def act(self) -> None:
        """Act once: two to four minutes of play."""
        if (await self._client.request("GET", "/api/me")).status_code == _SIGNED_OUT:
            await sign_in(self._client, REFEREE)
        live: list[dict[str, Any]] = await self._client.expect(200, "GET", "/api/matches/live")
        planned = [
            match
            for match in await scheduled(self._client)
            if match["status"] == "scheduled" and _kickoff(match) < datetime.now(UTC) + _SOON
        ]
        going_on = [match for match in live if match["minute"] < _NEARLY_OVER]
        if not going_on and planned:  # before the last one ends: something is always live
            await self._set_score(planned.pop(0), 1, [0, 0])
        for match in live:
            await (self._play if match in going_on else self._finalize)(match)
        if len(planned) < _PLANNED:
            await self._plan(max([datetime.now(UTC), *map(_kickoff, planned)]))

    async def _finalize(self, match: dict[str, Any]) -> None:
        """End a match with its score."""
        result = dict(zip(("home_goals", "away_goals"), match["score"], strict=True))
        await self._client.expect(200, "POST", f"/api/admin/matches/{match['id']}/finalize", json=result)
        await self._client.expect(200, "GET", "/api/admin/monitoring")

    async def _play(self, match: dict[str, Any]) -> None:
        """Play some minutes of a match."""
        minute, score = match["minute"] + random.randint(2, 4), match["score"]
        if random.random() < _GOAL_CHANCE:
            side = random.randrange(2)
            score[side] += 1
            name = random.choice(_SCORERS)
            goal = {"minute": minute, "kind": "goal", "side": ("home", "away")[side], "player": name}
            await self._client.expect(204, "POST", f"/api/admin/matches/{match['id']}/events", json=goal)
        await self._set_score(match, minute, score)

    async def _set_score(self, match: dict[str, Any], minute: int, score: list[int]) -> None:
        form = {"minute": minute, "home_goals": score[0], "away_goals": score[1]}
        await self._client.expect(204, "PUT", f"/api/admin/matches/{match['id']}/score", json=form)

    async def _plan(self, after: datetime) -> None:
        """Plan a match for two minutes after the last one."""
        table: list[dict[str, Any]] = await self._client.expect(200, "GET", "/api/league/table")
        home, away = random.sample([row["club_id"] for row in table], 2)
        fixture = {
            "round": _EXTRA_ROUND,
            "home_id": home,
            "away_id": away,
            "kickoff": (after + timedelta(minutes=2)).isoformat(),
            "venue": "City stadium",
        }
        await self._client.expect(201, "POST", "/api/admin/matches", json=fixture)


def _kickoff(match: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(match["kickoff"])


class FastPoller:
    """Polls a live page twenty times at once, from one address: the limit is 15 in 10 seconds."""

    every = 12.0

    def __init__(self, context: TrafficContext) -> None:
        self._client = DemoClient(context, "league", "203.0.113.77")

    async def act(self) -> None:
        """Act once."""
        for _ in range(20):
            await self._client.request("GET", "/api/matches/live")
