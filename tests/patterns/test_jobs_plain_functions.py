"""Jobs that are plain functions: resumed, limited, stopped and lost as others, but in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, assert_type

import pytest

from ephemera import Catalogue, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import DuplicateStep, InvalidDeclaration, InvalidValue, JobFailed
from ephemera.patterns.jobs import BoundJobs, Job, Jobs, Retry, SyncRun, sql_engine
from ephemera.patterns.jobs._run_context import JobThreads
from tests.patterns.job_fixtures import digest
from tests.patterns.job_store import attempt_by, delivered_by, opened
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended, stepped, until

pytestmark = pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")

CATALOGUE = Catalogue("test-plain-jobs")
JOBS = Jobs(CATALOGUE, "plain:{job_id}", queues=("work",), name="plain", lease=timedelta(seconds=2))
calls: list[str] = []
"""What the functions did."""
GATE = threading.Event()
STARTED = threading.Event()
USER: ContextVar[str] = ContextVar("user", default="none")


def slow(what: str) -> str:
    """End when the test says so."""
    calls.append(f"{what} in {threading.current_thread().name}")
    STARTED.set()
    assert GATE.wait(60)
    return what


async def fetched(what: str) -> str:
    """What an `async def` returns; it runs on the event loop."""
    await asyncio.sleep(0)
    assert threading.current_thread() is threading.main_thread()
    return what


@JOBS.job(queue="work", retry=Retry(attempts=3, backoff=timedelta(0)))
def report(run: SyncRun, words: list[str], fail_times: int = 0) -> dict[str, int]:
    """Steps of both sorts, and some failures."""
    for word in words:
        size = run.step(f"size:{word}", len, word)
        assert_type(size, int)
        calls.append(f"{word} by {run.attempt}, for {USER.get()}")
    assert run.step("fetch", fetched, run.idempotency_key("fetch")) == f"{run.id}:fetch"
    if run.attempt <= fail_times:
        raise ValueError("no")
    return {word: len(word) for word in words}


@JOBS.job(queue="work", time_limit=timedelta(seconds=0.5), retry=Retry(attempts=2, backoff=timedelta(0)))
def blocked(run: SyncRun) -> str:
    """A step that takes as long as the test says, and another one."""
    first = run.step("slow", slow, "slow")
    try:
        return first + run.step("last", slow, "last")
    except Exception:
        calls.append("a stop is no Exception")
        raise


@JOBS.job(queue="work")
def long(run: SyncRun) -> str:
    """The same without a time limit."""
    return run.step("slow", slow, "slow") + run.step("last", slow, "last")


@JOBS.job(queue="work", retry=Retry(attempts=1))
def wrong(run: SyncRun, how: str) -> None:
    """Ends without a result."""
    if how == "failed":
        raise JobFailed("it gave up")
    run.step("same", str)
    try:
        run.step("same", str)
    except DuplicateStep:
        calls.append("duplicate")
        raise


@pytest.fixture(params=["sql", "celery"])
async def jobs(
    server: Valkey, postgres: Postgres, request: pytest.FixtureRequest
) -> AsyncIterator[BoundJobs]:
    """Jobs that run in this process."""
    for each in (GATE, STARTED, calls):
        each.clear()
    engine = sql_engine(postgres.database("test_plain_jobs"))
    resources = {JOBS: delivered_by(request.param, engine)}
    async with connect(server.url, CATALOGUE, resources=resources) as store:
        await store[JOBS].create_tables()
        yield store[JOBS]
    await engine.dispose()


async def started() -> bool:
    """Whether the slow function runs."""
    return STARTED.is_set()


async def test_steps_of_a_plain_function_run_once(jobs: BoundJobs) -> None:
    """Attempts repeat no recorded step; the context is that of the attempt, and the result is stored."""
    typed: Job[..., dict[str, int]] = report
    with pytest.raises(InvalidValue):
        await jobs.enqueue(report, 7)  # type: ignore[arg-type]  # type checkers know the arguments, too
    token = USER.set("ann")
    job_id = await jobs.enqueue(typed, ["one", "three"], 1)
    assert await attempt_by(jobs).run(job_id) == "rescheduled"
    assert await attempt_by(jobs).run(job_id) == "done"
    USER.reset(token)
    assert await jobs.result(job_id) == {"one": 3, "three": 5}
    assert calls == [f"{word} by {attempt}, for ann" for attempt in (1, 2) for word in ("one", "three")]
    assert (await jobs.get(job_id)).steps == 3


@pytest.mark.parametrize(("how", "state"), [("failed", "failed"), ("duplicate", "dead")])
async def test_errors_of_a_plain_function_end_it_as_any_other(jobs: BoundJobs, how: str, state: str) -> None:
    """An error of a step is raised where the step is called."""
    job_id = await jobs.enqueue(wrong, how)
    assert await attempt_by(jobs).run(job_id) == state
    assert calls == (["duplicate"] if how == "duplicate" else [])


async def test_a_row_is_released_when_the_function_has_ended(jobs: BoundJobs) -> None:
    """Its time limit cannot stop a thread; the next step ends it, and what the last one returned is kept."""
    job_id = await jobs.enqueue(blocked)
    attempt = asyncio.create_task(attempt_by(jobs).run(job_id))

    async def over_its_limit() -> bool:
        return (await jobs.get(job_id)).error is not None

    await until(over_its_limit)
    assert not attempt.done()
    assert await attempt_by(jobs, "other").run(job_id) == "refused"
    GATE.set()
    assert await attempt == "rescheduled"
    assert "did not end within 0.5 s, and was in the step 'slow'" in str((await jobs.get(job_id)).error)
    assert await jobs._backend.queries.steps(job_id) == {"slow": b'"slow"'}
    assert await attempt_by(jobs, "other").run(job_id) == "done"
    assert [each.partition(" in ")[0] for each in calls] == ["slow", "last"]


async def test_a_stopping_worker_releases_a_plain_function_after_its_step(jobs: BoundJobs) -> None:
    """It continues elsewhere with the next step, and has used no attempt."""
    job_id = await jobs.enqueue(long)
    stopping = False
    runner = attempt_by(jobs, is_stopping=lambda: stopping)
    attempt = asyncio.create_task(runner.run(job_id))
    await until(started)
    stopping = True
    runner.leases.announce_stop()
    GATE.set()
    assert await attempt == "released"
    row = await jobs.get(job_id)
    assert (row.state, row.attempts, row.steps) == ("waiting", 0, 1)
    assert await attempt_by(jobs, "other").run(job_id) == "done"


async def test_a_cancelled_plain_function_ends_at_its_next_step(jobs: BoundJobs) -> None:
    """Until then a retry is refused to other workers."""
    job_id = await jobs.enqueue(long)
    attempt = asyncio.create_task(attempt_by(jobs).run(job_id))
    await until(started)
    await jobs.cancel(job_id)
    await jobs.retry(job_id)
    for _ in range(30):  # longer than a lease
        assert await attempt_by(jobs, "other").run(job_id) == "refused"
        await asyncio.sleep(0.1)
    GATE.set()
    assert await attempt == "lost"
    assert await attempt_by(jobs, "other").run(job_id) == "done"


async def test_a_plain_function_needs_one_thread(jobs: BoundJobs) -> None:
    """Its steps run in its own, so as many jobs as there are threads cannot wait for each other."""
    GATE.set()
    with JobThreads(1) as threads:
        busy = threads.submit(STARTED.wait)  # the only thread of steps
        assert await attempt_by(jobs, threads=threads).run(await jobs.enqueue(long)) == "done"
        assert busy.result()
    assert len({each.partition(" in ")[2] for each in calls}) == 1


def test_a_generator_is_no_job() -> None:
    """No one would read what it yields."""

    def pages(run: SyncRun) -> Any:
        yield 1

    with pytest.raises(InvalidDeclaration, match="a job is no generator"):
        JOBS.job(queue="work")(pages)


@pytest.mark.parametrize("delivery", ["sql", "celery"])
async def test_a_plain_function_continues_after_its_worker_was_killed(
    server: Valkey, postgres: Postgres, delivery: str
) -> None:
    """On the worker that takes it over, from the step after the last recorded one."""
    sql = postgres.database(f"plain_{delivery}")
    async with opened(server.url, sql, delivery=delivery) as bound:
        job_id = await bound.enqueue(digest, 20, 0.1)
        with Worker(server.url, sql, delivery=delivery, concurrency=1) as first:
            row = await stepped(bound, job_id, 3)
            first.kill()
        with Worker(server.url, sql, delivery=delivery, concurrency=1):
            done = await ended(bound, job_id)
    assert (done.state, done.attempts, done.steps) == ("done", 2, 20)
    assert done.result == [f"part {number}" for number in range(20)]
    assert done.worker != row.worker
