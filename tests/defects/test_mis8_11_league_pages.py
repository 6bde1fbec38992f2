"""MIS8 to MIS11: pages that stayed old after a result or a score, and results days before the kick-off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera.web import Problem
from ephemera_services.league.keys import ACHIEVEMENTS, ACTIVE, CLUB, MINE
from ephemera_services.league.loaders import RANGES
from tests.defects.service_apps import opened
from tests.services.league_pages import LeaguePages
from tests.services.league_users import LIVE_MATCH

COMING, USER = 33, 1
"""A match four days ahead, and a user of the demonstration."""
GOALS = {"home_goals": 2, "away_goals": 1}


@pytest.fixture
async def pages(server: Valkey, postgres: Postgres) -> AsyncIterator[LeaguePages]:
    """A league with its demonstration, in this process."""
    async with opened("league", server, postgres, {"EPHEMERA_LEAGUE_DEMO": "true"}) as app:
        yield LeaguePages(app)


async def _kickoff(pages: LeaguePages, when: str) -> None:
    await pages.sql(f"UPDATE league.matches SET kickoff = now() + interval '{when}' WHERE id = {COMING}")


async def _prediction(pages: LeaguePages) -> Any:
    rows = await pages.served(MINE.at(user_id=str(USER)))
    return next((row["score"], row["points"]) for row in rows if row["id"] == LIVE_MATCH)


async def test_mis8_own_predictions_and_achievements_show_a_result(pages: LeaguePages) -> None:
    """The next poll after a result, a correction or a score has it, with the points, and what was earned."""
    await pages.sql(f"DELETE FROM league.predictions WHERE user_id = {USER}")
    await pages.sql(
        "INSERT INTO league.predictions (user_id, match_id, home_goals, away_goals)"
        f" VALUES ({USER}, {LIVE_MATCH}, 2, 1)"
    )
    assert await _prediction(pages) == ([0, 0], None)
    achievements = ACHIEVEMENTS.at(user_id=str(USER))
    assert (await pages.served(achievements))["achievements"] == ["first prediction"]
    matches = pages.service.matches
    await matches.set_score(LIVE_MATCH, 30, 1, 0)
    assert await _prediction(pages) == ([1, 0], None)
    await matches.finalize(LIVE_MATCH, 2, 1)
    assert await _prediction(pages) == ([2, 1], 3)
    assert (await pages.served(achievements))["achievements"] == ["first prediction", "oracle"]
    await matches.finalize(LIVE_MATCH, 0, 1)
    assert await _prediction(pages) == ([0, 1], 0)
    assert (await pages.served(achievements))["achievements"] == ["first prediction"]


async def test_mis9_open_predictions_of_every_range_lose_a_match_that_starts(pages: LeaguePages) -> None:
    """A match that starts before its kick-off can no longer be predicted, in whatever range it was listed."""
    await _kickoff(pages, "20 min")

    async def listed(range_: str) -> bool:
        return COMING in [row["id"] for row in await pages.served(ACTIVE.at(range=range_))]

    assert [await listed(each) for each in RANGES] == [True] * 14
    await pages.service.matches.set_score(COMING, 1, 0, 0)
    assert [await listed(each) for each in RANGES] == [False] * 14


async def test_mis10_a_live_score_shows_on_the_pages_of_both_clubs(pages: LeaguePages) -> None:
    """The next poll of either club's page has the score."""
    row = (await pages.sql(f"SELECT home_id, away_id FROM league.matches WHERE id = {LIVE_MATCH}"))[0]
    clubs = [CLUB.at(id=str(each)) for each in (row.home_id, row.away_id)]
    for goals in ([1, 0], [1, 1]):
        for club in clubs:
            await pages.served(club)
        await pages.service.matches.set_score(LIVE_MATCH, 30, *goals)
        for club in clubs:
            shown = {match["id"]: match["score"] for match in (await pages.served(club))["matches"]}
            assert shown[LIVE_MATCH] == goals


async def test_mis11_a_match_days_ahead_neither_starts_nor_ends(pages: LeaguePages) -> None:
    """Days before the kick-off both are 409; half an hour before it it starts, after it it is finalized."""
    matches = pages.service.matches

    async def status() -> Any:
        return (await pages.sql(f"SELECT status FROM league.matches WHERE id = {COMING}"))[0].status

    for call in (matches.set_score(COMING, 1, 0, 0), matches.finalize(COMING, 2, 1)):
        with pytest.raises(Problem, match="override"):
            await call
    await _kickoff(pages, "20 min")
    with pytest.raises(Problem, match="after its kick-off"):
        await matches.finalize(COMING, 2, 1)
    assert await status() == "scheduled"
    await matches.set_score(COMING, 1, 0, 0)
    assert await status() == "live"
    await matches.finalize(COMING, 2, 1)
    assert await status() == "finished"


async def test_mis11_a_postponed_match_is_not_finalized(pages: LeaguePages) -> None:
    """Neither days before its old kick-off nor after it: there was no match. An override awards it."""
    matches = pages.service.matches
    await pages.sql(f"UPDATE league.matches SET status = 'postponed' WHERE id = {COMING}")
    for when in ("4 days", "-1 hour"):
        await _kickoff(pages, when)
        with pytest.raises(Problem, match="postponed"):
            await matches.finalize(COMING, 2, 1)
    await matches.finalize(COMING, 3, 0, override=True)
    found = await pages.sql(f"SELECT status FROM league.matches WHERE id = {COMING}")
    assert found[0].status == "finished"
    await pages.sql(f"UPDATE league.matches SET status = 'cancelled' WHERE id = {COMING}")
    with pytest.raises(Problem, match="cancelled"):
        await matches.finalize(COMING, 2, 1, override=True)


async def test_mis11_an_override_is_explicit(pages: LeaguePages) -> None:
    """An administrator who says so may award a match ahead of time; without it the route answers 409."""
    path = f"/api/admin/matches/{COMING}/finalize"
    session = await pages.app.ask(
        "POST", "/api/session", json={"name": "referee", "password": "correct horse battery"}
    )
    cookie = {"cookie": session.headers["set-cookie"].partition(";")[0]}
    refused = await pages.app.ask("POST", path, json=GOALS, headers=cookie)
    assert (refused.status_code, refused.headers["content-type"]) == (409, "application/problem+json")
    awarded = await pages.app.ask("POST", path, json={**GOALS, "override": True}, headers=cookie)
    assert awarded.status_code == 200
