"""How many jobs there are, by what they do and how long they took: for metrics, cheap at any size of the table.

Jobs that wait or run are found by the index of the open ones. Those that have ended are counted as they end,
by the index of when they did: each look takes those since the look before, so a table of millions costs no
more than a new one. A job that is retried and ends again is counted again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import and_, func, select

from ephemera.patterns.jobs.tables import OPEN

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ephemera.patterns.jobs.tables import Tables

_COMMITTED = timedelta(seconds=1)  # what ended this long ago is seen by everybody


class OpenJobs(NamedTuple):
    """Jobs that wait or run, of one kind and at one step."""

    queue: str
    kind: str
    state: str
    step: str | None
    """The last step that was recorded, of those that run."""
    count: int
    waited: float
    """Seconds since the oldest of those that wait was due."""


class EndedJob(NamedTuple):
    """A job that has ended."""

    kind: str
    state: str
    seconds: float | None
    """From the beginning of its first attempt; None when it never began."""


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
        step = func.nullif(c.step, "") if c.step is None else c.step
        query = (
            select(c.queue, c.kind, c.state, step, func.count(), waited)
            .where(c.state.in_(OPEN))
            .group_by(c.queue, c.kind, c.state, step)
        )
        async with self._engine.connect() as sql:
            return [OpenJobs(*row[:5], max(0.0, float(row[5]))) for row in await sql.execute(query)]

    async def ended(self) -> list[EndedJob]:
        """Those that ended since the last look; the first look only begins to count."""
        c = self._jobs.c
        async with self._engine.connect() as sql:
            now: Any = (await sql.execute(select(func.clock_timestamp()))).scalar_one()
            until = now - _COMMITTED
            since, self._seen = self._seen, until
            if since is None:
                return []
            seconds = func.extract("epoch", c.finished_at - c.started_at)
            query = select(c.kind, c.state, seconds).where(
                and_(c.finished_at > since, c.finished_at <= until)
            )
            return [
                EndedJob(kind, state, None if took is None else float(took))
                for kind, state, took in await sql.execute(query)
            ]
