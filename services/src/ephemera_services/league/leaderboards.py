"""Leaderboards: computed every six hours and after each finalization, by one process, then prewarmed.

The time of the last computation is in SQL, so a restart computes nothing that is not due.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from sqlalchemy import delete, desc, func, insert, literal, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import EphemeraError
from ephemera_services.league.keys import BOARD, LEADERBOARDS_LOCK, SITE
from ephemera_services.league.loaders import BOARDS
from ephemera_services.league.matches import EXACT
from ephemera_services.league.tables import computed, matches, predictions, ranks
from ephemera_services.runtime import advisory_lock

logger = logging.getLogger(__name__)

_NAME = "leaderboards"
_MAX_INTERVAL = 60.0  # seconds between checks whether they are due
_MAX_RANKS = 1000


class Leaderboards:
    """Computes the leaderboards when they are due."""

    def __init__(self, engine: AsyncEngine, store: Store, every: timedelta) -> None:
        self._engine = engine
        self._site = store[SITE]
        self._lock = store[LEADERBOARDS_LOCK]
        self._every = every

    async def run(self) -> None:
        """Compute them whenever they are due, until cancelled."""
        interval = min(_MAX_INTERVAL, self._every.total_seconds() / 4)
        while True:
            try:
                await self.compute_if_due()
            except (EphemeraError, SQLAlchemyError, OSError) as failure:
                logger.warning("leaderboards were not computed", extra={"failure": type(failure).__name__})
            await asyncio.sleep(interval)

    async def compute_if_due(self) -> bool:
        """Compute them unless they are recent or being computed; whether they were computed."""
        if not await self._is_due():
            return False
        async with self._lock.try_hold() as held:
            if held is None or not await self._is_due():
                return False
            await self.compute()
        return True

    async def compute(self) -> None:
        """Compute them from all predictions, and refresh their pages."""
        async with self._engine.begin() as sql:
            await advisory_lock(sql, _NAME)
            await sql.execute(delete(ranks))
            for board in BOARDS:
                await _rank(sql, board)
            now = {"computed_at": func.now()}
            done = upsert(computed).values(what=_NAME, **now)
            await sql.execute(done.on_conflict_do_update(index_elements=["what"], set_=now))
        await self._site.bump(*(BOARD.at(board=board) for board in BOARDS))
        logger.info("computed the leaderboards")

    async def _is_due(self) -> bool:
        recent = select(computed.c.what).where(
            computed.c.what == _NAME, computed.c.computed_at > func.now() - literal(self._every)
        )
        async with self._engine.connect() as sql:
            return (await sql.execute(recent)).first() is None


async def _rank(sql: AsyncConnection, board: str) -> None:
    points = func.sum(predictions.c.points)
    exact = func.count().filter(predictions.c.points == EXACT)
    rank = func.row_number().over(order_by=(desc(points), desc(exact), predictions.c.user_id))
    standing = (
        select(literal(board), rank.label("rank"), predictions.c.user_id, points, exact)
        .join(matches, matches.c.id == predictions.c.match_id)
        .where(predictions.c.points.is_not(None))
        .group_by(predictions.c.user_id)
        .order_by("rank")
        .limit(_MAX_RANKS)
    )
    if board == "week":
        standing = standing.where(matches.c.ended_at > func.now() - func.make_interval(0, 0, 1))
    await sql.execute(insert(ranks).from_select(["board", "rank", "user_id", "points", "exact"], standing))
