"""Match updates: scores, events, and the final result, whose pages change atomically.

A finalization is committed while no other process can store the affected pages (`changing`), and one at a
time, so the table and the results never disagree, in any process. It can be repeated: with the same result it
only invalidates the pages again, with another one it corrects the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Update, and_, case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.patterns.http_cache import PageRef
from ephemera_services.league.keys import (
    ACTIVE,
    ADMIN_STATS,
    ADMINS,
    BRACKET,
    CLUB,
    FINALIZATION_LOCK,
    LIVE,
    LIVE_MATCHES,
    META,
    RESULTS,
    SCHEDULE,
    SITE,
    STATS,
    TABLE,
    VERSIONS,
    AdminEvent,
)
from ephemera_services.league.tables import events, matches, predictions
from ephemera_services.runtime import problem

EXACT, RIGHT_WINNER = 3, 1
"""Points of a prediction: the exact score, or only the winner."""
_LOCK_TIMEOUT = 10.0  # seconds to wait for another finalization
_NO_MATCH = "There is no such match."


class Matches:
    """Match administration."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._engine = engine
        self._site = store[SITE]
        self._admins = store[ADMINS]
        self._finalization_lock = store[FINALIZATION_LOCK]

    async def set_score(self, match_id: int, minute: int, home_goals: int, away_goals: int) -> None:
        """Set the score of a match; the first score makes it live."""
        values = {"status": "live", "minute": minute, "home_goals": home_goals, "away_goals": away_goals}
        async with self._engine.begin() as sql:
            await self._require_unfinished(sql, match_id)
            statement = update(matches).where(matches.c.id == match_id)
            await sql.execute(statement.values(live_revision=matches.c.live_revision + 1, **values))
        await self._site.bump(*_live_pages(match_id), LIVE_MATCHES.at(), SCHEDULE.at())
        await self._admins.broadcast(AdminEvent("score", match_id))

    async def add_event(self, match_id: int, minute: int, kind: str, side: str, player: str) -> None:
        """Record a goal or a card."""
        values = {"match_id": match_id, "minute": minute, "kind": kind, "side": side, "player": player}
        async with self._engine.begin() as sql:
            await self._require_unfinished(sql, match_id)
            await sql.execute(insert(events).values(values))
            statement = update(matches).where(matches.c.id == match_id)
            await sql.execute(statement.values(live_revision=matches.c.live_revision + 1))
        await self._site.bump(*_live_pages(match_id))
        await self._admins.broadcast(AdminEvent("event", match_id))

    async def finalize(self, match_id: int, home_goals: int, away_goals: int) -> list[PageRef]:
        """Finalize a result, and return the pages that changed."""
        async with self._engine.connect() as sql:
            query = select(matches.c.home_id, matches.c.away_id).where(matches.c.id == match_id)
            clubs = (await sql.execute(query)).one_or_none()
        if clubs is None:
            raise problem(404, _NO_MATCH)
        targets = _affected_pages(match_id, clubs)
        async with self._finalization_lock.hold(timeout=_LOCK_TIMEOUT), self._site.changing(*targets):
            await self._commit(match_id, home_goals, away_goals)
        await self._admins.broadcast(AdminEvent("finalized", match_id))
        return targets

    async def _commit(self, match_id: int, home_goals: int, away_goals: int) -> None:
        ended = func.coalesce(matches.c.ended_at, func.now())
        values = {"status": "finished", "minute": 90, "home_goals": home_goals, "away_goals": away_goals}
        async with self._engine.begin() as sql:
            await sql.execute(
                update(matches)
                .where(matches.c.id == match_id)
                .values(live_revision=matches.c.live_revision + 1, ended_at=ended, **values)
            )
            await sql.execute(points_update([match_id]))

    async def _require_unfinished(self, sql: Any, match_id: int) -> None:
        query = select(matches.c.status).where(matches.c.id == match_id).with_for_update()
        status = (await sql.execute(query)).scalar_one_or_none()
        if status is None:
            raise problem(404, _NO_MATCH)
        if status == "finished":
            raise problem(409, "The match is finished: finalize it again to correct its result.")


def _live_pages(match_id: int) -> tuple[PageRef, PageRef]:
    return LIVE.at(match_id=str(match_id)), VERSIONS.at(match_id=str(match_id))


def _affected_pages(match_id: int, clubs: Any) -> list[PageRef]:
    """Every page that shows a result."""
    pages = (TABLE, RESULTS, SCHEDULE, STATS, BRACKET, LIVE_MATCHES, ADMIN_STATS)
    club_pages = [CLUB.at(id=str(club)) for club in (clubs.home_id, clubs.away_id)]
    meta = META.at(match_id=str(match_id))
    return [*(page.at() for page in pages), *_live_pages(match_id), meta, *club_pages, ACTIVE.at(range="6d")]


def points_update(match_ids: Sequence[int]) -> Update:
    """Set the points of all predictions of finished matches."""
    home, away = matches.c.home_goals, matches.c.away_goals
    exact = and_(predictions.c.home_goals == home, predictions.c.away_goals == away)
    winner = func.sign(predictions.c.home_goals - predictions.c.away_goals)
    points = case((exact, EXACT), (winner == func.sign(home - away), RIGHT_WINNER), else_=0)
    scored = and_(predictions.c.match_id == matches.c.id, matches.c.status == "finished")
    return update(predictions).where(scored, matches.c.id.in_(match_ids)).values(points=points)
