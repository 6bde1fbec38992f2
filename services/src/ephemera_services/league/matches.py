"""Match updates: scores, events, and the final result, whose pages change atomically.

A finalization is committed while no other process can store the affected pages (`changing`), and one at a
time, so the table and the results never disagree, in any process. It can be repeated: with the same result it
only invalidates the pages again, with another one it corrects the first.

A match starts from half an hour before its kick-off on, and is finalized after it; earlier only by an
override, for a match that is brought forward or awarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, Update, and_, case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.patterns.http_cache import PageRef
from ephemera_services.league.affected_pages import (
    event_pages,
    live_pages,
    remove_predictions,
    result_pages,
    score_pages,
)
from ephemera_services.league.keys import ADMINS, FINALIZATION_LOCK, SITE, AdminEvent
from ephemera_services.league.tables import events, matches, predictions
from ephemera_services.runtime import problem

EXACT, RIGHT_WINNER = 3, 1
"""Points of a prediction: the exact score, or only the winner."""
START_BEFORE = timedelta(minutes=30)
"""How long before its kick-off a match can be started."""
_LOCK_TIMEOUT = 10.0  # seconds to wait for another finalization
_NO_MATCH = "There is no such match."


class Matches:
    """Match administration."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._engine = engine
        self._site = store[SITE]
        self._admins = store[ADMINS]
        self._finalization_lock = store[FINALIZATION_LOCK]

    async def set_score(
        self, match_id: int, minute: int, home_goals: int, away_goals: int, *, override: bool = False
    ) -> None:
        """Set the score of a match; the first score makes it live."""
        values = {"status": "live", "home_goals": home_goals, "away_goals": away_goals}
        async with self._engine.begin() as sql:
            match = await _unfinished(sql, match_id)
            if match.status == "scheduled" and match.starts_in > START_BEFORE:
                _refuse_early(override, "started", "from 30 minutes before its kick-off")
            statement = update(matches).where(matches.c.id == match_id)
            revision = matches.c.live_revision + 1
            await sql.execute(statement.values(live_revision=revision, minute=minute, **values))
        if match.minute != minute and all(match._mapping[name] == values[name] for name in values):
            await self._site.bump(*live_pages(match_id))  # only the minute: most updates of a match
        else:
            await self._site.bump(*score_pages(match))
            await remove_predictions(self._site, self._engine, match_id)
        await self._admins.broadcast(AdminEvent("score", match_id))

    async def add_event(self, match_id: int, minute: int, kind: str, side: str, player: str) -> None:
        """Record a goal or a card."""
        values = {"match_id": match_id, "minute": minute, "kind": kind, "side": side, "player": player}
        async with self._engine.begin() as sql:
            match = await _unfinished(sql, match_id)
            await sql.execute(insert(events).values(values))
            statement = update(matches).where(matches.c.id == match_id)
            await sql.execute(statement.values(live_revision=matches.c.live_revision + 1))
        await self._site.bump(*event_pages(match))
        await self._admins.broadcast(AdminEvent("event", match_id))

    async def finalize(
        self, match_id: int, home_goals: int, away_goals: int, *, override: bool = False
    ) -> list[PageRef]:
        """Finalize a result, and return the pages that changed."""
        async with self._engine.connect() as sql:
            match = (await sql.execute(_match(match_id))).one_or_none()
        if match is None:
            raise problem(404, _NO_MATCH)
        if match.status == "scheduled" and match.starts_in > timedelta(0):
            _refuse_early(override, "finalized", "after its kick-off")
        targets = result_pages(match)
        async with self._finalization_lock.hold(timeout=_LOCK_TIMEOUT), self._site.changing(*targets):
            await self._commit(match_id, home_goals, away_goals)
        targets += await remove_predictions(self._site, self._engine, match_id)
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


def _match(match_id: int) -> Any:
    starts_in = (matches.c.kickoff - func.now()).label("starts_in")
    return select(matches, starts_in).where(matches.c.id == match_id)


async def _unfinished(sql: AsyncConnection, match_id: int) -> Row[Any]:
    """A match that is not finished, locked until the end of the transaction."""
    match = (await sql.execute(_match(match_id).with_for_update())).one_or_none()
    if match is None:
        raise problem(404, _NO_MATCH)
    if match.status == "finished":
        raise problem(409, "The match is finished: finalize it again to correct its result.")
    return match


def _refuse_early(override: bool, action: str, when: str) -> None:
    if not override:
        raise problem(409, f"The match can be {action} {when}; earlier only with override=true.")


def points_update(match_ids: Sequence[int]) -> Update:
    """Set the points of all predictions of finished matches."""
    home, away = matches.c.home_goals, matches.c.away_goals
    exact = and_(predictions.c.home_goals == home, predictions.c.away_goals == away)
    winner = func.sign(predictions.c.home_goals - predictions.c.away_goals)
    points = case((exact, EXACT), (winner == func.sign(home - away), RIGHT_WINNER), else_=0)
    scored = and_(predictions.c.match_id == matches.c.id, matches.c.status == "finished")
    return update(predictions).where(scored, matches.c.id.in_(match_ids)).values(points=points)
