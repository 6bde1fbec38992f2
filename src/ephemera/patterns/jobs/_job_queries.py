"""Read-only SQL: look up jobs, and count them for metrics at a cost that does not grow with the table.

Jobs that wait or run are found by the index of open jobs. Jobs that have ended are counted as they end, by
the index of their end: each call reads those since the call before, so a table of millions costs no more than
a new one. A job that is retried and ends again is counted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ARRAY, Double, cast, func, literal, select, union_all
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.jobs._tables import OPEN_STATES, JobRow, JobTables, read_row, row_columns

DURATION_BUCKETS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""The upper bounds of the buckets of durations, in seconds; a last bucket has none."""

_COMMITTED = timedelta(seconds=1)  # what ended this long ago has been committed, and every query sees it


class ScheduleRow(msgspec.Struct, frozen=True):
    """A schedule as it is in SQL."""

    name: str
    kind: str
    """Of the jobs it enqueues."""
    definition: str
    """As in `0 3 * * * Europe/Berlin`."""
    next_run_at: datetime
    last_run_at: datetime | None
    """The last run that a job was enqueued for."""
    last_job_id: str | None


class JobQueries:
    """Jobs as they are in one database. It needs no Redis."""

    def __init__(self, tables: JobTables, engine: AsyncEngine) -> None:
        self._jobs, self._steps = tables.jobs, tables.steps
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._columns = row_columns(tables)
        self._schedules = tables.schedules

    async def get(self, job_id: str) -> JobRow | None:
        """A job, or None."""
        async with self._engine.connect() as sql:
            found = (await sql.execute(select(*self._columns).where(self._jobs.c.id == job_id))).first()
        return None if found is None else read_row(found)

    async def steps(self, job_id: str) -> dict[str, bytes]:
        """The results of a job's recorded steps, as JSON."""
        s = self._steps.c
        async with self._engine.connect() as sql:
            found = await sql.execute(select(s.name, s.result).where(s.job_id == job_id))
            return {name: result.encode() for name, result in found}

    async def find(
        self,
        *,
        states: Sequence[str] = (),
        kind: str | None = None,
        limit: int = 50,
        before: datetime | None = None,
    ) -> list[JobRow]:
        """The newest jobs, optionally of some states, of one kind, or created before a moment.

        Args:
            states: The states; by default all.
            kind: The name of a kind of job; by default all.
            limit: How many at most.
            before: Only jobs created before this moment, for the next page.

        """
        c = self._jobs.c
        query = select(*self._columns).order_by(c.created_at.desc()).limit(limit)
        if states:
            query = query.where(c.state.in_(states))
        if kind is not None:
            query = query.where(c.kind == kind)
        if before is not None:
            query = query.where(c.created_at < before)
        async with self._engine.connect() as sql:
            return [read_row(row) for row in await sql.execute(query)]

    async def schedules(self) -> list[ScheduleRow]:
        """All schedules, the one that runs next first."""
        query = select(self._schedules).order_by(self._schedules.c.next_run_at, self._schedules.c.name)
        async with self._engine.connect() as sql:
            return [ScheduleRow(*row) for row in await sql.execute(query)]


class OpenJobs(NamedTuple):
    """Jobs that wait or run, of one kind and at one step."""

    queue: str
    kind: str
    state: str
    step: str | None
    """The step recorded last, if any."""
    jobs: int
    waited: float
    """Seconds since the first of them was due."""


class EndedJobs(NamedTuple):
    """Jobs of one kind that ended in the same state, in one bucket of durations."""

    kind: str
    state: str
    bucket: int | None
    """The bucket of the time since their first attempt began; None if they never began."""
    jobs: int
    seconds: float
    """The sum of their durations."""


class JobCounter:
    """Counts of the jobs in one database, for a caller that asks repeatedly."""

    def __init__(self, tables: JobTables, engine: AsyncEngine) -> None:
        self._jobs = tables.jobs
        self._engine = engine
        self._counted_until: datetime | None = None

    async def open(self) -> list[OpenJobs]:
        """How many wait and run now."""
        c = self._jobs.c
        waited = func.extract("epoch", func.clock_timestamp() - func.min(c.available_at))
        groups = (c.queue, c.kind, c.state, c.step)
        # One part for each state, because each has an index of its own.
        query = union_all(
            *(
                select(*groups, func.count(), waited).where(c.state == state).group_by(*groups)
                for state in OPEN_STATES
            )
        )
        async with self._engine.connect() as sql:
            return [
                OpenJobs(queue, kind, state, step, jobs, max(0.0, float(waits)))
                for queue, kind, state, step, jobs, waits in await sql.execute(query)
            ]

    async def ended(self) -> list[EndedJobs]:
        """Those that ended since the last call; the first call only starts the count."""
        c = self._jobs.c
        seconds = cast(func.extract("epoch", c.finished_at - c.started_at), Double)
        bounds = cast(literal(list(DURATION_BUCKETS), ARRAY(Double)), ARRAY(Double))
        groups = (c.kind, c.state, func.width_bucket(seconds, bounds).label("bucket"))
        async with self._engine.connect() as sql:
            now: Any = (await sql.execute(select(func.clock_timestamp()))).scalar_one()
            until = now - _COMMITTED
            since = self._counted_until or until
            query = (
                select(*groups, func.count(), func.coalesce(func.sum(seconds), 0.0))
                .where(c.finished_at > since, c.finished_at <= until)
                .group_by(*groups)
            )
            found = [EndedJobs(*row) for row in await sql.execute(query)]
        self._counted_until = until
        return found
