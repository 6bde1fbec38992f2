"""From the planner to the workers: a stream says who is to be clustered, and SQL has it too.

The planner marks whom it hands over in SQL (`enqueued_until`), before it hands them over. That is the queue;
the stream `cluster_update` only says it at once, to one worker. So nothing is lost with Redis: workers look
for users who were handed over and whom nobody works on, at once while Redis is away, and otherwise for those
who have waited so long that the stream must have lost them. Two workers on one user are kept apart by the
planner's lock and fence.

A mark lasts 300 s; who waits longer is handed over again. So the queue is kept shorter: nobody is handed over
while somebody has waited for half of that.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.events import BoundEvents
from ephemera.patterns.planner import PlannerTables, Task
from ephemera_services.feed.keys import ClusterUpdate
from ephemera_services.feed.metrics import Metrics

logger = logging.getLogger(__name__)

LOST = timedelta(seconds=30)
"""Who has waited so long while Redis is there was lost by the stream."""
TOO_LONG = timedelta(seconds=150)
"""Nobody is handed over while somebody waits so long: half of the mark."""
_FOUND = 100  # users of which a worker chooses, so that workers seldom choose the same


class Queue(NamedTuple):
    """Who was handed over: how many, and since when the first waits whom nobody works on."""

    length: int
    oldest: timedelta


class HandingOver:
    """The queue, on one store and database."""

    def __init__(
        self,
        updates: BoundEvents[ClusterUpdate],
        engine: AsyncEngine,
        tables: PlannerTables,
        metrics: Metrics,
    ) -> None:
        self._updates = updates
        self._engine = engine
        self._users = tables.user_stats
        self._metrics = metrics

    async def enqueue(self, tasks: Sequence[Task]) -> None:
        """The planner's port: they are in SQL already, and the stream says so if it can."""
        for task in tasks:
            self._metrics.enqueued.labels(task.reason).inc()
        try:
            await self._updates.publish_many([ClusterUpdate(*task) for task in tasks])
        except (ConnectionFailed, ServerError):
            logger.warning("users were handed over by SQL alone", extra={"users": len(tasks)})

    async def waiting(self, for_longer_than: timedelta, most: int) -> list[str]:
        """Some users who were handed over so long ago and whom nobody works on."""
        c, now = self._users.c, sa.func.clock_timestamp()
        query = (
            sa.select(c.user_id)
            .where(c.enqueued_until > now, c.last_enqueued_at <= now - for_longer_than, self._idle())
            .order_by(c.last_enqueued_at)
            .limit(_FOUND)
        )
        async with self._engine.connect() as sql:
            found = list((await sql.execute(query)).scalars())
        return random.sample(found, min(most, len(found)))

    async def queue(self) -> Queue:
        """How long it is, in users and in time."""
        c, now = self._users.c, sa.func.clock_timestamp()
        waited = sa.func.max(now - c.last_enqueued_at).filter(self._idle())
        query = sa.select(sa.func.count(), waited).where(c.enqueued_until > now)
        async with self._engine.connect() as sql:
            length, oldest = (await sql.execute(query)).one()
        return Queue(length, oldest or timedelta(0))

    def _idle(self) -> sa.ColumnElement[bool]:
        c = self._users.c
        return c.running_until.is_(None) | (c.running_until <= sa.func.clock_timestamp())
