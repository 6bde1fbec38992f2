"""How many jobs there are, by what they do, and how long they took: for metrics, cheap at any size.

Jobs that wait or run are found by the index of the open ones. Those that have ended are counted as they end,
by the index of when they did: each look takes those since the look before, so a table of millions costs no
more than a new one. A job that is retried and ends again is counted again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Double, cast, func, literal, select
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.jobs._tables import OPEN, Tables

DURATIONS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""The upper ends of the classes of durations, in seconds; a last class has no end."""

_COMMITTED = timedelta(seconds=1)  # what ended this long ago is seen by everybody


class OpenJobs(NamedTuple):
    """Jobs that wait or run, of one kind and at one step."""

    queue: str
    kind: str
    state: str
    step: str | None
    """The last step that was recorded, if any was."""
    jobs: int
    waited: float
    """Seconds since the first of them was due."""


class EndedJobs(NamedTuple):
    """Jobs of one kind that ended alike, after about the same time."""

    kind: str
    state: str
    duration: int | None
    """The class of the time from their first attempt's beginning; None when they never began."""
    jobs: int
    seconds: float
    """Of all of them together."""


class JobTally:
    """Looks at the jobs of one database, again and again."""

    def __init__(self, tables: Tables, engine: AsyncEngine) -> None:
        self._jobs = tables.jobs
        self._engine = engine
        self._seen: datetime | None = None

    async def open(self) -> list[OpenJobs]:
        """How many wait and run now."""
        c = self._jobs.c
        waited = func.extract("epoch", func.clock_timestamp() - func.min(c.available_at))
        groups = (c.queue, c.kind, c.state, c.step)
        query = select(*groups, func.count(), waited).where(c.state.in_(OPEN)).group_by(*groups)
        async with self._engine.connect() as sql:
            return [
                OpenJobs(queue, kind, state, step, jobs, max(0.0, float(waits)))
                for queue, kind, state, step, jobs, waits in await sql.execute(query)
            ]

    async def ended(self) -> list[EndedJobs]:
        """Those that ended since the last look; the first look only begins to count."""
        c = self._jobs.c
        seconds = cast(func.extract("epoch", c.finished_at - c.started_at), Double)
        ends = cast(literal(list(DURATIONS), ARRAY(Double)), ARRAY(Double))
        groups = (c.kind, c.state, func.width_bucket(seconds, ends).label("duration"))
        async with self._engine.connect() as sql:
            now: Any = (await sql.execute(select(func.clock_timestamp()))).scalar_one()
            until = now - _COMMITTED
            since = self._seen or until
            query = (
                select(*groups, func.count(), func.coalesce(func.sum(seconds), 0.0))
                .where(c.finished_at > since, c.finished_at <= until)
                .group_by(*groups)
            )
            found = [EndedJobs(*row) for row in await sql.execute(query)]
        self._seen = until
        return found
