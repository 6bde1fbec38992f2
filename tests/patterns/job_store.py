"""The tests' jobs on a server and a database, and attempts in the test's own process."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import keyspace
from ephemera.patterns.jobs import BoundJobs, CeleryDelivery, JobRow, Jobs, Run, sql_engine
from ephemera.patterns.jobs._attempt import AttemptEngines, AttemptRunner
from ephemera.patterns.jobs._delivery import PRIORITY_LEVELS, CeleryMessages, _list_key
from ephemera.patterns.jobs._reaper import send_missing_messages
from ephemera.patterns.jobs._rows import HeldJob
from ephemera.patterns.jobs._run_context import JobThreads, resume_run
from ephemera.sql import migrate
from tests.patterns.job_fixtures import CATALOGUE, JOBS, METADATA


@asynccontextmanager
async def opened(
    url: str, sql: str, *, delivery: str = "sql", required: bool = True
) -> AsyncIterator[BoundJobs]:
    """The tests' jobs, with their tables."""
    engine = sql_engine(sql)
    try:
        await migrate(engine, JOBS)
        async with engine.begin() as connection:
            await connection.run_sync(METADATA.create_all)  # those of the tests
        resources = {JOBS: delivered_by(delivery, engine)}
        async with keyspace.connect(url, CATALOGUE, required=required, resources=resources) as store:
            yield store[JOBS]
    finally:
        await engine.dispose()


async def waiting_messages(jobs: BoundJobs, queue: str) -> int:
    """How many jobs of a queue workers learn of now: messages with Celery, and due rows without."""
    messages = jobs._backend.delivery
    if isinstance(messages, CeleryMessages):
        return await messages.queue_length(queue)
    c = jobs.declaration.tables.jobs.c
    due = (c.queue == queue, c.state == "waiting", c.available_at <= func.clock_timestamp())
    async with jobs.engine.connect() as sql:
        return int((await sql.execute(select(func.count()).where(*due))).scalar_one())


def job_of(message: bytes) -> str:
    """The id of the job that a message of Celery names."""
    arguments = json.loads(base64.b64decode(json.loads(message)["body"]))[0]
    return str(arguments[0])


async def sent(jobs: BoundJobs, queue: str) -> int:
    """The same, when the reaper has looked twice."""
    for _ in range(2):
        await send_missing_messages(jobs._backend)
    return await waiting_messages(jobs, queue)


def delivered_by(delivery: str, engine: AsyncEngine) -> AsyncEngine | CeleryDelivery:
    """The resource that jobs need for a delivery."""
    return CeleryDelivery(engine) if delivery == "celery" else engine


def message_lists(jobs: Jobs, queue: str) -> list[str]:
    """The keys of all lists of a queue of Celery's."""
    return [_list_key(jobs.queue_key(queue), level) for level in PRIORITY_LEVELS]


def attempt_by(
    jobs: BoundJobs,
    worker: str = "worker-1",
    is_stopping: Callable[[], bool] = lambda: False,
    engines: AttemptEngines | None = None,
    threads: JobThreads | None = None,
) -> AttemptRunner:
    """Runs jobs as a worker process does, in the test's own process."""

    async def worker_context() -> Any:
        return jobs.engine

    return AttemptRunner(
        jobs._backend,
        worker,
        worker_context=worker_context,
        is_stopping=is_stopping,
        engines=engines,
        threads=threads,
    )


async def resumed(jobs: BoundJobs, row: JobRow) -> Run:
    """The run of a job that a test has claimed."""
    run = Run(jobs._backend, row)
    await resume_run(run, jobs._backend, jobs._backend.queries)
    return run


async def lapse(jobs: BoundJobs, job_id: str) -> None:
    """Have the lease of a running job expire, as if its worker had hung for longer than that."""
    row = await jobs.get(job_id)
    assert await jobs._backend.rows.renew([HeldJob(job_id, row.fence)], timedelta(seconds=-1))
