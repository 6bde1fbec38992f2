"""Leaderboards: computed every six hours and after each finalization, by one process, then prewarmed.

The time of the last computation is in SQL, so a restart computes nothing that is not due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Insert, delete, desc, func, insert, literal, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import EphemeraError
from ephemera_services.league.keys import BOARD, LEADERBOARDS_LOCK, SEASON_BOARD, SITE
from ephemera_services.league.loaders import BOARDS, board_of
from ephemera_services.league.points import EXACT
from ephemera_services.league.seasons import ALL
from ephemera_services.league.tables import computed, matches, predictions, ranks, seasons
from ephemera_services.runtime import advisory_lock

logger = logging.getLogger(__name__)

_NAME = "leaderboards"
_MAX_INTERVAL = 60.0  # seconds between checks whether they are due


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
            for statement in _rankings():
                await sql.execute(statement)
            now = {"computed_at": func.now()}
            done = upsert(computed).values(what=_NAME, **now)
            await sql.execute(done.on_conflict_do_update(index_elements=["what"], set_=now))
            seasons_ = list((await sql.execute(select(seasons.c.id))).scalars())
        await self._site.bump(
            *(BOARD.at(board=board) for board in BOARDS), SEASON_BOARD.at(board="season", season=ALL)
        )
        await self._site.delete(*(SEASON_BOARD.at(board="season", season=str(each)) for each in seasons_))
        logger.info("computed the leaderboards")

    async def _is_due(self) -> bool:
        recent = select(computed.c.what).where(
            computed.c.what == _NAME, computed.c.computed_at > func.now() - literal(self._every)
        )
        async with self._engine.connect() as sql:
            return (await sql.execute(recent)).first() is None


def _rankings() -> Iterator[Insert]:
    """The leaderboards of each season, of all of them, and of the last week."""
    last_week = matches.c.ended_at > func.now() - func.make_interval(0, 0, 1)
    yield _ranking(board_of(matches.c.season_id), (matches.c.season_id,))
    yield _ranking(literal(ALL), ())
    yield _ranking(literal("week"), (), last_week)


def _ranking(board: Any, of: tuple[Any, ...], *conditions: ColumnElement[bool]) -> Insert:
    """Rank everyone with points: each user sees the own place, however far down it is."""
    points = func.sum(predictions.c.points)
    exact = func.count().filter(predictions.c.points == EXACT)
    order = (desc(points), desc(exact), predictions.c.user_id)
    rank = func.row_number().over(partition_by=of or None, order_by=order)
    every = (
        select(board.label("board"), rank.label("rank"), predictions.c.user_id, points, exact)
        .join(matches, matches.c.id == predictions.c.match_id)
        .where(predictions.c.points.is_not(None), *conditions)
        .group_by(predictions.c.user_id, *of)
    )
    return insert(ranks).from_select(["board", "rank", "user_id", "points", "exact"], every)
