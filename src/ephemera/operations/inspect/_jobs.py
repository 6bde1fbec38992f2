"""What an operator does with jobs: look at them, have them tried again, cancel them.

Looking needs the database alone. Retrying and cancelling tell the workers and those who listen, by Redis;
when it is down they hear of it from SQL, the workers within about a second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import UnknownJob
from ephemera.keyspace import Store
from ephemera.patterns.jobs import (
    BoundJobs,
    JobQueries,
    JobRow,
    Jobs,
    sql_engine,
)
from ephemera.wire import open_client

_LOOK = 0.5  # seconds between two looks at a job that is waited for
_MOST = 1000  # dead jobs that are retried at once
COUNTED = 10_000
"""How many of the newest jobs are counted."""


class Places(NamedTuple):
    """Where jobs are: the servers of `connect`, and the database."""

    database_url: str
    url: str
    queue_url: str | None = None


class JobCounts(msgspec.Struct, frozen=True):
    """How many of the newest jobs there are, by what became of them."""

    now: datetime
    """By the database's clock, as all times of jobs are."""
    of: int
    """How many were looked at: all, or the newest so many."""
    states: dict[str, int]
    kinds: dict[str, int]
    usual_steps: dict[str, int]
    """How many steps a job of a kind usually has: what those that are done had, about."""


class JobSteps(msgspec.Struct, frozen=True):
    """A job, and what its steps came to."""

    job: JobRow
    steps: dict[str, msgspec.Raw]


async def listed(
    jobs: Jobs, database_url: str, *, states: Sequence[str], kind: str | None, most: int
) -> list[JobRow]:
    """The newest jobs of these states and this kind."""
    async with _rows(jobs, database_url) as rows:
        return await rows.find(states=states, kind=kind, limit=most)


async def counted(jobs: Jobs, engine: AsyncEngine, most: int = COUNTED) -> JobCounts:
    """The newest jobs by state and kind; one statement, which an index bounds."""
    c, now = jobs.tables.jobs.c, func.clock_timestamp()
    newest = select(c.kind, c.state, c.steps).order_by(c.created_at.desc()).limit(most).subquery()
    groups = (newest.c.kind, newest.c.state)
    query = select(*groups, func.count(), func.round(func.avg(newest.c.steps))).group_by(*groups)
    states: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    usual: dict[str, int] = {}
    async with engine.connect() as sql:
        at = (await sql.execute(select(now))).scalar_one()
        for kind, state, count, steps in await sql.execute(query):
            states[state] += count
            kinds[kind] += count
            if state == "done":
                usual[kind] = int(steps)
    return JobCounts(at, sum(states.values()), dict(states), dict(kinds), usual)


async def shown(
    jobs: Jobs, database_url: str, job_id: str, watch: Callable[[JobRow], None] | None = None
) -> JobSteps:
    """One job with its steps; with `watch`, when it has ended, and `watch` sees it on its way there."""
    async with _rows(jobs, database_url) as rows:
        while True:
            row = await rows.get(job_id)
            if row is None:
                raise UnknownJob(job_id, "is not in the table")
            if watch is None or row.ended:
                break
            watch(row)
            await asyncio.sleep(_LOOK)
        found = await rows.steps(job_id)
    return JobSteps(row, {name: msgspec.Raw(result) for name, result in found.items()})


async def changed(
    jobs: Jobs,
    places: Places,
    what: Literal["retry", "cancel"],
    job_ids: Sequence[str],
    tell: Callable[[int, int], None],
) -> list[JobRow]:
    """Retry or cancel these jobs, or all dead ones when none is named; `tell` hears how far it is."""
    async with _open_jobs(jobs, places) as bound:
        if not job_ids:
            job_ids = [row.id for row in await bound.find(states=("dead",), limit=_MOST)]
        done = []
        change = bound.retry if what == "retry" else bound.cancel
        for job_id in job_ids:
            done.append(await change(job_id))
            tell(len(done), len(job_ids))
    return done


@asynccontextmanager
async def _rows(jobs: Jobs, database_url: str) -> AsyncIterator[JobQueries]:
    engine = sql_engine(database_url)
    try:
        yield JobQueries(jobs.tables, engine)
    finally:
        await engine.dispose()


@asynccontextmanager
async def _open_jobs(jobs: Jobs, places: Places) -> AsyncIterator[BoundJobs]:
    engine = sql_engine(places.database_url)
    # No `connect`: it would refuse a server that is marked with a name, and an operator knows which it is.
    async with AsyncExitStack() as opened:
        opened.push_async_callback(engine.dispose)
        cache = queue = await opened.enter_async_context(open_client(places.url, required=False))
        if places.queue_url is not None:
            queue = await opened.enter_async_context(open_client(places.queue_url, required=False))
        resources = await opened.enter_async_context(jobs.open_resources(engine))
        store = Store({"cache": cache, "queue": queue}, jobs.catalogue, resources=resources)
        opened.push_async_callback(store.aclose)
        yield store[jobs]
