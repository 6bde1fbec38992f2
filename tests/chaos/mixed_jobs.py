"""Jobs of all sorts in two versions of a service, of which the new one knows a kind more: `... mixed_jobs`.

Each step of a job writes a row with its fence and the database's time, so that a test sees what ran twice or
too early. As a module it is a worker; `WORKER_VERSION=new` makes it one of the new version.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from typing import Literal

from sqlalchemy import Column, DateTime, Integer, MetaData, Table, Text, func, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera import Catalogue
from ephemera.patterns.jobs import Cron, Every, Jobs, Retry, Run
from tests.patterns.job_worker import main

STEPS = 3
_PAUSE = 0.05  # seconds, in each step
_RETRY = Retry(backoff=timedelta(seconds=0.2), max_delay=timedelta(seconds=1))  # the default attempts
EFFECTS = Table(
    "effects",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
)
"""A row for each effect of a job, duplicates included."""


async def _work(run: Run) -> int:
    async def effect(sql: AsyncConnection, step: int) -> int:
        await sql.execute(insert(EFFECTS).values(job_id=run.id, step=step, fence=run.fence))
        return step

    for step in range(STEPS):
        await asyncio.sleep(_PAUSE)
        await run.transact(f"step:{step}", effect, step)
    return STEPS


async def _send(run: Run, number: int) -> int:
    """Is enqueued in all ways: at once, later, once, or before others."""
    return await _work(run)


async def _report(run: Run) -> int:
    """Is enqueued by the clock."""
    return await _work(run)


async def _archive(run: Run, number: int) -> int:
    """Is known to the new version only."""
    return await _work(run)


class Version:
    """The jobs of one version of the service."""

    def __init__(self, name: Literal["old", "new"]) -> None:
        self.catalogue = Catalogue("mixed-jobs")
        queues = ("mail", "reports")
        self.jobs = Jobs(
            self.catalogue, "mixed_checkpoint:{job_id}", queues=queues, lease=timedelta(seconds=3)
        )
        self.send = self.jobs.job(queue="mail", retry=_RETRY, name="send")(_send)
        report = self.jobs.job(queue="reports", retry=_RETRY, name="report")(_report)
        self.schedules = [
            self.jobs.schedule("by_interval", Every(timedelta(seconds=1), missed="all"), report),
            self.jobs.schedule("by_cron", Cron("*/2 * * * * *", missed="all"), report),
        ]
        if name == "new":
            self.archive = self.jobs.job(queue="mail", retry=_RETRY, name="archive")(_archive)


if __name__ == "__main__":
    sys.exit(main(Version("new" if os.environ.get("WORKER_VERSION") == "new" else "old").jobs))
