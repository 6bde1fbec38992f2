"""List, count, show, retry and cancel jobs; list schedules; list, pause and resume queues.

Reading needs the database only. Retrying and cancelling notify workers and listeners through Redis; when it
is down, they learn of it from SQL, the workers within about a second.
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
    QueueSettings,
    QueueStats,
    ScheduleRow,
    read_queue_stats,
)
from ephemera.sql import sql_engine
from ephemera.wire import open_client

_POLL_INTERVAL = 0.5  # seconds, for a job that is watched
MAX_RETRIED_JOBS = 1000
"""How many dead jobs are retried at once."""
MAX_COUNTED_JOBS = 10_000
"""How many of the newest jobs are counted."""


class JobServers(NamedTuple):
    """Where jobs are stored: the database, and the Redis servers as for `connect`."""

    database_url: str
    url: str
    queue_url: str | None = None


class JobCounts(msgspec.Struct, frozen=True):
    """The newest jobs by state and kind."""

    now: datetime
    """By the database's clock, as are all times of jobs."""
    counted: int
    """How many jobs were counted: all, or the newest."""
    states: dict[str, int]
    kinds: dict[str, int]
    usual_steps: dict[str, int]
    """The average number of steps of completed jobs, by kind."""


class JobSteps(msgspec.Struct, frozen=True):
    """A job, and the results of its steps."""

    job: JobRow
    steps: dict[str, msgspec.Raw]


class ChangedJobs(NamedTuple):
    """What became of jobs that were to be retried or cancelled."""

    done: list[JobRow]
    refused: list[UnknownJob]
    """Why others were not: not in the table, in another state, or another job has their unique key."""


async def list_jobs(
    jobs: Jobs, database_url: str, *, states: Sequence[str], kind: str | None, limit: int
) -> list[JobRow]:
    """The newest jobs of these states and this kind."""
    async with _rows(jobs, database_url) as rows:
        return await rows.find(states=states, kind=kind, limit=limit)


async def list_schedules(jobs: Jobs, database_url: str) -> list[ScheduleRow]:
    """The schedules of these jobs, the one that runs next first."""
    async with _rows(jobs, database_url) as rows:
        return await rows.schedules()


async def list_queues(jobs: Jobs, database_url: str) -> list[QueueStats]:
    """The queues of these jobs: what is in them, what they did in the last hour, and their limits."""
    engine = sql_engine(database_url)
    try:
        return await read_queue_stats(jobs.tables, engine, jobs.queues)
    finally:
        await engine.dispose()


async def set_paused(
    jobs: Jobs, servers: JobServers, queues: Sequence[str], *, paused: bool
) -> list[QueueSettings]:
    """Pause or resume queues, on all workers; returns the settings of all queues."""
    async with _open_jobs(jobs, servers) as bound:
        for queue in queues:
            await (bound.pause if paused else bound.resume)(queue)
        return await bound.queues()


async def count_jobs(jobs: Jobs, engine: AsyncEngine, limit: int = MAX_COUNTED_JOBS) -> JobCounts:
    """Count the newest jobs by state and kind; one statement, bounded by an index."""
    c, now = jobs.tables.jobs.c, func.clock_timestamp()
    newest = select(c.kind, c.state, c.steps).order_by(c.created_at.desc()).limit(limit).subquery()
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


async def get_job(
    jobs: Jobs, database_url: str, job_id: str, watch: Callable[[JobRow], None] | None = None
) -> JobSteps:
    """One job with its steps; with `watch`, wait until it has ended, calling `watch` with its state."""
    async with _rows(jobs, database_url) as rows:
        while True:
            row = await rows.get(job_id)
            if row is None:
                raise UnknownJob(job_id, "is not in the table")
            if watch is None or row.ended:
                break
            watch(row)
            await asyncio.sleep(_POLL_INTERVAL)
        found = await rows.steps(job_id)
    return JobSteps(row, {name: msgspec.Raw(result) for name, result in found.items()})


async def change_jobs(
    jobs: Jobs,
    servers: JobServers,
    action: Literal["retry", "cancel"],
    job_ids: Sequence[str],
    on_progress: Callable[[int, int], None],
) -> ChangedJobs:
    """Retry or cancel these jobs, or all dead ones when none is given."""
    async with _open_jobs(jobs, servers) as bound:
        return await change_bound_jobs(bound, action, job_ids, on_progress)


async def change_bound_jobs(
    bound: BoundJobs,
    action: Literal["retry", "cancel"],
    job_ids: Sequence[str] = (),
    on_progress: Callable[[int, int], None] | None = None,
) -> ChangedJobs:
    """The same with jobs of a store that is open."""
    if not job_ids:
        job_ids = [row.id for row in await bound.find(states=("dead",), limit=MAX_RETRIED_JOBS)]
    change, changed = bound.retry if action == "retry" else bound.cancel, ChangedJobs([], [])
    for number, job_id in enumerate(job_ids, 1):
        try:
            changed.done.append(await change(job_id))
        except UnknownJob as problem:  # of this one; the others are not delayed by it
            changed.refused.append(problem)
        if on_progress is not None:
            on_progress(number, len(job_ids))
    return changed


@asynccontextmanager
async def _rows(jobs: Jobs, database_url: str) -> AsyncIterator[JobQueries]:
    engine = sql_engine(database_url)
    try:
        yield JobQueries(jobs.tables, engine)
    finally:
        await engine.dispose()


@asynccontextmanager
async def _open_jobs(jobs: Jobs, servers: JobServers) -> AsyncIterator[BoundJobs]:
    engine = sql_engine(servers.database_url)
    # Not `connect`: it refuses a server marked with another name, and the operator chose this one.
    async with AsyncExitStack() as opened:
        opened.push_async_callback(engine.dispose)
        cache = queue = await opened.enter_async_context(open_client(servers.url, required=False))
        if servers.queue_url is not None:
            queue = await opened.enter_async_context(open_client(servers.queue_url, required=False))
        resources = await opened.enter_async_context(jobs.open_resources(engine))
        store = Store({"cache": cache, "queue": queue}, jobs.catalogue, resources=resources)
        opened.push_async_callback(store.aclose)
        yield store[jobs]
