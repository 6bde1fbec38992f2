"""The tests' jobs on a server and a database, and attempts in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ephemera import keyspace
from ephemera.patterns.jobs import BoundJobs, sql_engine
from ephemera.patterns.jobs._worker import AttemptRunner
from tests.patterns.job_fixtures import CATALOGUE, JOBS, METADATA


@asynccontextmanager
async def opened(url: str, sql: str, *, required: bool = True) -> AsyncIterator[BoundJobs]:
    """The tests' jobs, with their tables."""
    engine = sql_engine(sql)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(METADATA.create_all)
        resources = {JOBS: engine}
        async with keyspace.connect(url, CATALOGUE, required=required, resources=resources) as store:
            yield store[JOBS]
    finally:
        await engine.dispose()


def attempt_by(
    jobs: BoundJobs, worker: str = "worker-1", is_stopping: Callable[[], bool] = lambda: False
) -> AttemptRunner:
    """Runs jobs as a worker process does, in the test's own process."""

    async def worker_context() -> Any:
        return jobs.engine

    return AttemptRunner(jobs._backend, worker, worker_context=worker_context, is_stopping=is_stopping)
