"""The measured jobs and their worker, which is configured by its environment."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from ephemera import Catalogue
from ephemera.patterns.jobs import Jobs, Run, WorkerSettings, run_worker

CATALOGUE = Catalogue("bench-jobs")
JOBS = Jobs(CATALOGUE, "bench:checkpoint:{job_id}", queues=("bench",))


@JOBS.job(queue="bench", attempts=100)
async def steps(run: Run, count: int) -> None:
    """So many steps of 50 ms."""
    for number in range(count):
        await run.step(f"step:{number}", asyncio.sleep, 0.05)


if __name__ == "__main__":
    logging.basicConfig(level="CRITICAL")
    sys.exit(run_worker(JOBS, WorkerSettings(os.environ["BENCH_URL"], os.environ["BENCH_SQL"]), processes=1))
