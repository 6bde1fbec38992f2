"""`on_finished`: called at least once for each end of a job, whatever dies, without affecting the job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest
from sqlalchemy import func, update
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, JobRow, _finished_jobs
from ephemera.patterns.jobs._finished_jobs import CALLBACK_LEASE
from ephemera.patterns.jobs._reaper import run_upkeep
from ephemera.patterns.jobs._rows import CompletedJob
from tests.patterns.job_fixtures import JOBS, generate
from tests.patterns.job_store import attempt_by, opened

T = JOBS.tables.jobs


class Killed(BaseException):
    """Ends a process at this point, as SIGKILL does: nothing after it runs."""


class Calls(list[tuple[str, str]]):
    """The calls of the callback; `during` is what happens in each."""

    during: Callable[[], None] = staticmethod(lambda: None)


@pytest.fixture(params=["sql", "celery"])
async def jobs(
    server: Valkey,
    postgres: Postgres,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> AsyncIterator[BoundJobs]:
    """Jobs whose attempts the test makes itself."""
    monkeypatch.setattr(JOBS, "finished_callback", None)
    sql = postgres.database(f"{request.param}_{key}"[:60])
    async with opened(server.url, sql, delivery=request.param) as bound:
        yield bound


@pytest.fixture
def calls(jobs: BoundJobs) -> Calls:
    """The calls, which succeed unless the test says otherwise."""
    made = Calls()

    @JOBS.on_finished
    async def finished(store: Store, engine: AsyncEngine, row: JobRow) -> None:
        assert (store, engine) == (jobs.store, jobs.engine)
        made.append((row.id, row.state))
        made.during()

    return made


async def pass_time(jobs: BoundJobs, period: timedelta = CALLBACK_LEASE) -> None:
    """Let what is due within a period be due now."""
    async with jobs.engine.begin() as sql:
        await sql.execute(update(T).values(callback_due_at=T.c.callback_due_at - period))


async def upkeep(jobs: BoundJobs) -> None:
    """A pass of the leader, and the end of the calls that it starts."""
    await run_upkeep(jobs._backend)
    await asyncio.gather(*jobs._backend.callbacks._calls, return_exceptions=True)


async def is_due(jobs: BoundJobs, job_id: str) -> bool:
    """Whether the callback is recorded as due, now or later."""
    return (await jobs.get(job_id)).callback_due_at is not None


async def test_on_finished_is_called_once_for_each_end(jobs: BoundJobs, calls: Calls) -> None:
    """It is called after a job is done, dead or cancelled, and not again by the leader."""
    done, dead, cancelled = [await jobs.enqueue(generate, 1) for _ in range(3)]
    assert await attempt_by(jobs).run(done) == "done"
    async with jobs.engine.begin() as sql:
        await sql.execute(update(T).where(T.c.id == dead).values(attempts=1000))
    assert await attempt_by(jobs).run(dead) == "dead"
    await jobs.cancel(cancelled)
    await pass_time(jobs)
    await upkeep(jobs)
    assert calls == [(done, "done"), (dead, "dead"), (cancelled, "cancelled")]


async def test_a_process_killed_before_the_call_loses_nothing(jobs: BoundJobs, calls: Calls) -> None:
    """The end is committed and its process is gone: the leader calls when the lease is over, once."""
    job_id = await jobs.enqueue(generate, 1)
    row = await jobs._backend.rows.claim(job_id, "killed", CALLBACK_LEASE)
    assert row is not None
    await jobs._backend.rows.complete([CompletedJob(job_id, row.fence, "[]")])
    await upkeep(jobs)
    assert calls == [], "the process that ended it may still do it"
    await pass_time(jobs)
    for _ in range(2):
        await upkeep(jobs)
    assert calls == [(job_id, "done")]
    assert not await is_due(jobs, job_id)


@pytest.mark.parametrize("by", ["the worker", "the leader"])
async def test_a_process_killed_during_the_call_loses_nothing(jobs: BoundJobs, calls: Calls, by: str) -> None:
    """Whichever process made the call, another one repeats it after the lease."""

    def killed() -> None:
        raise Killed

    job_id = await jobs.enqueue(generate, 1)
    calls.during = killed
    with pytest.raises(Killed):
        await jobs.cancel(job_id)
    if by == "the leader":
        await pass_time(jobs)
        (row,) = await jobs._backend.callbacks._claim(10)
        with pytest.raises(Killed):
            await jobs._backend.callbacks.call(row)
    calls.during = Calls.during
    await upkeep(jobs)
    before = len(calls)
    await pass_time(jobs)
    await upkeep(jobs)
    assert len(calls) == before + 1
    assert not await is_due(jobs, job_id)


async def test_a_process_killed_after_the_call_repeats_it(
    jobs: BoundJobs, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once: the call is repeated if its success was not recorded."""

    async def killed(*_: object) -> None:
        raise Killed

    job_id = await jobs.enqueue(generate, 1)
    with monkeypatch.context() as dying:
        dying.setattr(jobs._backend.callbacks, "_record", killed)
        with pytest.raises(Killed):
            await jobs.cancel(job_id)
    await pass_time(jobs)
    await upkeep(jobs)
    assert calls == [(job_id, "cancelled")] * 2
    assert not await is_due(jobs, job_id)


