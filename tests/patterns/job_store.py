"""Opening the tests' jobs on a server and a database, and trying one in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ephemera import keyspace
from ephemera.patterns.jobs import BoundJobs
from ephemera.patterns.jobs._attempts import Attempt
from ephemera.patterns.jobs._engines import sql_engine
from tests.patterns.jobbing import CATALOGUE, JOBS, METADATA


@asynccontextmanager
async def opened(url: str, sql: str, *, required: bool = True) -> AsyncIterator[BoundJobs]:
    """The tests' jobs, with their tables."""
    engine = sql_engine(sql)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(METADATA.create_all)
        async with keyspace.connect(url, CATALOGUE, required=required) as store:
            yield JOBS.on(store, engine)
    finally:
        await engine.dispose()


def attempt_by(
    live: BoundJobs, worker: str = "worker-1", stopping: Callable[[], bool] = lambda: False
) -> Attempt:
    """What a worker's process has, without the process."""

    async def resources() -> Any:
        return live.engine

    return Attempt(live, worker, resources=resources, stopping=stopping)
