"""The jobs' rows: a killed worker, no-op jobs, the time from enqueuing to the start, and enqueuing in bulk.

*A killed worker.* From SIGKILL of a whole worker to the next recorded step of its job, by another worker. Two
workers of one process each; the one that runs the job is killed with all its processes, the other takes
over. The peer is Celery with its defaults and a visibility timeout of 8 s, measured separately by `python -m
benchmarks.celery_orphan` and a constant here: one measurement takes about as long as the rest of a row
altogether, because kombu looks for orphans every 100 s. With Celery's default timeout of an hour it would be
an hour.

*No-op jobs.* The time is from before the first one is enqueued to the last row that is done, in one process
of 100 jobs at a time. Enqueuing is part of it for every contender, each in its own way for many jobs.
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
from statistics import median
from typing import Any

from sqlalchemy import func, select

from benchmarks import job_peers
from benchmarks.job_worker import CATALOGUE, JOBS, no_op, stamp, steps
from benchmarks.rows import Absolute, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import connect, embedded
from ephemera.patterns.jobs import BoundJobs, JobRow, sql_engine

_CELERY = 89.0  # seconds
_MANY = 10_000  # steps: more than a run ever reaches
_LOOK = 0.005  # seconds
_BULK = 10_000  # jobs


class Crew:
    """Two workers, of whom one is killed in each round and replaced."""

    def __init__(self, url: str, sql: str) -> None:
        self._environment = {**os.environ, "BENCH_URL": url, "BENCH_SQL": sql, "PYTHONWARNINGS": "ignore"}
        self._running: list[subprocess.Popen[bytes]] = []

    def fill(self) -> None:
        """Start what is missing."""
        while len(self._running) < 2:
            command = [sys.executable, "-m", "benchmarks.job_worker", "1"]
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
    """A job when this many steps are recorded, and its fence is at least this."""
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
async def worked_on(servers: Servers, concurrency: int) -> AsyncIterator[BoundJobs]:
    """Our jobs, and a worker of one process."""
    with embedded.postgres() as postgres:
        engine = sql_engine(postgres.url)
        environment = {**os.environ, "BENCH_URL": servers.valkey.url, "BENCH_SQL": postgres.url}
        command = (sys.executable, "-m", "benchmarks.job_worker", str(concurrency))
        async with connect(servers.valkey.url, CATALOGUE, resources={JOBS: engine}) as store:
            jobs = store[JOBS]
            await jobs.create_tables()
            worker = subprocess.Popen(command, env=environment, start_new_session=True)
            try:
                first = await jobs.enqueue(no_op)
                while not (await jobs.get(first)).ended:
                    await asyncio.sleep(_LOOK)
                yield jobs
            finally:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
                await engine.dispose()


async def done(jobs: BoundJobs) -> int:
    """How many jobs are done."""
    table = JOBS.tables.jobs
    async with jobs.engine.connect() as sql:
        return int((await sql.execute(select(func.count()).where(table.c.state == "done"))).scalar_one())


@asynccontextmanager
async def throughput(servers: Servers) -> AsyncIterator[Round]:
    """No-op jobs of ours in a second."""
    async with worked_on(servers, job_peers.CONCURRENCY) as jobs:

        async def round_of(seconds: float) -> float:
            before, count = await done(jobs), job_peers.count_for(seconds, 2000)
            begun = time.perf_counter()
            await jobs.enqueue_many(no_op, [{}] * count)
            while await done(jobs) < before + count:
                await asyncio.sleep(_LOOK)
            return count / (time.perf_counter() - begun)

        yield round_of


@asynccontextmanager
async def latency(servers: Servers) -> AsyncIterator[Round]:
    """Milliseconds from enqueuing a job to its first line, the median."""
    async with worked_on(servers, job_peers.CONCURRENCY) as jobs:

        async def once() -> float:
            begun = time.time()
            job_id = await jobs.enqueue(stamp)
            while not (row := await jobs.get(job_id)).ended:
                await asyncio.sleep(_LOOK)
            return float(row.result - begun) * 1000

        async def round_of(seconds: float) -> float:
            return median([await once() for _ in range(max(20, int(seconds * 20)))])

        yield round_of


@asynccontextmanager
async def bulk(servers: Servers) -> AsyncIterator[Round]:
    """Seconds to enqueue 10,000 jobs."""
    with embedded.postgres() as postgres:
        engine = sql_engine(postgres.url)
        async with connect(servers.valkey.url, CATALOGUE, resources={JOBS: engine}) as store:
            jobs: Any = store[JOBS]
            await jobs.create_tables()

            async def round_of(_: float) -> float:
                begun = time.perf_counter()
                await jobs.enqueue_many(no_op, [{}] * _BULK)
                return time.perf_counter() - begun

            yield round_of
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
    Row(
        "jobs: no-op jobs, one process",
        throughput,
        {"procrastinate": job_peers.procrastinate, "Celery, results in SQL": job_peers.celery},
        (Times(2, "procrastinate"), Times(1, "Celery, results in SQL")),
        unit="jobs/s",
        patience=120,
    ),
    Row(
        "jobs: enqueued to started, p50",
        latency,
        targets=(Absolute(30, "ms", at_most=True),),
        unit="ms",
        higher_is_better=False,
        patience=120,
    ),
    Row(
        "jobs: 10,000 enqueued in bulk",
        bulk,
        targets=(Absolute(1, "s", at_most=True),),
        unit="s",
        higher_is_better=False,
        patience=60,
    ),
)