async def test_a_failing_call_is_repeated_with_growing_delays(
    jobs: BoundJobs, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is done nevertheless, each failure is logged, and the delays double up to ten minutes."""

    def fails() -> None:
        raise RuntimeError("the mail server is down")

    calls.during = fails
    job_id = await jobs.enqueue(generate, 1)
    assert await attempt_by(jobs).run(job_id) == "done"
    assert f"`on_finished` failed for job {job_id}" in caplog.text
    delays = []
    for _ in range(12):
        row = await jobs.get(job_id)
        assert row.callback_due_at is not None
        async with jobs.engine.connect() as sql:
            left = (await sql.execute(func.clock_timestamp().select())).scalar_one()
        delays.append((row.callback_due_at - left).total_seconds())
        await pass_time(jobs, timedelta(minutes=10))
        await upkeep(jobs)
    assert all(delay <= min(2**number, 600) for number, delay in enumerate(delays))
    assert delays[-1] > 300
    calls.during = Calls.during
    await pass_time(jobs, timedelta(minutes=10))
    await upkeep(jobs)
    assert not await is_due(jobs, job_id)


async def test_a_call_that_hangs_is_given_up_before_its_lease(
    jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that two processes do not call at the same time."""
    monkeypatch.setattr(_finished_jobs, "CALLBACK_TIMEOUT", timedelta(seconds=0.05))

    @JOBS.on_finished
    async def hangs(store: Store, engine: AsyncEngine, row: JobRow) -> None:
        await asyncio.Event().wait()

    job_id = await jobs.enqueue(generate, 1)
    await jobs.cancel(job_id)
    assert await is_due(jobs, job_id)


async def test_a_process_without_the_callback_leaves_it_to_a_worker(
    jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console that cancels does not know the callback; a worker calls it, or clears it a day later."""
    first, second = await jobs.enqueue(generate, 1), await jobs.enqueue(generate, 1)
    await jobs.cancel(first)
    await upkeep(jobs)
    assert await is_due(jobs, first)
    await pass_time(jobs, timedelta(days=2))
    await upkeep(jobs)
    assert not await is_due(jobs, first)
    await jobs.cancel(second)
    await upkeep(jobs)
    made: list[str] = []

    @JOBS.on_finished
    async def finished(store: Store, engine: AsyncEngine, row: JobRow) -> None:
        made.append(row.id)

    await upkeep(jobs)
    assert made == [second]


async def test_a_retry_before_the_call_replaces_it(jobs: BoundJobs, calls: Calls) -> None:
    """The job has not ended any more; its next end has a call of its own."""
    job_id = await jobs.enqueue(generate, 1)
    await jobs._backend.rows.cancel(job_id)
    await jobs.retry(job_id)
    await pass_time(jobs)
    await upkeep(jobs)
    assert calls == []
    assert await attempt_by(jobs).run(job_id) == "done"
    assert calls == [(job_id, "done")]
