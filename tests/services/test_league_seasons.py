"""Seasons: each has its own pages, without `season=` they are the current one's, past ones are kept long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, cast

import pytest
from sqlalchemy import text

from ephemera.embedded import Postgres, Valkey
from ephemera_services.league import keys
from tests.defects.service_apps import App, opened
from tests.services.test_league_keys import DAY

PAST, CURRENT = "1", "2"
"""The demonstration's seasons."""
LEAGUE = tuple(f"/api/league/{name}" for name in ("table", "schedule", "results", "stats", "bracket"))
BOARD = "/api/leaderboards/season"


@pytest.fixture
async def app(server: Valkey, postgres: Postgres) -> AsyncIterator[App]:
    """A league with its demonstration, in this process, on an empty server."""
    variables = {"EPHEMERA_LEAGUE_DEMO": "true", "EPHEMERA_LEAGUE_PREWARM": "false"}
    async with opened("league", server, postgres, variables) as app:
        await app.service.leaderboards.compute()
        yield app


async def page(app: App, path: str, season: str | None = None) -> Any:
    """A page of a season, or of the current one."""
    answer = await app.ask("GET", path if season is None else f"{path}?season={season}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_seasons_are_listed_by_competition(app: App) -> None:
    """The list has each competition with its seasons, the latest first, and says which one is current."""
    (league,) = await page(app, "/api/seasons")
    assert [(each["id"], each["status"]) for each in league["seasons"]] == [(2, "current"), (1, "past")]


@pytest.mark.parametrize("path", [*LEAGUE, BOARD])
async def test_without_a_season_the_current_one_is_shown(app: App, path: str) -> None:
    """Without `season=` a page is that of the current season; a past season and all of them differ."""
    current = await page(app, path)
    assert await page(app, path, CURRENT) == current
    assert await page(app, path, PAST) != current
    if path != LEAGUE[1]:  # a past season has no schedule
        assert await page(app, path, "all") != current


async def test_seasons_add_up(app: App) -> None:
    """Played matches, points, goals and results of both seasons are those of all time, and of each club."""
    tables = {season: await page(app, LEAGUE[0], season) for season in (PAST, CURRENT, "all")}
    points = {
        season: {row["club"]: (row["points"], row["played"]) for row in table}
        for season, table in tables.items()
    }
    for club, (total, played) in points["all"].items():
        parts = [points[season][club] for season in (PAST, CURRENT)]
        assert (total, played) == (sum(each[0] for each in parts), sum(each[1] for each in parts))
    stats = {season: (await page(app, LEAGUE[3], season))["goals"] for season in (PAST, CURRENT, "all")}
    assert stats["all"] == stats[PAST] + stats[CURRENT] > stats[CURRENT] > 0
    results = {season: await page(app, LEAGUE[2], season) for season in (PAST, CURRENT, "all")}
    played_in = {season: {row["id"] for row in rows} for season, rows in results.items()}
    assert played_in["all"] == played_in[PAST] | played_in[CURRENT]
    assert played_in[PAST].isdisjoint(played_in[CURRENT])
    of_club = (await page(app, "/api/clubs/1/matches"))["matches"]
    finished = {row["id"] for row in of_club if row["status"] == "finished"}
    comet = {row["id"] for row in results["all"] if "Comet" in (row["home"], row["away"])}
    assert finished == comet
    assert {row["season"] for row in of_club} == {row["season"] for row in results["all"]}
    boards = {season: await page(app, BOARD, season) for season in (PAST, CURRENT, "all")}
    scored = {season: {row["name"]: row["points"] for row in board} for season, board in boards.items()}
    assert scored["all"] == {name: scored[PAST][name] + scored[CURRENT][name] for name in scored["all"]}


async def test_a_past_season_is_kept_for_long(app: App) -> None:
    """While a match is played, a past season's pages are fresh for thirty days, others for an hour."""
    for resource in (keys.SEASON_TABLE, keys.SEASON_RESULTS, keys.SEASON_STATS, keys.SEASON_BRACKET):
        bound = app.service.store[resource]
        past, current = await bound.page(season=PAST), await bound.page(season=CURRENT)
        assert past.fresh == 30 * DAY * 1000
        assert current.fresh <= 3600 * 1000


@pytest.mark.parametrize("season", ["3", "0", "02", "-1", "none", "2026", ""])
async def test_a_season_that_does_not_exist_is_404(app: App, season: str) -> None:
    """Only ids of seasons and `all` name a season, and the leaderboard of the week has none."""
    for path in (*LEAGUE, BOARD):
        assert (await app.ask("GET", f"{path}?season={season}")).status_code in (400, 404)
    assert (await app.ask("GET", "/api/leaderboards/week?season=1")).status_code == 404


async def test_pages_of_seasons_are_limited(app: App) -> None:
    """Anyone can make ids up: pages with `season=` have the limit of pages with an id, others have none."""
    address = "203.0.113.9"
    statuses = {
        (await app.ask("GET", f"{LEAGUE[0]}?season={number}", address=address)).status_code
        for number in range(1, 70)
    }
    assert 429 in statuses
    assert (await app.ask("GET", LEAGUE[0], address=address)).status_code == 200


async def test_prewarming_finds_the_affected_seasons(app: App, server: Valkey) -> None:
    """It loads the pages of the season that is played these days and of all time, none of a past season."""
    server.ask("FLUSHALL")
    report = await app.service.site.prewarm()
    assert report.failed == 0
    stored = set(cast("list[str]", server.ask("KEYS", "l*")))
    names = ("table", "schedule", "results", "stats")
    assert {f"league:{name}:{{{season}}}" for name in names for season in (CURRENT, "all")} <= stored
    assert f"lb:season:{{{CURRENT}}}" in stored
    assert not [key for key in stored if f"{{{PAST}}}" in key]


async def test_a_season_has_all_its_results(app: App) -> None:
    """All 271 are on its page; the page of all seasons has the last hundred."""
    played = (
        "INSERT INTO league.matches"
        " (season_id, stage, round, home_id, away_id, kickoff, venue, status, phase, home_goals, away_goals)"
        " SELECT 2, 'league', 1, 1, 2, now() - n * interval '1 hour', 'Here', 'finished', 'ended', 1, 0"
        " FROM generate_series(1, 240) AS n"
    )
    async with app.service.engine.begin() as sql:
        await sql.execute(text(played))
    results = await page(app, LEAGUE[2])
    assert len(results) == 240 + 31
    kickoffs = [datetime.fromisoformat(row["kickoff"]) for row in results]
    assert kickoffs == sorted(kickoffs, reverse=True)
    assert await page(app, LEAGUE[2], CURRENT) == results
    assert await page(app, LEAGUE[2], "all") == results[:100]


async def test_everyone_with_points_has_a_place(app: App) -> None:
    """Also behind a thousand others: the own place is a rank, not nothing."""
    fans = (
        "WITH fans AS (INSERT INTO league.users (name, password_hash, role)"
        " SELECT 'fan-' || n, 'none', 'user' FROM generate_series(1, 1001) AS n RETURNING id)"
        " INSERT INTO league.predictions (user_id, match_id, home_goals, away_goals, points)"
        " SELECT id, 1, 1, 0, 1000 FROM fans"
    )
    async with app.service.engine.begin() as sql:
        await sql.execute(text(fans))
    await app.service.leaderboards.compute()
    form = {"name": "ann", "password": "correct horse battery"}
    signed = await app.ask("POST", "/api/session", json=form)
    cookie = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
    for season in ("", "?season=all"):
        place = (await app.ask("GET", f"/api/me/leaderboards/season{season}", headers=cookie)).json()
        assert 1002 <= place["rank"] <= 1005
        assert place["points"] > 0


async def test_a_second_season_starts(app: App) -> None:
    """A new season is planned, then started: it is the current one, and the one before keeps its pages."""
    form = {"name": "referee", "password": "correct horse battery"}
    signed = await app.ask("POST", "/api/session", json=form)
    cookie = {"cookie": signed.headers["set-cookie"].partition(";")[0]}

    async def post(path: str, **body: Any) -> Any:
        answer = await app.ask("POST", f"/api/admin/{path}", json=body, headers=cookie)
        assert answer.status_code in (201, 204), answer.text
        return answer.json() if answer.content else None

    before = {path: await page(app, path) for path in (*LEAGUE, BOARD)}
    season = (await post("seasons", competition="League", name="Next"))["id"]
    fixture = {"round": 1, "home_id": 1, "away_id": 2, "kickoff": "2030-05-01T12:00:00Z", "venue": "Here"}
    await post("matches", season_id=season, **fixture)
    assert {path: await page(app, path) for path in before} == before
    assert [row["venue"] for row in await page(app, LEAGUE[1], str(season))] == ["Here"]
    await post(f"seasons/{season}/start")
    await post(f"seasons/{season}/start")
    again = {"competition": "League", "name": "Next"}
    for path, body, status in (("seasons", again, 409), ("seasons/999/start", None, 404)):
        refused = await app.ask("POST", f"/api/admin/{path}", json=body, headers=cookie)
        assert (refused.status_code, "season" in refused.json()["detail"]) == (status, True)
    statuses = {each["id"]: each["status"] for each in (await page(app, "/api/seasons"))[0]["seasons"]}
    assert statuses == {season: "current", 2: "past", 1: "past"}
    assert {row["club"]: row["points"] for row in await page(app, LEAGUE[0])} == {"Comet": 0, "Meteor": 0}
    assert [row["venue"] for row in await page(app, LEAGUE[1])] == ["Here"]
    assert await page(app, BOARD) == []
    assert {path: await page(app, path, CURRENT) for path in before} == before
    assert (await app.service.store[keys.SEASON_TABLE].page(season=CURRENT)).fresh == 30 * DAY * 1000
