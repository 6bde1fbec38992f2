"""The queue from the planner to the workers: a table in SQL, and a stream that delivers at once.

The planner marks a user as enqueued in SQL (`enqueued_until`) before it publishes to the stream
`cluster_update`. SQL is the queue; the stream only delivers it sooner, to one worker. So nothing is lost with
Redis: workers also poll SQL for enqueued users that no worker runs, immediately while Redis is down, and
otherwise for those who have waited so long that the stream must have lost them. The planner's lock and fence
keep two workers from saving the same user.

A mark lasts 300 s; a user who waits longer is enqueued again. To keep the queue shorter than that, no user is
enqueued while another has waited for half of it.
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
"""A user who waits this long while Redis is up was lost by the stream."""
MAX_WAIT = timedelta(seconds=150)
"""No user is enqueued while another waits this long: half the lifetime of the mark."""
_CANDIDATES = 100  # a worker samples from these, so that workers rarely pick the same user


class QueueLength(NamedTuple):
    """The number of enqueued users, and how long the oldest idle one has waited."""

    length: int
    oldest: timedelta


class ClusterQueue:
    """The queue on one store and database."""

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
        """Called by the planner: the users are in SQL already; publish them if Redis is up."""
        for task in tasks:
            self._metrics.enqueued.labels(task.reason).inc()
        try:
            await self._updates.publish_many([ClusterUpdate(*task) for task in tasks])
        except (ConnectionFailed, ServerError):
            logger.warning("users were enqueued in SQL only", extra={"users": len(tasks)})

    async def waiting(self, min_wait: timedelta, limit: int) -> list[str]:
        """A sample of idle users who were enqueued at least this long ago."""
        c, now = self._users.c, sa.func.clock_timestamp()
        query = (
            sa.select(c.user_id)
            .where(c.enqueued_until > now, c.last_enqueued_at <= now - min_wait, self._idle())
            .order_by(c.last_enqueued_at)
            .limit(_CANDIDATES)
        )
        async with self._engine.connect() as sql:
            users = list((await sql.execute(query)).scalars())
        return random.sample(users, min(limit, len(users)))

    async def length(self) -> QueueLength:
        """The length of the queue, in users and in time."""
        c, now = self._users.c, sa.func.clock_timestamp()
        waited = sa.func.max(now - c.last_enqueued_at).filter(self._idle())
        query = sa.select(sa.func.count(), waited).where(c.enqueued_until > now)
        async with self._engine.connect() as sql:
            length, oldest = (await sql.execute(query)).one()
        return QueueLength(length, oldest or timedelta(0))

    def _idle(self) -> sa.ColumnElement[bool]:
        c = self._users.c
        return c.running_until.is_(None) | (c.running_until <= sa.func.clock_timestamp())
