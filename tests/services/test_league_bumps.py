"""After a change of a match every page that shows it is new: which do is derived from SQL, not listed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.http_cache import PageRef
from ephemera_services.league.administration.edits import SERVICE
from ephemera_services.league.tables import clubs, events
from tests.defects.service_apps import opened
from tests.services.league_pages import LeaguePages
from tests.services.league_users import LIVE_MATCH

PAST_MATCH, CUP_MATCH, USER = 60, 57, 5
"""A match of the past season, a semi-final of the current one, and a user who has no other prediction."""

GOAL = {"minute": 32, "kind": "goal", "side": "home", "player": "Lisin"}
CARD = {"minute": 40, "kind": "card", "side": "away", "player": "Panin"}


@pytest.fixture
async def pages(server: Valkey, postgres: Postgres) -> AsyncIterator[LeaguePages]:
    """A league whose users have predicted the match that is played, and one that is about to start."""
    variables = {"EPHEMERA_LEAGUE_DEMO": "true", "EPHEMERA_LEAGUE_PREWARM": "false"}
    async with opened("league", server, postgres, variables) as app:
        found = LeaguePages(app)
        await found.sql(
            f"UPDATE league.matches SET kickoff = now() + interval '20 min' WHERE id = {CUP_MATCH}"
        )
        for match in (LIVE_MATCH, CUP_MATCH):
            await found.sql(
                "INSERT INTO league.predictions (user_id, match_id, home_goals, away_goals)"
                f" SELECT id, {match}, 2, 1 FROM league.users"
            )
        await app.service.leaderboards.compute()
        yield found


async def _each(call: Callable[[PageRef], Awaitable[Any]], refs: dict[str, PageRef]) -> dict[str, Any]:
    return {key: await call(ref) for key, ref in refs.items()}


async def _assert_complete(
    pages: LeaguePages, change: Callable[[], Awaitable[Any]], refs: dict[str, PageRef]
) -> set[str]:
    """Make a change; the pages whose content in SQL it changed, each of which the next poll gets new."""
    tags = await _each(pages.etag, refs)  # every page is in the cache now, locally too
    before = await _each(pages.computed, refs)
    await change()
    after = await _each(pages.computed, refs)
    changed = {key for key in refs if before[key] != after[key]}
    served = await _each(pages.served, {key: refs[key] for key in changed})
    assert [key for key in changed if served[key] != after[key]] == []
    new_tags = await _each(pages.etag, refs)
    assert {key for key in refs if tags[key] != new_tags[key]} == changed
    return changed


async def _rename_scorers(pages: LeaguePages, match: int) -> None:
    goals = await pages.sql(f"SELECT id FROM league.events WHERE match_id = {match}")
    async with pages.service.editor.edit(SERVICE, "another name") as edit:
        for goal in goals:
            await edit.update(events, goal.id, player="Lisin", match_id=match)


async def _rename_club(pages: LeaguePages, club: int) -> None:
    async with pages.service.editor.edit(SERVICE, "another name") as edit:
        await edit.update(clubs, club, name="Renamed")


async def _undo_the_last_change(pages: LeaguePages, match: int) -> None:
    last = await pages.sql(f"SELECT max(id) AS id FROM league.changes WHERE match_id = {match}")

    async def allow(*_: object) -> None:
        """Undo whatever it is."""

    await pages.service.editor.undo(last[0].id, SERVICE, allow)


async def test_every_page_that_shows_a_change_is_new(pages: LeaguePages) -> None:
    """Scores, goals, results, corrections, undone ones and comments, of a league, a cup and a past match."""
    matches, supporters = pages.service.matches, pages.service.supporters
    changes: dict[str, Callable[[], Awaitable[Any]]] = {
        "a goal in the score": lambda: matches.set_score(LIVE_MATCH, 31, 1, 0),
        "a minute": lambda: matches.set_score(LIVE_MATCH, 32, 1, 0),
        "a goal and its scorer": lambda: matches.add_event(LIVE_MATCH, GOAL, SERVICE),
        "a card": lambda: matches.add_event(LIVE_MATCH, CARD, SERVICE),
        "a start before the kick-off": lambda: matches.set_score(CUP_MATCH, 1, 0, 0),
        "a result": lambda: matches.finalize(LIVE_MATCH, 2, 1),
        "a correction": lambda: matches.finalize(LIVE_MATCH, 0, 3),
        "a result of the cup": lambda: matches.finalize(CUP_MATCH, 2, 1),
        "a correction of a past season": lambda: matches.finalize(PAST_MATCH, 9, 8),
        "a comment": lambda: supporters.comment(USER, LIVE_MATCH, "What a match!"),
        "another name of a scorer of a past season": lambda: _rename_scorers(pages, PAST_MATCH),
        "another name of a club": lambda: _rename_club(pages, 1),
        "the end of a result": lambda: _undo_the_last_change(pages, CUP_MATCH),
    }
    refs = await pages.all(LIVE_MATCH, CUP_MATCH, PAST_MATCH)
    changed = {name: await _assert_complete(pages, change, refs) for name, change in changes.items()}
    assert all(changed.values())
    assert f"predictions:user:{{{USER}}}" in changed["a result"] & changed["a correction"]
    assert f"achievements:{{{USER}}}" in changed["a result"] | changed["a correction"]
    assert {"league:table:{1}", "league:table:{all}"} <= changed["a correction of a past season"]
    of_club = await pages.sql("SELECT id FROM league.matches WHERE 1 IN (home_id, away_id)")
    shown = {match for match in (LIVE_MATCH, CUP_MATCH, PAST_MATCH) if match in [row.id for row in of_club]}
    assert shown
    assert {f"etag:md:{{{each}}}" for each in shown} <= changed["another name of a club"], (
        "or clients request nothing"
    )
    assert "league:table" not in changed["a correction of a past season"]


async def test_random_changes_leave_no_page_behind(pages: LeaguePages) -> None:
    """Six random scores, goals and results in a row: each page is what SQL says after each of them."""
    chance = random.Random(5)
    matches = pages.service.matches
    ids = [LIVE_MATCH, CUP_MATCH, 33]
    refs = await pages.all(*ids)
    await pages.sql("UPDATE league.matches SET kickoff = now() WHERE id = 33")
    for step in range(6):
        match, goals = chance.choice(ids), (chance.randint(0, 3), chance.randint(0, 3))
        status = (await pages.sql(f"SELECT status FROM league.matches WHERE id = {match}"))[0].status
        if status == "finished" or chance.random() < 0.3:
            change = partial(matches.finalize, match, *goals, override=True)
        else:
            change = partial(matches.set_score, match, step, *goals)
        await _assert_complete(pages, change, refs)


async def test_leaderboards_follow_a_result(pages: LeaguePages) -> None:
    """They are computed after it in the background; then each board that changed is new."""
    refs = await pages.boards()

    async def finalize() -> None:
        await pages.service.matches.finalize(LIVE_MATCH, 2, 1)
        pages.service.after_result()
        await asyncio.gather(*pages.service.tasks)

    changed = await _assert_complete(pages, finalize, refs)
    assert changed == {"lb:{season}", "lb:{week}", "lb:season:{2}", "lb:season:{all}"}
