"""Jobs of which one kills its process: `python -m tests.defects.poison_jobs` is a worker of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from ephemera import Catalogue, connect
from ephemera.patterns.jobs import BoundJobs, Jobs, Retry, Run, _sql_worker, _supervisor, sql_engine
from ephemera.sql import migrate
from tests.patterns.job_worker import main

CATALOGUE = Catalogue("poison-jobs")
JOBS = Jobs(CATALOGUE, "checkpoint:{job_id}", queues=("work",), lease=timedelta(seconds=2))

_SOON = 0.05  # seconds; by then the others run


@JOBS.job(queue="work", retry=Retry(backoff=timedelta(0)))
async def work(run: Run, seconds: float) -> str:
    """Work for a while."""
    await asyncio.sleep(seconds)
    return "worked"


@JOBS.job(queue="work")
async def kill(run: Run) -> None:
    """Kill its process, as a native crash does."""
    await asyncio.sleep(_SOON)
    os.kill(os.getpid(), signal.SIGKILL)


@JOBS.job(queue="work", retry=Retry(attempts=1))
async def kill_worker(run: Run) -> None:
    """Kill all processes of its worker, as a container that is out of memory does."""
    await asyncio.sleep(_SOON)
    os.killpg(0, signal.SIGKILL)


@asynccontextmanager
async def opened(url: str, sql: str) -> AsyncIterator[BoundJobs]:
    """The jobs, with their tables."""
    engine = sql_engine(sql)
    try:
        await migrate(engine, JOBS)
        async with connect(url, CATALOGUE, resources={JOBS: engine}) as store:
            yield store[JOBS]
    finally:
        await engine.dispose()


if __name__ == "__main__":
    from tests.defects.poison_jobs import JOBS as DECLARED  # not those of `__main__`

    _supervisor._PAUSE = 0.1  # seconds, rather than one
    _sql_worker._IDLE = 1.0  # rather than five
    sys.exit(main(DECLARED))
