"""The measured jobs and their worker, configured by its environment: `... job_worker CONCURRENCY`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time

from ephemera import Catalogue
from ephemera.patterns.jobs import Jobs, Retry, Run, WorkerSettings, run_worker

CATALOGUE = Catalogue("bench-jobs")
JOBS = Jobs(CATALOGUE, "bench:checkpoint:{job_id}", queues=("bench", "short"))


@JOBS.job(queue="bench", retry=Retry(attempts=100))
async def steps(run: Run, count: int) -> None:
    """This many steps of 50 ms."""
    for number in range(count):
        await run.step(f"step:{number}", asyncio.sleep, 0.05)


@JOBS.job(queue="short")
async def no_op(run: Run) -> None:
    """Nothing."""


@JOBS.job(queue="short")
async def stamp(run: Run) -> float:
    """When it started."""
    return time.time()


if __name__ == "__main__":
    logging.basicConfig(level="CRITICAL")
    settings = WorkerSettings(os.environ["BENCH_URL"], os.environ["BENCH_SQL"])
    sys.exit(run_worker(JOBS, settings, processes=1, concurrency=int(sys.argv[1])))
