"""Jobs whose workers and servers die: no job is lost, and no step runs twice.

`EPHEMERA_CAMPAIGN=full` runs the whole campaign of 200 jobs with 15 steps.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import ConnectionFailed
from ephemera.patterns.jobs import BoundJobs
from tests.chaos.job_campaign import Workers, check, killing, unfinished
from tests.chaos.killed_attempt import PLACES
from tests.patterns.job_fixtures import effects, export, generate
from tests.patterns.job_store import attempt_by, job_of, lapse, opened, waiting_messages
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended, stepped, until

BOTH = pytest.mark.parametrize("delivery", ["sql", "celery"])
FULL = os.environ.get("EPHEMERA_CAMPAIGN") == "full"
SLIDES = 15
StartWorker = Callable[..., Worker]


@pytest.fixture
def sql(postgres: Postgres, key: str) -> str:
    """A database for one test."""
    return postgres.database(key[:60])


@pytest.fixture
def delivery() -> str:
    """How workers learn of jobs, where a test does not say."""
    return "sql"


@pytest.fixture
async def jobs(victim: Valkey, sql: str, delivery: str) -> AsyncIterator[BoundJobs]:
    """Jobs on a server that may be killed."""
    async with opened(victim.url, sql, delivery=delivery) as bound:
        yield bound


@pytest.fixture
def started(victim: Valkey, sql: str, delivery: str) -> StartWorker:
    """Starts a worker of these jobs."""
    return partial(Worker, victim.url, sql, delivery=delivery)


def once(count: int) -> dict[str, int]:
    """The effects of a job with this many slides, each once."""
    return {f"slide:{number}": 1 for number in range(count)}


@BOTH
@pytest.mark.timeout(900 if FULL else 120)
async def test_all_jobs_complete_while_a_worker_is_killed_every_second(
    jobs: BoundJobs, started: StartWorker
) -> None:
    """No job is lost, each step's effect exists exactly once, and the fences of a job only grow."""
    # A few jobs are slow, so that some are running at the first kill, on a fast machine too.
    count, crew, within, pause = (200, 12, 800, 0.05) if FULL else (8, 4, 240, 0.25)
    every, most = (1.0, 1000) if FULL else (3.0, 12)
    ids = [await jobs.enqueue(generate, SLIDES, pause) for _ in range(count)]
    workers = Workers(started, crew)
    try:
        await killing(workers, jobs.engine, every, most, within)
    finally:
        workers.end()
    taken_over = await check(jobs, jobs.engine, ids, SLIDES)
    assert taken_over
    print(f"{count} jobs, {workers.kills} workers killed, {taken_over} taken over")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", PLACES)
