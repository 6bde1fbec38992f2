"""DUR7: a row is given up only when nothing of its attempt runs any more, and late results are kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from ephemera import Catalogue, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, Jobs, Run, sql_engine
from ephemera.patterns.jobs._run_context import JobThreads
from ephemera.patterns.jobs._worker import attempt_runner
from tests.patterns.job_store import attempt_by
from tests.patterns.wait_for_jobs import until

CATALOGUE = Catalogue("dur7")
JOBS = Jobs(CATALOGUE, "dur7:{job_id}", queues=("work",), name="dur7_jobs", lease=timedelta(seconds=30))
BRIEF = Jobs(
    CATALOGUE, "dur7_brief:{job_id}", queues=("work",), name="dur7_brief", lease=timedelta(seconds=1)
)
GATE = threading.Event()
STARTED = threading.Event()


def slow() -> str:
    """A plain function that ends when the test says so."""
    STARTED.set()
    assert GATE.wait(60)
    return "kept"


async def broken() -> None:
    """A step that fails when its sibling runs."""
    while not STARTED.is_set():
        await asyncio.sleep(0.01)
    raise ValueError("no")


@JOBS.job(queue="work")
async def siblings(run: Run) -> str:
    """A slow step beside one that fails."""
    if run.attempt == 1:
        await asyncio.gather(run.step("slow", slow), run.step("broken", broken))
    return await run.step("slow", slow)


@JOBS.job(queue="work")
async def group(run: Run) -> str:
    """The same, where the failure cancels the sibling."""
    if run.attempt == 1:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run.step("slow", slow))
            tasks.create_task(run.step("broken", broken))
    return await run.step("slow", slow)


@JOBS.job(queue="work", time_limit=timedelta(seconds=0.3))
async def limited(run: Run) -> str:
    """A step that takes longer than the job may."""
    return await run.step("slow", slow)


@JOBS.job(queue="work", time_limit=timedelta(seconds=0.3))
async def threaded(run: Run) -> str:
    """A step that itself begins a thread, and is cancelled."""

    async def begin() -> str:
        return await asyncio.to_thread(slow)

    return await run.step("threaded", begin)


@JOBS.job(queue="work", time_limit=timedelta(seconds=0.3))
async def queued(run: Run) -> str:
    """A plain function for which no thread is free."""
    return await run.step("quick", str)


@BRIEF.job(queue="work")
async def threads(run: Run) -> str:
    """A plain function as a step."""
    return await run.step("slow", slow)


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """Jobs that run in this process."""
    GATE.clear()
    STARTED.clear()
    engine = sql_engine(postgres.database("test_dur7"))
    async with connect(server.url, CATALOGUE, resources={JOBS: engine, BRIEF: engine}) as store:
        await store[JOBS].create_tables()
        await store[BRIEF].create_tables()
        yield store[JOBS]
    await engine.dispose()


@pytest.mark.parametrize("kind", ["siblings", "group", "limited"])
async def test_dur7_a_row_is_released_when_its_threads_have_ended(jobs: BoundJobs, kind: str) -> None:
    """While a thread of a failed attempt runs, no worker can claim the job; its result is kept."""
    job_id = await jobs.enqueue(JOBS.kinds[kind])
    attempt = asyncio.create_task(attempt_by(jobs).run(job_id))
    await until(lambda: _failed(jobs, job_id, kind))
    assert not attempt.done()
    assert (await jobs.get(job_id)).state == "running"
    assert await attempt_by(jobs, "other").run(job_id) == "refused"
    GATE.set()
    assert await attempt == "rescheduled"
    assert await jobs._backend.queries.steps(job_id) == {"slow": b'"kept"'}


async def _failed(jobs: BoundJobs, job_id: str, kind: str) -> bool:
    """Whether the function has ended although its thread runs."""
    if kind == "siblings":  # there the step itself still waits, so no error is noted
        return STARTED.is_set()
    return (await jobs.get(job_id)).error is not None


async def test_dur7_a_thread_of_an_async_step_is_waited_for(jobs: BoundJobs) -> None:
    """What a step runs by `asyncio.to_thread` ends before another worker can claim the job."""
    asyncio.get_running_loop().set_default_executor(JobThreads(1))
    job_id = await jobs.enqueue(threaded)
    attempt = asyncio.create_task(attempt_by(jobs).run(job_id))
    await until(lambda: _failed(jobs, job_id, "threaded"))
    assert not attempt.done()
    assert await attempt_by(jobs, "other").run(job_id) == "refused"
    GATE.set()
    assert await attempt == "rescheduled"


async def test_dur7_a_function_that_waits_for_a_thread_is_cancelled_with_its_step(jobs: BoundJobs) -> None:
    """It cannot begin later, so its attempt ends at its own time limit, whatever the others do."""
    with JobThreads(1) as threads:
        busy = threads.submit(slow)
        job_id = await jobs.enqueue(queued)
        assert await attempt_by(jobs, threads=threads).run(job_id) == "rescheduled"
        assert not busy.done()
        assert "did not end within 0.3 s, and was in the step 'quick'" in str((await jobs.get(job_id)).error)
        GATE.set()
    assert await jobs._backend.queries.steps(job_id) == {}


async def test_dur7_steps_leave_the_loops_own_threads_free(jobs: BoundJobs) -> None:
    """A host name is resolved while plain functions keep all threads of steps busy."""
    async with AsyncExitStack() as opened:
        runner = attempt_runner(jobs._backend, "worker", opened, is_stopping=lambda: False, threads=1)
        attempt = asyncio.create_task(runner.run(await jobs.enqueue(siblings)))
        await until(_started)
        async with asyncio.timeout(30):
            assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        GATE.set()
        assert await attempt == "rescheduled"


async def test_dur7_a_retry_of_a_cancelled_job_waits_for_its_thread(jobs: BoundJobs) -> None:
    """However many leases the thread takes; then the retry begins at once."""
    brief = jobs.store[BRIEF]
    job_id = await brief.enqueue(threads)
    attempt, other = asyncio.create_task(attempt_by(brief).run(job_id)), attempt_by(brief, "other")
    await until(_started)
    await brief.cancel(job_id)
    await brief.retry(job_id)
    for _ in range(30):
        assert await other.run(job_id) == "refused"
        assert not attempt.done()
        await asyncio.sleep(0.1)
    GATE.set()
    assert await attempt == "lost"
    assert await other.run(job_id) == "done"


async def test_dur7_a_retry_after_the_death_of_the_worker_waits_for_its_lease(jobs: BoundJobs) -> None:
    """No one knows whether the cancelled attempt still runs, until its lease is over."""
    brief = jobs.store[BRIEF]
    GATE.set()
    job_id, other = await brief.enqueue(threads), attempt_by(brief, "other")
    assert await attempt_by(brief, "killed").claims.named(job_id, "work") is not None
    await brief.cancel(job_id)
    await brief.retry(job_id)
    assert await other.run(job_id) == "refused"

    async def done() -> bool:
        return await other.run(job_id) == "done"

    await until(done, within=10)


async def _started() -> bool:
    return STARTED.is_set()
