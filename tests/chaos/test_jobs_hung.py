"""Jobs while PostgreSQL, Redis or the connection of one worker hangs, or the queues fail over."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, embedded, keyspace
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import CeleryDelivery, JobRow, Jobs, Run, sql_engine
from ephemera.patterns.jobs._reaper import run_reaper
from ephemera.patterns.jobs._rows import JobRows
from ephemera.patterns.progress import Progress
from tests.patterns.job_fixtures import effects, generate
from tests.patterns.job_store import attempt_by, opened
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended, stepped, until

SLIDES = 15
ONCE = {f"slide:{number}": 1 for number in range(SLIDES)}


class Over(msgspec.Struct, tag="over", frozen=True):
    """The job has ended."""

    state: str


CATALOGUE = Catalogue("test-jobs-hung")
PROGRESS = Progress(CATALOGUE, "hung:{job_id}", Over, wake="hung", terminal=Over)
JOBS = Jobs(
    CATALOGUE,
    "checkpoint:{job_id}",
    queues=("work",),
    name="hung",
    progress=PROGRESS,
    final_event=lambda row: Over(row.state),
    lease=timedelta(seconds=1),
)
LAST: dict[str, Valkey] = {}
"""The server that a job stops as the last thing it does."""
HELD: dict[str, asyncio.Event] = {}
"""Of each job, that it waits."""


@JOBS.job(queue="work")
async def stopping(run: Run) -> None:
    """A job whose server hangs for a second just before its last event."""
    LAST[run.id].pause()
    asyncio.get_running_loop().call_later(1.0, LAST[run.id].resume)


@JOBS.job(queue="work")
async def waiting(run: Run) -> None:
    """A job that never ends."""
    HELD[run.id].set()
    await asyncio.Event().wait()


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """SIGSTOP to processes for the length of a block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def processes(postgres: Postgres) -> list[int]:
    """All processes of PostgreSQL: stopping the first one only leaves its connections running."""
    children = Path(f"/proc/{postgres.pid}/task/{postgres.pid}/children").read_text()
    return [postgres.pid, *map(int, children.split())]


async def backends(engine: AsyncEngine, name: str) -> list[int]:
    """The processes that serve the connections of one application."""
    query = text("SELECT pid FROM pg_stat_activity WHERE application_name = :name")
    async with engine.connect() as sql:
        return [pid for (pid,) in await sql.execute(query, {"name": name})]


async def disposed(*engines: AsyncEngine) -> None:
    """Wait for abandoned queries to end, and close all engines."""
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(left, timeout=20)
    for engine in engines:
        await engine.dispose()


async def test_the_end_is_published_however_long_the_server_takes(
    victim: Valkey, postgres: Postgres, key: str
) -> None:
    """A lease renewal that finds the job done does not keep its worker from publishing the end."""
    engine = sql_engine(postgres.database(key[:60]))
    async with keyspace.connect(f"{victim.url}?timeout=10", CATALOGUE, resources={JOBS: engine}) as store:
        jobs = store[JOBS]
        await jobs.create_tables()
        job_id = await jobs.enqueue(stopping)
        LAST[job_id] = victim
        assert await attempt_by(jobs).run(job_id) == "done"
        (entry,) = await store.call("XRANGE", PROGRESS.key(job_id=job_id), "-", "+")
        assert b'"over"' in entry[1][1]
        assert await jobs._backend.checkpoint(await jobs.get(job_id)).load() == {}
    await engine.dispose()


async def test_a_lease_that_hangs_is_lost_in_time(victim: Valkey, postgres: Postgres, key: str) -> None:
    """A worker whose database does not answer stops when its lease expires, not when the driver gives up."""
    url = postgres.database(key[:60])
    engine, other = sql_engine(f"{url}&application_name=hung"), sql_engine(url)
    async with keyspace.connect(victim.url, CATALOGUE, resources={JOBS: engine}) as store:
        jobs = store[JOBS]
        await jobs.create_tables()
        job_id = await jobs.enqueue(waiting)
        HELD[job_id] = asyncio.Event()
        attempt = asyncio.create_task(attempt_by(jobs, "hung").run(job_id))
        await HELD[job_id].wait()
        with frozen(await backends(other, "hung")):
            async with asyncio.timeout(60):
                assert await attempt == "lost"
            # It did not wait for the driver, which takes five seconds or ten to give up.
            assert any("_renew_once" in repr(task.get_coro()) for task in asyncio.all_tasks())
            rows = JobRows(JOBS.tables, other)
            await until(lambda: rows.claim(job_id, "next", timedelta(seconds=9)))
    await disposed(engine, other)


