"""The jobs' row: from SIGKILL of a whole worker to the next recorded step of its job, by another worker.

Two workers of one process each; the one that runs the job is killed with all its processes, the other takes
over. The peer is Celery with its defaults and a visibility timeout of 8 s, measured separately by `python -m
benchmarks.celery_orphan` and a constant here: one measurement takes about as long as the rest of a row
altogether, because kombu looks for orphans every 100 s. With Celery's default timeout of an hour it would be
an hour.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.job_worker import CATALOGUE, JOBS, steps
from benchmarks.rows import Absolute, Round, Row
from benchmarks.servers import Servers
from ephemera import connect, embedded
from ephemera.patterns.jobs import BoundJobs, JobRow, sql_engine

_CELERY = 89.0  # seconds
_MANY = 10_000  # steps: more than anybody waits for
_LOOK = 0.005  # seconds


class Crew:
    """Two workers, of whom one is killed in each round and replaced."""

    def __init__(self, url: str, sql: str) -> None:
        self._environment = {**os.environ, "BENCH_URL": url, "BENCH_SQL": sql, "PYTHONWARNINGS": "ignore"}
        self._running: list[subprocess.Popen[bytes]] = []

    def fill(self) -> None:
        """Start what is missing."""
        while len(self._running) < 2:
            command = [sys.executable, "-m", "benchmarks.job_worker"]
            self._running.append(subprocess.Popen(command, env=self._environment, start_new_session=True))

    def kill_owner(self, row: JobRow) -> float:
        """Kill the worker of a job, all of it; when that was."""
        child = int(str(row.worker).rpartition(":")[2])
        group = os.getpgid(child)
        os.killpg(group, signal.SIGKILL)
        killed = time.perf_counter()
        (owner,) = [each for each in self._running if each.pid == group]
        owner.wait()
        self._running.remove(owner)
        return killed

    def end(self) -> None:
        """Kill both."""
        for each in self._running:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


async def running(jobs: BoundJobs, job_id: str, steps_done: int, fence: int = 1) -> JobRow:
    """A job when so many steps are recorded, and its fence is at least this."""
    while True:
        row = await jobs.get(job_id)
        if row.steps >= steps_done and row.fence >= fence:
            return row
        await asyncio.sleep(_LOOK)


async def taken_over(jobs: BoundJobs, crew: Crew) -> float:
    """Seconds from the kill to the next recorded step."""
    crew.fill()
    first, second = [await jobs.enqueue(steps, _MANY) for _ in range(2)]
    row = await running(jobs, first, 3)
    await running(jobs, second, 3)  # so both workers are there
    await jobs.cancel(second)
    killed = crew.kill_owner(await jobs.get(first))
    done = (await jobs.get(first)).steps
    await running(jobs, first, done + 1, row.fence + 1)
    took = time.perf_counter() - killed
    await jobs.cancel(first)
    return took


@asynccontextmanager
async def ours(servers: Servers) -> AsyncIterator[Round]:
    """Our jobs, on a database of their own."""
    with embedded.postgres() as postgres:
        engine, crew = sql_engine(postgres.url), Crew(servers.valkey.url, postgres.url)
        try:
            async with connect(servers.valkey.url, CATALOGUE, resources={JOBS: engine}) as store:
                jobs = store[JOBS]
                await jobs.create_tables()

                async def round_of(_: float) -> float:
                    return await taken_over(jobs, crew)

                yield round_of
        finally:
            crew.end()
            await engine.dispose()


@asynccontextmanager
async def celery(_: Servers) -> AsyncIterator[Round]:
    """What was measured of Celery, once."""

    async def recorded(_: float) -> float:
        return _CELERY

    yield recorded


ROWS = (
    Row(
        "jobs: worker killed to next step",
        ours,
        {"Celery (recorded)": celery},
        (Absolute(10, "s", at_most=True),),
        unit="s",
        higher_is_better=False,
    ),
)
