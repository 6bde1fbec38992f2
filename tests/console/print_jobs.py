"""Jobs of a print shop with a schedule and long names of queues; run as a module, it is their worker."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from ephemera import Catalogue
from ephemera.patterns.jobs import Cron, Every, Jobs, Run
from tests.patterns.job_worker import main

QUEUE = "posters"
LONG_QUEUE = "international_catalogues_with_many_pages_and_photographs"

CATALOGUE = Catalogue("print")
JOBS = Jobs(CATALOGUE, "print_checkpoint:{job_id}", queues=(QUEUE, LONG_QUEUE), name="print_jobs_of_the_year")


@JOBS.job(queue=QUEUE)
async def print_poster(run: Run, seconds: float) -> None:
    """Take some time."""
    await asyncio.sleep(seconds)


@JOBS.job(queue=LONG_QUEUE)
async def print_catalogue(run: Run) -> None:
    """Print nothing."""


JOBS.schedule("nightly catalogue", Cron("30 2 * * *"), print_catalogue)
JOBS.schedule("a poster a day", Every(timedelta(days=1)), print_poster, 0.0)

if __name__ == "__main__":
    sys.exit(main(JOBS))
