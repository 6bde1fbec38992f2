"""Previews: what a finalization would change.

The finalization runs in a transaction that is rolled back, with the statements of the real one, so a preview
cannot differ from it. Nothing is published.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from sqlalchemy import desc, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera_services.league.administration.edits import Edit, lock
from ephemera_services.league.administration.forms import Award, Movement, Preview
from ephemera_services.league.administration.live_control import require_control
from ephemera_services.league.affected_pages import pages_of
from ephemera_services.league.keys import Session
from ephemera_services.league.loaders import league_table
from ephemera_services.league.matches import set_result
from ephemera_services.league.points import EXACT, RIGHT_WINNER
from ephemera_services.league.tables import matches, predictions, users

_AWARDS = 20  # shown


class _OpenConnection:
    """What loaders need of an engine: it gives the connection of a transaction that is under way."""

    def __init__(self, sql: AsyncConnection) -> None:
        self._sql = sql

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        yield self._sql


async def preview(engine: AsyncEngine, match_id: int, score: tuple[int, int] | None, by: Session) -> Preview:
    """What finalizing a match with a score would change; without one, with the score that it has."""
    async with engine.connect() as sql:
        match = await lock(sql, matches, match_id)
        await require_control(sql, match, by)
        before = (match.home_goals, match.away_goals)
        season = str(match.season_id)
        table, points = await _table(sql, season), await _points(sql, match_id)
        edit = Edit(sql, by, "preview", match_id=match_id)
        await set_result(edit, match_id, score or before)
        await edit.save()
        awarded = await _points(sql, match_id)
        # While it can be predicted, a helper, who may predict too, sees no one's prediction.
        hidden = by.role != "admin" and match.status == "scheduled"
        found = Preview(
            score=(before, score or before),
            status=match.status,
            table=_movements(table, await _table(sql, season)),
            predictions=len(awarded),
            exact=sum(row.points == EXACT for row in awarded.values()),
            right_winner=sum(row.points == RIGHT_WINNER for row in awarded.values()),
            awards=[
                Award(
                    name=row.name,
                    prediction=(row.home_goals, row.away_goals),
                    points=(points[user_id].points, row.points),
                )
                for user_id, row in list(awarded.items())[: 0 if hidden else _AWARDS]
            ],
            pages=[page.key for page in (await pages_of(sql, edit.rows)).bumped],
        )
        await sql.rollback()
    return found


async def _table(sql: AsyncConnection, season: str) -> list[dict[str, Any]]:
    return await league_table(cast("AsyncEngine", _OpenConnection(sql)), season)


async def _points(sql: AsyncConnection, match_id: int) -> dict[int, Any]:
    """The predictions of a match by user, most points first."""
    query = (
        select(predictions, users.c.name)
        .join(users, users.c.id == predictions.c.user_id)
        .where(predictions.c.match_id == match_id)
        .order_by(desc(predictions.c.points), users.c.name)
    )
    return {row.user_id: row for row in await sql.execute(query)}


def _movements(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[Movement]:
    earlier = {row["club_id"]: row for row in before}
    return [
        Movement(
            club=row["club"],
            rank=(earlier[row["club_id"]]["rank"], row["rank"]),
            points=(earlier[row["club_id"]]["points"], row["points"]),
        )
        for row in after
        if any(earlier[row["club_id"]][name] != row[name] for name in ("rank", "points", "goals"))
    ]