async def test_a_reaper_that_hangs_gives_up_its_lock(victim: Valkey, postgres: Postgres, key: str) -> None:
    """While the reaper's connection to SQL hangs, another process becomes the reaper."""
    url = postgres.database(key[:60])
    engine, other = sql_engine(f"{url}&application_name=leader"), sql_engine(url)
    async with (
        keyspace.connect(victim.url, CATALOGUE, resources={JOBS: CeleryDelivery(engine)}) as store,
        keyspace.connect(victim.url, CATALOGUE, resources={JOBS: CeleryDelivery(other)}) as another,
    ):
        jobs, next_jobs = store[JOBS], another[JOBS]
        await jobs.create_tables()
        leading = asyncio.create_task(run_reaper(jobs._backend))

        async def led() -> bool:
            return await store[JOBS.leader].holder() is not None

        async def looked() -> bool:
            return bool(await backends(other, "leader")) and await led()

        await until(looked)
        with frozen(await backends(other, "leader")):
            following = asyncio.create_task(run_reaper(next_jobs._backend))
            async with other.begin() as sql:
                await next_jobs.enqueue_in(sql, waiting)

            async def sent() -> bool:
                return bool(await another.call("LLEN", JOBS.queue_key("work")) == 1)

            await until(sent)
    await asyncio.gather(leading, following)  # a closed store ends them
    await disposed(engine, other)


async def test_a_database_that_hangs_during_a_job_costs_only_time(victim: Valkey) -> None:
    """PostgreSQL stops for longer than the lease and continues: the job ends, with each effect once."""
    with embedded.postgres() as postgres:
        async with opened(victim.url, postgres.url) as jobs:
            with Worker(victim.url, postgres.url):
                job_id = await jobs.enqueue(generate, SLIDES, 0.1)
                await stepped(jobs, job_id, 3)
                with frozen(processes(postgres)):
                    await asyncio.sleep(5)  # no query is answered in the meantime; the lease is 3 s
                row = await ended(jobs, job_id, within=60)
            assert row.state == "done"
            assert await effects(jobs.engine, job_id) == ONCE


async def test_a_redis_that_hangs_during_a_job_costs_nothing(
    victim: Valkey, postgres: Postgres, key: str
) -> None:
    """The job continues with SQL while Redis hangs, and the worker takes jobs again afterwards."""
    sql = postgres.database(key[:60])
    async with opened(victim.url, sql) as jobs:
        with Worker(victim.url, sql):
            job_id = await jobs.enqueue(generate, SLIDES, 0.1)
            await stepped(jobs, job_id, 3)
            victim.pause()
            try:
                assert (await ended(jobs, job_id)).state == "done"
                late = await jobs.enqueue(generate, 2)  # its message cannot be sent yet
            finally:
                victim.resume()
            assert (await ended(jobs, late, within=60)).state == "done"
        assert (await jobs.get(job_id)).fence == 1


@pytest.mark.timeout(180)
async def test_jobs_outlive_a_fail_over_of_their_queues(postgres: Postgres, key: str) -> None:
    """The master behind Sentinel is killed while jobs run: all jobs are done, whatever the queue lost."""
    sql = postgres.database(key[:60])
    with embedded.sentinel() as sentinel:
        async with opened(sentinel.url, sql, delivery="celery") as jobs:
            with Worker(sentinel.url, sql, delivery="celery", processes=2):
                ids = [await jobs.enqueue(generate, SLIDES, 0.1) for _ in range(6)]
                await stepped(jobs, ids[0], 3)
                sentinel.master.kill()
                rows: list[JobRow] = [await ended(jobs, job_id, within=90) for job_id in ids]
                late = await jobs.enqueue(generate, 1)
                assert (await ended(jobs, late, within=60)).state == "done"
            assert [row.state for row in rows] == ["done"] * 6
            for job_id in ids:
                assert await effects(jobs.engine, job_id) == ONCE
