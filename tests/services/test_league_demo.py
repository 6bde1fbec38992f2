"""The demo plays matches: one is live, others can be predicted, a result is near, and seasons follow."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera_services.league import demo_referee
from ephemera_services.league.demo_referee import Referee
from tests.defects.service_apps import App, opened
from tests.services.league_pages import LeaguePages
from tests.services.test_league_seasons import page

DEMO = {
    "EPHEMERA_LEAGUE_DEMO": "true",
    "EPHEMERA_LEAGUE_PREWARM": "false",
    "EPHEMERA_LEAGUE_REQUESTS_PER_10_SECONDS": "1000000",
    "EPHEMERA_LEAGUE_PAGES_PER_10_SECONDS": "1000000",
}


@pytest.fixture
async def app(server: Valkey, postgres: Postgres) -> AsyncIterator[App]:
    """A league with its demonstration, in this process; the test moves its referee."""
    async with opened("league", server, postgres, DEMO) as app:
        yield app


async def test_matches_are_played_one_after_the_other(app: App) -> None:
    """In eighty acts, about seven minutes, two matches end; one is always live, and two can be predicted."""
    random.seed(7)
    referee = Referee(app.service)
    played = len(await page(app, "/api/league/results"))
    fixtures = len(await page(app, "/api/league/schedule")) + played
    phases: dict[int, set[str]] = {}
    for _ in range(80):
        await referee.act()
        live = await page(app, "/api/matches/live")
        assert live != []
        for match in live:
            phases.setdefault(match["id"], set()).add(match["phase"])
        assert len(await page(app, "/api/predictions")) >= 2
    results = await page(app, "/api/league/results")
    assert len(results) >= played + 2
    assert len(results) + len(await page(app, "/api/league/schedule")) == fixtures, "no fixture was added"
    assert {"first half", "half-time", "second half", "ended"} in phases.values()
    happened = {kind for (kind,) in await LeaguePages(app).sql("SELECT kind FROM league.events")}
    assert happened == {"goal", "card"}


async def test_a_season_ends_with_its_cup_and_the_next_one_begins(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the league come semi-finals and a final with a winner; then the next season is current."""
    random.seed(8)
    monkeypatch.setattr(demo_referee, "MINUTES", (20, 25))
    pages, referee = LeaguePages(app), Referee(app.service)
    await pages.sql(
        "UPDATE league.matches SET status = 'finished', phase = 'ended', ended_at = now(), home_goals = 1"
        " WHERE stage = 'league' AND season_id = 2"
    )
    await app.service.site.delete(*(await pages.all()).values())

    async def current() -> str:
        (league,) = await page(app, "/api/seasons")
        return next(str(each["id"]) for each in league["seasons"] if each["status"] == "current")

    for _ in range(100):
        await referee.act()
        if await current() != "2":
            break
    assert await current() == "3"
    cup = await page(app, "/api/league/bracket?season=2")
    assert [(each["round"], len(each["matches"])) for each in cup] == [("semi-final", 2), ("final", 1)]
    assert all(match["score"][0] != match["score"][1] for each in cup for match in each["matches"])
    planned = await pages.sql("SELECT count(*) FROM league.matches WHERE season_id = 3")
    assert planned[0][0] == 56
    assert len(await page(app, "/api/league/table")) == 8


async def test_only_the_demo_is_played(app: App) -> None:
    """It goes on when someone adds a club or renames one in the panel; someone's own league is left alone."""
    pages, referee = LeaguePages(app), Referee(app.service)
    await pages.sql("INSERT INTO league.clubs (name) VALUES ('A club of ours')")
    await pages.sql("UPDATE league.clubs SET name = 'Renamed' WHERE name = 'Comet'")
    assert await referee._is_demo()
    await pages.sql("UPDATE league.clubs SET name = 'Our club ' || id")
    assert not await referee._is_demo()


async def test_a_served_demo_plays_by_itself(
    server: Valkey, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `demo` set the service's own task moves the clock, with nothing else running."""
    monkeypatch.setattr(demo_referee, "EVERY", 0.01)
    async with opened("league", server, postgres, {**DEMO, "EPHEMERA_LEAGUE_DEMO_REFEREE": "true"}) as app:
        pages: Any = LeaguePages(app)
        while (await page(app, "/api/matches/live"))[0]["phase"] == "first half":
            await pages.sql("SELECT 1")
