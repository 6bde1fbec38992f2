"""Runs the planner: a tick every 30 to 60 s, in one of all workers, whose result every process can show."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.planner import Tick
from ephemera_services.feed.cluster_queue import MAX_WAIT

if TYPE_CHECKING:
    from ephemera_services.feed.service import Aggregator

logger = logging.getLogger(__name__)


class PlannerLoop:
    """Ticks regularly."""

    def __init__(self, aggregator: Aggregator) -> None:
        self._planner = aggregator.planner
        self._queue = aggregator.queue
        self._cache = aggregator.cache
        self._last_tick = aggregator.last_tick
        self._metrics = aggregator.metrics
        self._every = aggregator.settings.tick_seconds

    async def run(self) -> None:
        """Tick until cancelled; a failed tick is counted, logged and retried."""
        while True:
            try:
                await self.tick()
                await self._cache.sweep()
            except Exception:
                self._metrics.errors.labels("tick").inc()
                logger.exception("a tick failed")
            # Jitter: neither all workers at once, nor in step with other periodic work.
            await asyncio.sleep(self._every * random.uniform(0.9, 1.1))

    async def tick(self) -> None:
        """Tick once, unless the workers are too far behind or another process leads."""
        length, oldest = await self._queue.length()
        self._metrics.queue.set(length)
        if oldest >= MAX_WAIT:
            self._metrics.pauses.inc()
            logger.warning("no user is enqueued: the workers are behind", extra={"queue": length})
            return
        tick = await self._planner.tick(self._queue.enqueue)
        if tick.not_leader:
            return
        self._metrics.ticks.labels(tick.mode).inc()
        self._metrics.tick_seconds.observe(tick.seconds)
        await self._last_tick.write(tick)
        if tick.enqueued or tick.full or tick.problem:
            logger.info("tick", extra=msgspec.to_builtins(tick))


class LastTick:
    """The last tick of the leading process, in SQL, so that every process can show it."""

    def __init__(self, engine: AsyncEngine, table: sa.Table) -> None:
        self._engine = engine
        self._table = table

    async def write(self, tick: Tick) -> None:
        """Store a tick, unless a later one is stored."""
        row = insert(self._table).values(one=True, tick=msgspec.to_builtins(tick))
        at = self._table.c.tick["at"].astext.cast(sa.BigInteger)
        newer = row.on_conflict_do_update(
            index_elements=["one"], set_={"tick": row.excluded.tick}, where=at <= tick.at
        )
        async with self._engine.begin() as sql:
            await sql.execute(newer)

    async def read(self) -> Tick | None:
        """The last tick; None before the first."""
        async with self._engine.connect() as sql:
            stored = (await sql.execute(sa.select(self._table.c.tick))).scalar_one_or_none()
        return None if stored is None else msgspec.convert(stored, Tick)
