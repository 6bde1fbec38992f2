"""The queues of a database: their limits, and what they did in the last hour.

*Limits.* A queue may be paused, and limited in how many of its jobs run at once and how many start in a time.
A queue without a row here has no limits, and its jobs are claimed without a look at this table. A claim from
a limited queue locks the queue's row first, so that two workers cannot both take the last place: the jobs
that run are then counted by a statement of its own, which sees every claim that was made under the lock
before.

*Rates.* `starts` holds how many jobs started in each recent fiftieth of the period. A part counts until all
of it is older than the period, so in no span of that length more jobs start than the limit allows.

*Statistics*, how many jobs ended, how long they waited and ran, come from the rows, so they cover all
workers, those that have ended included, and need no Redis. All jobs that ended in the hour are counted, by
the index of their end; the times are those of the newest `MAX_ENDED`.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import (
    Double,
    and_,
    cast,
    func,
    literal,
    literal_column,
    select,
    text,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import InvalidDeclaration
from ephemera.patterns.jobs._tables import JobTables

Rate = tuple[int, timedelta]
"""How many jobs may start in a time."""
MINUTES = 60
"""How far back the statistics reach."""
MAX_ENDED = 100_000
"""Of how many of the newest jobs that ended the times are read."""
_PERCENTILES = (0.5, 0.95)

_PARTS = 50  # of a rate's period
_LOCK_TIMEOUT = text("SELECT set_config('idle_in_transaction_session_timeout', '3000', true)")
"""A worker that hangs while it holds a queue's row stops the others for 3 s, not forever."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue may be worked on."""

    queue: str
    paused: bool = False
    """Whether its waiting jobs are not started; running ones continue."""
    max_running: int | None = None
    """How many of its jobs run at once, in all workers together."""
    rate: Rate | None = None
    """How many of its jobs start in a time, in all workers together."""

    @property
    def is_limited(self) -> bool:
        """Whether a claim must count."""
        return self.max_running is not None or self.rate is not None


class QueueTable:
    """The settings of queues in one database."""

    def __init__(self, tables: JobTables, engine: AsyncEngine) -> None:
        self._jobs, self._queues = tables.jobs, tables.queues
        self._engine = engine.execution_options(isolation_level="READ COMMITTED")

    async def load(self) -> dict[str, QueueSettings]:
        """The settings of all queues that have any."""
        c = self._queues.c
        columns = (c.queue, c.paused, c.max_running, c.rate_limit, c.rate_period)
        async with self._engine.connect() as sql:
            found = await sql.execute(select(*columns))
            return {
                queue: QueueSettings(
                    queue=queue, paused=paused, max_running=most, rate=(limit, period) if limit else None
                )
                for queue, paused, most, limit, period in found
            }

    async def set(self, queue: str, **values: Any) -> None:
        """Set some columns of a queue's row."""
        statement = upsert(self._queues).values(queue=queue, **values)
        change = statement.on_conflict_do_update(index_elements=[self._queues.c.queue], set_=values)
        async with self._engine.begin() as sql:
            await sql.execute(change)

    @asynccontextmanager
    async def places(self, queue: str, wanted: int, *, wait: bool = False) -> AsyncIterator[Places]:
        """Up to `wanted` places for jobs of a limited queue, in a transaction that claims them.

        There is none while another worker claims from the queue, unless this one is to `wait` for it.
        """
        q = self._queues.c
        row = select(q.paused, q.max_running, q.rate_limit, q.rate_period, q.starts, _epoch())
        async with self._engine.begin() as sql:
            await sql.execute(_LOCK_TIMEOUT)
            locked = row.where(q.queue == queue).with_for_update(skip_locked=not wait)
            found = (await sql.execute(locked)).first()
            if found is None or found.paused:
                yield Places(sql, 0)
                return
            free = wanted
            if found.max_running is not None:
                free = min(free, found.max_running - await self._running(sql, queue))
            window = _Window(found.starts, found.rate_limit, found.rate_period, float(found[-1]))
            places = Places(sql, max(0, min(free, window.free)))
            yield places
            if window.is_limited and places.taken:
                await sql.execute(
                    update(self._queues).where(q.queue == queue).values(starts=window.after(places.taken))
                )

    async def free_places(self, queue: str, wanted: int) -> int:
        """How many places a limited queue has now, at most `wanted`."""
        async with self.places(queue, wanted) as places:
            return places.free

    async def _running(self, sql: AsyncConnection, queue: str) -> int:
        c = self._jobs.c
        alive = (c.queue == queue, c.state == literal_column("'running'"), c.lease_until >= func.now())
        return int((await sql.execute(select(func.count()).where(*alive))).scalar_one())


class Places:
    """Places for jobs of a limited queue, and the transaction in which they are taken."""

    def __init__(self, sql: AsyncConnection, free: int) -> None:
        self.sql = sql
        self.free = free
        self.taken = 0


class _Window:
    """The recent starts of a queue: pairs of a part's end in seconds and the number of its starts."""

    def __init__(self, starts: Any, limit: int | None, period: timedelta | None, now: float) -> None:
        self.is_limited = limit is not None and period is not None
        self._seconds = period.total_seconds() if period else 0.0
        self._now = now
        self._kept = [(end, count) for end, count in starts if end > now - self._seconds]
        self.free = sys.maxsize if limit is None else limit - sum(count for _, count in self._kept)

    def after(self, started: int) -> list[tuple[float, int]]:
        """The starts, with these."""
        part = self._seconds / _PARTS
        end = (math.floor(self._now / part) + 1) * part
        if self._kept and self._kept[-1][0] == end:
            return [*self._kept[:-1], (end, self._kept[-1][1] + started)]
        return [*self._kept, (end, started)]


