"""A worker with SQL delivery: many jobs in one process, and what it does about a job that blocks it."""

from __future__ import annotations

import asyncio
import mmap
import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from time import monotonic

import psutil
import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, JobRow, WorkerSettings, _sql_worker, sql_engine
from ephemera.patterns.jobs._attempt import AttemptEngines
from ephemera.patterns.jobs._claims import Completions
from ephemera.patterns.jobs._rows import CompletedJob, HeldJob
from ephemera.patterns.jobs._sql_worker import SqlWorker
from ephemera.patterns.jobs._supervisor import Predecessor, Pulse, supervise
from ephemera.patterns.jobs._worker import die_with_parent
from tests.patterns.job_fixtures import JOBS, compute, conclude, effects, fetch, generate
from tests.patterns.job_store import attempt_by, lapse, opened
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended, stepped, until

MANY = 200
LEASE = timedelta(minutes=1)


@pytest.fixture
def sql(postgres: Postgres, key: str) -> str:
    """A database for one test."""
    return postgres.database(key[:60])


@pytest.fixture
async def jobs(server: Valkey, sql: str) -> AsyncIterator[BoundJobs]:
    """Jobs that SQL delivers."""
    async with opened(server.url, sql) as bound:
        yield bound


async def test_a_limited_queue_does_not_wait_for_its_next_poll(
    jobs: BoundJobs, server: Valkey, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a job starts the next one: all are done although nothing looks for jobs again."""
    for name in ("_POLL", "_POLL_SOON"):
        monkeypatch.setattr(_sql_worker, name, 600.0)
    await jobs.set_limits("generation", max_running=1)
    count = 40
    await jobs.enqueue_many(generate, [{"slides": 0}] * count)

    async def all_done() -> bool:
        return await done(jobs) == count

    worker = SqlWorker(JOBS, WorkerSettings(server.url, sql), JOBS.queues, 10, "token", for_suspects=False)
    running = asyncio.create_task(worker.run(Pulse(), None))
    await until(all_done)
    worker._stop()
    await running


async def test_one_process_waits_for_200_answers_at_once(jobs: BoundJobs, server: Valkey, sql: str) -> None:
    """All 200 jobs run at once in one process, with at most 20 connections to SQL and 400 MB of memory."""
    answer, asked = asyncio.Event(), 0

    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await answer.wait()
        writer.write(b"hello\n")
        writer.close()

    async def all_asked() -> bool:
        return asked == MANY

    model = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with model:
        port = model.sockets[0].getsockname()[1]
        for _ in range(MANY):
            await jobs.enqueue(fetch, port)
        url = f"{sql}&application_name=many" if "?" in sql else f"{sql}?application_name=many"
        with Worker(server.url, url, concurrency=MANY) as worker:
            await until(all_asked)
            (process,) = worker.children()
            assert await connections(jobs, "many") <= 20
            answer.set()

            async def all_done() -> bool:
                assert await connections(jobs, "many") <= 20
                return await done(jobs) == MANY

            await until(all_done)
            memory = [psutil.Process(each).memory_info().rss for each in (worker.pid, process)]
            assert sum(memory) < 400e6
    assert {row.attempts for row in await jobs.find(limit=MANY)} == {1}


async def connections(jobs: BoundJobs, name: str) -> int:
    """How many connections an application has to the database."""
    query = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
    async with jobs.engine.connect() as sql:
        return int((await sql.execute(query, {"name": name})).scalar_one())


async def done(jobs: BoundJobs) -> int:
    """How many jobs are done."""
    table = JOBS.tables.jobs
    async with jobs.engine.connect() as sql:
        return int((await sql.execute(select(func.count()).where(table.c.state == "done"))).scalar_one())


async def test_a_job_that_blocks_the_loop_is_reported_and_killed_at_its_limit(
    jobs: BoundJobs, server: Valkey, sql: str, tmp_path: Path
) -> None:
    """It uses its attempt and is dead with the reason; the others of its process continue, and use none."""
    log = tmp_path / "worker.log"
    with Worker(server.url, sql, concurrency=10, log=log) as worker:
        other = await jobs.enqueue(generate, 40, 0.1)
        blocked = (await stepped(jobs, other, 2)).worker
        job_id = await jobs.enqueue(compute, 60.0)
        row = await ended(jobs, job_id)
        assert (row.state, row.steps) == ("dead", 0)
        assert f"the process of the job {job_id} (compute) was killed" in str(row.error)
        row = await ended(jobs, other)
        assert (row.state, row.attempts, row.fence) == ("done", 1, 2)
        assert (len(worker.children()), row.worker != blocked) == (1, True)
    assert await effects(jobs.engine, other) == {f"slide:{number}": 1 for number in range(40)}
    assert f"job {job_id} (compute) has blocked the event loop of this worker" in log.read_text()


async def claimed(jobs: BoundJobs, count: int) -> list[JobRow]:
    """Jobs that a worker has claimed."""
    for _ in range(count):
        await jobs.enqueue(generate, 1)
    return await attempt_by(jobs).claims.due("generation", count)


async def test_a_locked_row_does_not_keep_other_leases_from_being_renewed(jobs: BoundJobs) -> None:
    """One statement renews all leases but that of a row that another transaction has locked."""
    rows, table = await claimed(jobs, 3), JOBS.tables.jobs
    async with jobs.engine.begin() as sql:
        await sql.execute(select(table).where(table.c.id == rows[0].id).with_for_update())
        held = [HeldJob(row.id, row.fence) for row in rows]
        assert await jobs._backend.rows.renew(held, LEASE) == set(held[1:])


async def test_a_foreign_key_to_a_job_is_in_no_ones_way(jobs: BoundJobs) -> None:
    """While a transaction has a row that refers to a job, that job is claimed, renewed and completed."""
    table, runner = JOBS.tables.jobs, attempt_by(jobs)
    job_id = await jobs.enqueue(generate, 1)
    async with jobs.engine.begin() as sql:  # as PostgreSQL locks what a foreign key refers to
        await sql.execute(
            select(table).where(table.c.id == job_id).with_for_update(read=True, key_share=True)
        )
        (row,) = await runner.claims.due("generation", 1)
        assert await jobs._backend.rows.renew([HeldJob(row.id, row.fence)], LEASE)
        assert await jobs._backend.rows.complete([CompletedJob(row.id, row.fence, "1")])


async def test_a_locked_row_does_not_keep_other_jobs_from_being_completed(jobs: BoundJobs) -> None:
    """It is done when the lock is gone; whatever is done in the meantime does not wait for it."""
    rows, table, written = await claimed(jobs, 3), JOBS.tables.jobs, Completions(jobs._backend.rows)
    locked, *others = [written.complete(CompletedJob(row.id, row.fence, "1")) for row in rows]
    async with jobs.engine.begin() as sql:
        await sql.execute(select(table).where(table.c.id == rows[0].id).with_for_update())
        waiting = asyncio.create_task(locked)
        for each in others:
            done = await each
            assert done is not None
            assert done.state == "done"
        assert not waiting.done()
    row = await waiting
    assert row is not None
    assert row.state == "done"


async def test_completions_share_a_statement_and_no_error(jobs: BoundJobs) -> None:
    """Of jobs that are done at once each gets its own outcome: written, refused, or another worker's."""
    rows = await claimed(jobs, 5)
    await jobs.cancel(rows[1].id)
    results = ["1", "2", "not JSON", "4", "5"]
    written = Completions(jobs._backend.rows)
    done = [CompletedJob(row.id, row.fence, result) for row, result in zip(rows, results, strict=True)]
    outcomes = await asyncio.gather(*map(written.complete, done), return_exceptions=True)
    states = [each.state if isinstance(each, JobRow) else each for each in outcomes]
    assert (states[0], states[1], states[3], states[4]) == ("done", None, "done", "done")
    assert isinstance(states[2], DBAPIError)
    assert [(await jobs.get(row.id)).result for row in rows] == [1, None, None, 4, 5]


async def test_jobs_that_use_up_the_pool_keep_their_leases(jobs: BoundJobs, sql: str) -> None:
    """While jobs hold every connection of the engine, leases are renewed and a cancelled job is noticed."""
    control = sql_engine(sql, pool_size=2, max_overflow=0)
    runner = attempt_by(jobs, engines=AttemptEngines(control, control))
    kept, cancelled = [await jobs.enqueue(generate, 1, 600.0) for _ in range(2)]
    rows = await runner.claims.due("generation", 2)
    running, ending = [asyncio.create_task(runner.run_claimed(row, monotonic())) for row in rows]
    await jobs.cancel(cancelled)
    async with AsyncExitStack() as busy:
        for _ in range(15):  # all of them
            await busy.enter_async_context(jobs.engine.connect())
        async with asyncio.timeout(60):
            assert await ending == "lost"
        assert not running.done()
    assert str((await jobs.get(kept)).lease_until) > str(rows[0].lease_until)
    running.cancel()
    await asyncio.wait({running})
    await control.dispose()


@asynccontextmanager
async def used_up(engine: AsyncEngine, connections: int) -> AsyncIterator[None]:
    """Have no connection of an engine free."""
    async with AsyncExitStack() as busy:
        for _ in range(connections):
            await busy.enter_async_context(engine.connect())
        yield


@pytest.mark.parametrize("outcome", ["done", "failed", "snoozed", "rescheduled"])
async def test_an_attempt_that_finds_the_pool_used_up_ends_as_any_other(
    jobs: BoundJobs, sql: str, outcome: str
) -> None:
    """Recorded steps are read, and the outcome is written, although jobs hold every connection."""
    control = sql_engine(sql, pool_size=2, max_overflow=0)
    runner = attempt_by(jobs, engines=AttemptEngines(control, control))
    job_id = await jobs.enqueue(conclude, outcome)
    first = await attempt_by(jobs, "killed").claims.named(job_id, "export")
    assert first is not None
    assert await jobs._backend.rows.record(None, job_id, first.fence, "earlier", b"1")
    await lapse(jobs, job_id)
    async with used_up(jobs.engine, 15), asyncio.timeout(20):  # less than the pool's own timeout
        row = await runner.claims.named(job_id, "export")
        assert row is not None
        assert await runner.run_claimed(row, monotonic()) == outcome
    assert (await jobs.get(job_id)).steps == 2
    await control.dispose()


async def test_the_lease_is_kept_while_an_attempt_waits_for_its_steps(jobs: BoundJobs, sql: str) -> None:
    """A claimed job is renewed from the start, not only when its function runs."""
    control, records = [sql_engine(sql, pool_size=1, max_overflow=0, pool_timeout=0.5) for _ in range(2)]
    runner = attempt_by(jobs, engines=AttemptEngines(control, records))
    job_id = await jobs.enqueue(conclude, "done")
    (first,) = await attempt_by(jobs, "killed").claims.due("export", 1)
    assert await jobs._backend.rows.record(None, job_id, first.fence, "earlier", b"1")
    await lapse(jobs, job_id)
    row = await runner.claims.named(job_id, "export")
    assert row is not None

    async def renewed() -> bool:
        return str((await jobs.get(job_id)).lease_until) > str(row.lease_until)

    async with used_up(records, 1):  # the pool's own timeout is over several times
        attempt = asyncio.create_task(runner.run_claimed(row, monotonic()))
        await until(renewed)
        assert not attempt.done()
    assert await attempt == "done"
    await control.dispose()
    await records.dispose()


async def test_a_lost_attempt_leaves_no_note_of_its_missing_events(jobs: BoundJobs) -> None:
    """A process that loses jobs does not remember their ids forever."""
    job_id = await jobs.enqueue(generate, 1, 600.0)
    attempt = asyncio.create_task(attempt_by(jobs).run(job_id))
    await until(lambda: _is_running(jobs, job_id))
    missing = jobs._backend._checkpoints.unpublished
    jobs._backend.checkpoint(await jobs.get(job_id))._mark_event_missing()
    assert job_id in missing
    await jobs._rows.cancel(job_id)
    assert await attempt == "lost"
    assert job_id not in missing


async def _is_running(jobs: BoundJobs, job_id: str) -> bool:
    return (await jobs.get(job_id)).state == "running"


def test_the_parent_reads_the_whole_id_of_the_job_it_kills_a_process_for() -> None:
    """An id has up to 200 characters, of any kind."""
    pulse, job_id = Pulse(), "\N{WHALE}" * 200
    pulse.set_deadline(1.0, job_id, "kind")
    assert pulse.read() == (1.0, job_id, "kind")
    pulse.report_suspects(True)
    assert (pulse.read()[1], pulse.suspects_wait, pulse.is_ready) == (job_id, True, False)
    pulse.mark_ready()
    assert (pulse.read(), pulse.is_ready) == ((1.0, job_id, "kind"), True)


def test_the_parent_never_reads_a_limit_that_is_half_written() -> None:
    """However often a process changes its limit, the parent finds one with its job, or none."""
    pulse = Pulse()
    limits = {1e12: "a" * 200, 2e12: "b" * 200}

    def change() -> None:
        while True:
            for limit, job_id in limits.items():
                pulse.set_deadline(limit, job_id, "kind")

    process = multiprocessing.get_context("fork").Process(target=change, daemon=True)
    process.start()
    try:
        found = {pulse.read()[:2] for _ in range(200_000)}
    finally:
        process.kill()
        process.join()
    assert {each for each in found if each[0] != float("inf")} <= set(limits.items())


@pytest.mark.parametrize(("ready", "starts", "code"), [(0, 3, 0), (9, 1, 1)])
def test_a_process_that_dies_while_it_starts_is_replaced_once_one_was_ready(
    ready: int, starts: int, code: int
) -> None:
    """A SIGKILL at the wrong moment does not end a worker; one that cannot start at all ends with 1."""
    page = mmap.mmap(-1, mmap.PAGESIZE)  # how often a process was started, and the predecessor of the last
    numbers = memoryview(page).cast("q")

    def main(pulse: Pulse, predecessor: Predecessor | None, for_suspects: bool) -> None:
        start, numbers[0] = numbers[0], numbers[0] + 1
        if start == 0:
            numbers[1] = os.getpid()
        if start in (ready, 2):
            pulse.mark_ready()
        if start == 2:
            numbers[2] = predecessor.pid if predecessor else 0
            os.kill(os.getppid(), signal.SIGTERM)
            signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)

    def supervised() -> None:
        sys.exit(supervise(main, 1))

    process = multiprocessing.get_context("fork").Process(target=supervised)
    process.start()
    process.join(60)
    assert (process.exitcode, numbers[0]) == (code, starts)
    if ready == 0:
        assert numbers[2] == numbers[1], "the jobs of the first process are still to be handed over"


@pytest.mark.parametrize("parent_lives", [True, False])
def test_a_process_whose_parent_died_at_its_start_does_not_outlive_it(parent_lives: bool) -> None:
    """Nothing would enforce its jobs' hard limits, or replace it."""
    parent = os.getpid() if parent_lives else -1
    process = multiprocessing.get_context("fork").Process(target=die_with_parent, args=(parent,))
    process.start()
    process.join()
    assert process.exitcode == (0 if parent_lives else -signal.SIGKILL)