async def test_killed_at_any_moment_an_attempt_leaves_nothing_half_done(
    jobs: BoundJobs, victim: Valkey, sql: str, when: str, what: str
) -> None:
    """SIGKILL before and after each write: the next attempt completes the job, with each effect once."""
    job_id = await jobs.enqueue(generate, 3)
    command = [sys.executable, "-m", "tests.chaos.killed_attempt", victim.url, sql, job_id, when, what]
    died = await asyncio.to_thread(subprocess.run, command, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    if (await jobs.get(job_id)).state == "running":
        await lapse(jobs, job_id)  # rather than wait for its lease
    ended_before = (what, when) in (("finish", "after"), ("end", "before"), ("end", "after"))
    assert await attempt_by(jobs, "next").run(job_id) == ("refused" if ended_before else "done")
    await check(jobs, jobs.engine, [job_id], 3)


@BOTH
@pytest.mark.parametrize("killed", ["all of it", "its parent process"])
async def test_a_killed_workers_job_continues_from_its_last_step(
    jobs: BoundJobs, started: StartWorker, killed: str
) -> None:
    """After SIGKILL of a worker, another one resumes the job after its last step, with a larger fence."""
    with started() as first:
        job_id = await jobs.enqueue(generate, SLIDES, 0.1)
        await stepped(jobs, job_id, 4)
        with started():
            first.kill() if killed == "all of it" else os.kill(first.pid, signal.SIGKILL)
            row = await ended(jobs, job_id)
    assert row.state == "done"
    assert row.attempts >= 2
    assert "3 by fence 1" in row.result
    assert f"{SLIDES - 1} by fence {row.fence}" in row.result
    assert await effects(jobs.engine, job_id) == once(SLIDES)


@BOTH
async def test_a_killed_childs_job_continues_in_the_same_worker(
    jobs: BoundJobs, started: StartWorker
) -> None:
    """After SIGKILL of a pool process, the parent replaces it, and the job continues there."""
    with started() as worker:
        job_id = await jobs.enqueue(generate, SLIDES, 0.1)
        row = await stepped(jobs, job_id, 4)
        assert row.worker is not None
        os.kill(int(row.worker.rpartition(":")[2]), signal.SIGKILL)
        row = await ended(jobs, job_id)
        assert (row.state, row.attempts >= 2) == ("done", True)
        assert int(str(row.worker).rpartition(":")[2]) in worker.children()
    assert await effects(jobs.engine, job_id) == once(SLIDES)


@BOTH
async def test_a_worker_that_hung_is_overtaken_and_refused(jobs: BoundJobs, started: StartWorker) -> None:
    """A worker stopped for longer than its lease is overtaken; after SIGCONT it repeats nothing."""
    with started() as first:
        job_id = await jobs.enqueue(generate, SLIDES, 0.1)
        await stepped(jobs, job_id, 4)
        stopped = [*first.children(), first.pid]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        with started():
            row = await ended(jobs, job_id)
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            # It runs again, and its pending step had no effect.
            other = [await jobs.enqueue(generate, 3) for _ in range(4)]
            assert [(await ended(jobs, each)).state for each in other] == ["done"] * 4
    assert (row.state, row.fence >= 2) == ("done", True)
    assert await jobs.get(job_id) == row
    assert await effects(jobs.engine, job_id) == once(SLIDES)


@BOTH
async def test_all_jobs_complete_from_sql_when_redis_lost_its_data(
    jobs: BoundJobs, victim: Valkey, started: StartWorker
) -> None:
    """Redis restarts empty while jobs run and wait: no job is lost, and no step runs twice."""
    with started(processes=2):
        ids = [await jobs.enqueue(generate, SLIDES, 0.1) for _ in range(6)]
        await stepped(jobs, ids[0], 3)
        victim.kill()
        victim.restart()
        await until(lambda: _up(jobs))
        await until(lambda: _none_left(jobs), within=60)
    await check(jobs, jobs.engine, ids, SLIDES)


@pytest.mark.parametrize("delivery", ["celery"])
@pytest.mark.parametrize("loss", ["flushed", "restarted"])
async def test_ten_thousand_messages_are_back_within_ten_seconds(
    jobs: BoundJobs, victim: Valkey, started: StartWorker, loss: str
) -> None:
    """Redis lost the messages and the reaper's lock: workers elect a reaper, which sends large batches."""
    count = 10_000
    with started(processes=2):
        busy = [await jobs.enqueue(generate, 1, 600.0) for _ in range(2)]  # so that they take no messages
        await until(lambda: _all_running(jobs, busy))
        sent = {each.id for each in await jobs.enqueue_many(generate, [{"slides": 1}] * count)}
        # Not a number of messages: a busy job that was claimed late may have a second one.
        assert sent <= await _named(jobs)
        if loss == "flushed":
            victim.ask("FLUSHALL")
        else:
            victim.kill()
            victim.restart()

        async def all_back() -> bool:
            try:
                return await waiting_messages(jobs, "generation") >= count and sent <= await _named(jobs)
            except ConnectionFailed:  # this store has not connected again yet
                return False

        await until(all_back, within=10)


async def _named(jobs: BoundJobs) -> set[str]:
    """The jobs that the messages of a queue name."""
    return set(map(job_of, await jobs.store.call("LRANGE", jobs.declaration.queue_key("generation"), 0, -1)))


async def _all_running(jobs: BoundJobs, ids: list[str]) -> bool:
    return all([(await jobs.get(job_id)).state == "running" for job_id in ids])


async def _up(jobs: BoundJobs) -> bool:
    return jobs.store.client("queue").up


async def _none_left(jobs: BoundJobs) -> bool:
    return not await unfinished(jobs.engine)


@BOTH
async def test_what_is_enqueued_while_redis_is_down_runs_when_it_is_back(
    jobs: BoundJobs, victim: Valkey, started: StartWorker
) -> None:
    """The row is written, and a reaper sends the message later."""
    with started():
        await ended(jobs, await jobs.enqueue(generate, 1))
        victim.kill()
        job_id = await jobs.enqueue(generate, 2)
        assert (await jobs.get(job_id)).published_at is None
        victim.restart()
        assert (await ended(jobs, job_id)).state == "done"


async def test_jobs_wait_for_sql_and_continue_when_it_is_back(victim: Valkey) -> None:
    """PostgreSQL crashes and restarts during a job: the job continues, and no step runs twice."""
    with embedded.postgres() as postgres:
        async with opened(victim.url, postgres.url) as jobs:
            with Worker(victim.url, postgres.url):
                job_id = await jobs.enqueue(generate, SLIDES, 0.1)
                await stepped(jobs, job_id, 3)
                postgres.kill()
                postgres.restart()
                row = await ended(jobs, job_id, within=60)
            assert row.state == "done"
            assert await effects(jobs.engine, job_id) == once(SLIDES)


@BOTH
async def test_a_terminated_worker_releases_its_jobs(jobs: BoundJobs, started: StartWorker) -> None:
    """After SIGTERM the worker stops after its step, and its job continues elsewhere in the same attempt."""
    with started() as first:
        job_id = await jobs.enqueue(generate, 60, 0.1)
        await stepped(jobs, job_id, 4)
        assert first.stop() == 0
        row = await jobs.get(job_id)
        assert (row.state, row.attempts) == ("waiting", 0)
    with started():
        row = await ended(jobs, job_id)
    assert row.state == "done"
    assert await effects(jobs.engine, job_id) == once(60)


@BOTH
async def test_a_plain_function_that_never_ends_is_killed_with_its_process(
    jobs: BoundJobs, started: StartWorker
) -> None:
    """The attempt ends at its time limit; a process that cannot be stopped is killed soon after."""
    with started() as worker:
        job_id = await jobs.enqueue(export, 600.0, block=True)
        row = await stepped(jobs, job_id, 1)
        stuck = int(str(row.worker).rpartition(":")[2])

        async def replaced() -> bool:
            return bool(worker.children()) and stuck not in worker.children()

        await until(replaced, within=40)
        assert (await ended(jobs, job_id, within=60)).state == "dead"