def limit_columns(queue: str, max_running: int | None, rate: Rate | None) -> dict[str, Any]:
    """The columns of these limits; `InvalidDeclaration` for limits that no job could pass."""
    if max_running is not None and max_running < 1:
        raise InvalidDeclaration(queue, f"max_running={max_running}", "use at least 1, or pause the queue")
    limit, period = rate or (None, None)
    if rate is not None and (rate[0] < 1 or rate[1] <= timedelta(0)):
        raise InvalidDeclaration(queue, f"rate={rate}", "as in rate=(100, timedelta(seconds=1))")
    return {"max_running": max_running, "rate_limit": limit, "rate_period": period}


def _epoch() -> Any:
    return func.extract("epoch", func.clock_timestamp())


Percentiles: TypeAlias = tuple[float, float]
"""The median and the 95th percentile."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """A queue now, and in the last hour; durations are in seconds."""

    settings: QueueSettings
    waiting: int
    """Jobs that are due and not running."""
    delayed: int
    """Jobs that are not due yet."""
    running: int
    per_minute: tuple[int, ...]
    """How many jobs ended in each of the last 60 minutes, the latest one last."""
    wait: Percentiles | None
    """The median and the 95th percentile from being due to the start, of jobs with one attempt.

    They are those of the newest 100,000 jobs of all queues that ended.
    """
    run: Percentiles | None
    """The same from the start to the end, of jobs that are done."""
    wait_per_minute: tuple[Percentiles | None, ...]
    """`wait` in each of the last 60 minutes, the latest one last; None without a job among those."""
    run_per_minute: tuple[Percentiles | None, ...]
    """The same of `run`."""

    @property
    def queue(self) -> str:
        """Its name."""
        return self.settings.queue


async def read_queue_stats(tables: JobTables, engine: AsyncEngine, queues: Sequence[str]) -> list[QueueStats]:
    """The statistics of these queues, in their order."""
    settings = await QueueTable(tables, engine).load()
    async with engine.connect() as sql:
        opened = {(queue, state): jobs for queue, state, jobs in await sql.execute(_open_jobs(tables))}
        ended = _ended(tables)
        minutes = await _per_minute(sql, tables)
        waits = await _percentiles(sql, ended, ended.c.waited, ended.c.attempts == 1)
        runs = await _percentiles(sql, ended, ended.c.ran, ended.c.state == "done")
    return [
        QueueStats(
            settings=settings.get(queue, QueueSettings(queue=queue)),
            waiting=opened.get((queue, "waiting"), 0),
            delayed=opened.get((queue, "delayed"), 0),
            running=opened.get((queue, "running"), 0),
            per_minute=tuple(minutes[queue].get(minute, 0) for minute in reversed(range(MINUTES))),
            wait=waits.get((queue, None)),
            run=runs.get((queue, None)),
            wait_per_minute=tuple(waits.get((queue, minute)) for minute in reversed(range(MINUTES))),
            run_per_minute=tuple(runs.get((queue, minute)) for minute in reversed(range(MINUTES))),
        )
        for queue in queues
    ]


def _open_jobs(tables: JobTables) -> Any:
    """Jobs by queue and state; one part for each, because each has an index of its own."""
    c, now = tables.jobs.c, func.clock_timestamp()
    parts = {
        "waiting": and_(c.state == "waiting", c.available_at <= now),
        "delayed": and_(c.state == "waiting", c.available_at > now),
        "running": c.state == "running",
    }
    return union_all(
        *(
            select(c.queue, literal(name), func.count()).where(where).group_by(c.queue)
            for name, where in parts.items()
        )
    )


def _ended(tables: JobTables) -> Any:
    """The newest jobs that ended, with their times."""
    c = tables.jobs.c
    columns = (
        c.queue,
        c.state,
        c.attempts,
        _minute(c).label("minute"),
        _seconds(c.started_at - c.available_at).label("waited"),
        _seconds(c.finished_at - c.started_at).label("ran"),
    )
    return select(*columns).where(_is_recent(c)).order_by(c.finished_at.desc()).limit(MAX_ENDED).subquery()


def _seconds(span: Any) -> Any:
    return cast(func.extract("epoch", span), Double)


def _minute(c: Any) -> Any:
    """How many whole minutes ago a job ended."""
    return func.floor(_seconds(func.statement_timestamp() - c.finished_at) / 60)


def _is_recent(c: Any) -> Any:
    return c.finished_at > func.statement_timestamp() - timedelta(minutes=MINUTES)


async def _per_minute(sql: AsyncConnection, tables: JobTables) -> dict[str, dict[int, int]]:
    c = tables.jobs.c
    ended = select(c.queue, _minute(c).label("minute")).where(_is_recent(c)).subquery().c
    counted = select(ended.queue, ended.minute, func.count()).group_by(ended.queue, ended.minute)
    found: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for queue, minute, jobs in await sql.execute(counted):
        found[queue][int(minute)] = jobs
    return found


async def _percentiles(
    sql: AsyncConnection, ended: Any, value: Any, where: Any
) -> dict[tuple[str, int | None], Percentiles]:
    """Percentiles by queue and minute, and by queue alone, where the minute is None."""
    queue, minute = ended.c.queue, ended.c.minute
    of = (func.percentile_cont(share).within_group(func.greatest(value, 0.0)) for share in _PERCENTILES)
    groups = func.grouping_sets(tuple_(queue), tuple_(queue, minute))
    query = select(queue, minute, *of).where(where, value.is_not(None)).group_by(groups)
    return {
        (name, None if at is None else int(at)): (median, high)
        for name, at, median, high in await sql.execute(query)
    }
