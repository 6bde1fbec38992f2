"""What happens to matches: scores, events, and the final result, whose pages change in one step.

A finalization is committed while nobody else can store the pages it concerns (`changing`), and one at a time,
so the table and the results never disagree, not for a moment and not on any process. It may be repeated: with
the same result it only tells the pages again, with another it corrects the first.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.patterns.http_cache import PageRef
from ephemera_services.league.keys import (
    ACTIVE,
    ADMIN_STATS,
    ADMINS,
    BRACKET,
    CLUB,
    FINALIZING,
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
"""Points of a prediction: the exact score, or who wins."""
_PATIENCE = 10.0  # seconds to wait for another finalization
_NONE = "There is no such match."


class Matches:
    """The matches, for administrators."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._engine = engine
        self._site = store[SITE]
        self._admins = store[ADMINS]
        self._finalizing = store[FINALIZING]

    async def score(self, match_id: int, minute: int, home_goals: int, away_goals: int) -> None:
        """Set the score of a match that is being played, which begins with the first one."""
        values = {"status": "live", "minute": minute, "home_goals": home_goals, "away_goals": away_goals}
        async with self._engine.begin() as sql:
            await self._still_open(sql, match_id)
            changed = update(matches).where(matches.c.id == match_id)
            await sql.execute(changed.values(live_revision=matches.c.live_revision + 1, **values))
        await self._site.bump(*_parts(match_id), LIVE_MATCHES.at(), SCHEDULE.at())
        await self._admins.broadcast(AdminEvent("score", match_id))

    async def happened(self, match_id: int, minute: int, kind: str, side: str, player: str) -> None:
        """Record a goal's scorer or a card."""
        values = {"match_id": match_id, "minute": minute, "kind": kind, "side": side, "player": player}
        async with self._engine.begin() as sql:
            await self._still_open(sql, match_id)
            await sql.execute(insert(events).values(values))
            changed = update(matches).where(matches.c.id == match_id)
            await sql.execute(changed.values(live_revision=matches.c.live_revision + 1))
        await self._site.bump(*_parts(match_id))
        await self._admins.broadcast(AdminEvent("event", match_id))

    async def finalize(self, match_id: int, home_goals: int, away_goals: int) -> list[PageRef]:
        """Make a result final; the pages that have changed."""
        async with self._engine.connect() as sql:
            found = select(matches.c.home_id, matches.c.away_id).where(matches.c.id == match_id)
            clubs = (await sql.execute(found)).one_or_none()
        if clubs is None:
            raise problem(404, _NONE)
        targets = _concerned(match_id, clubs)
        async with self._finalizing.hold(timeout=_PATIENCE), self._site.changing(*targets):
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
            await sql.execute(_award(match_id, home_goals, away_goals))

    async def _still_open(self, sql: Any, match_id: int) -> None:
        found = select(matches.c.status).where(matches.c.id == match_id).with_for_update()
        status = (await sql.execute(found)).scalar_one_or_none()
        if status is None:
            raise problem(404, _NONE)
        if status == "finished":
            raise problem(409, "The match is over: finalize it again to correct its result.")


def _parts(match_id: int) -> tuple[PageRef, PageRef]:
    return LIVE.at(match_id=str(match_id)), VERSIONS.at(match_id=str(match_id))


def _concerned(match_id: int, clubs: Any) -> list[PageRef]:
    """Every page that shows a result."""
    pages = (TABLE, RESULTS, SCHEDULE, STATS, BRACKET, LIVE_MATCHES, ADMIN_STATS)
    theirs = [CLUB.at(id=str(club)) for club in (clubs.home_id, clubs.away_id)]
    meta = META.at(match_id=str(match_id))
    return [*(page.at() for page in pages), *_parts(match_id), meta, *theirs, ACTIVE.at(range="6d")]


def _award(match_id: int, home_goals: int, away_goals: int) -> Any:
    exact = and_(predictions.c.home_goals == home_goals, predictions.c.away_goals == away_goals)
    winner = func.sign(predictions.c.home_goals - predictions.c.away_goals)
    right = winner == (home_goals > away_goals) - (home_goals < away_goals)
    points = case((exact, EXACT), (right, RIGHT_WINNER), else_=0)
    return update(predictions).where(predictions.c.match_id == match_id).values(points=points)
