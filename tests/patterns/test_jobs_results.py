"""`result`: waits for a job's end, and returns or raises what that was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from ephemera import Catalogue, embedded, keyspace
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import JobFailed, JobNotFinished, JobUnsuccessful, UnknownJob
from ephemera.patterns.jobs import BoundJobs, Jobs, Retry, Run, _finished_jobs, sql_engine
from tests.patterns.job_store import attempt_by, delivered_by

pytestmark = pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")

CATALOGUE = Catalogue("test-results")
JOBS = Jobs(CATALOGUE, "results_checkpoint:{job_id}", queues=("results",), name="awaited")
MINUTE = timedelta(minutes=1)


class Deck(msgspec.Struct):
    """A result with types that JSON does not have."""

    id: UUID
    took: timedelta


@JOBS.job(queue="results", retry=Retry(attempts=1))
async def write(run: Run, error: str | None = None) -> Deck:
    """Return a deck, or fail."""
    if error == "lost":
        raise ConnectionError(error)
    if error:
        raise JobFailed(error)
    return Deck(UUID(int=7), timedelta(seconds=90))


@pytest.fixture(params=["sql", "celery"])
async def jobs(
    server: Valkey, postgres: Postgres, request: pytest.FixtureRequest
) -> AsyncIterator[BoundJobs]:
    """Jobs whose attempts the test makes itself."""
    engine = sql_engine(postgres.database("test_jobs_results"))
    resources = {JOBS: delivered_by(request.param, engine)}
    async with keyspace.connect(server.url, CATALOGUE, resources=resources) as store:
        await store[JOBS].create_tables()
        yield store[JOBS]
    await engine.dispose()


async def test_a_result_has_the_type_of_the_return_annotation(jobs: BoundJobs) -> None:
    """A result that exists is returned at once, decoded."""
    job_id = await jobs.enqueue(write)
    await attempt_by(jobs).run(job_id)
    assert await jobs.result(job_id, timeout=timedelta(seconds=10)) == Deck(
        UUID(int=7), timedelta(seconds=90)
    )


async def test_waiting_callers_are_woken_by_redis(jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """All callers get the result with the message, not with the next look at the row."""
    monkeypatch.setattr(_finished_jobs, "_POLL_SUBSCRIBED", 600.0)
    job_id = await jobs.enqueue(write)
    waiting = [asyncio.create_task(jobs.result(job_id, timeout=MINUTE)) for _ in range(3)]
    ends = jobs._backend.ends
    while not ends._subscribed:
        await asyncio.sleep(0.01)
    await attempt_by(jobs).run(job_id)
    assert await asyncio.gather(*waiting) == [Deck(UUID(int=7), timedelta(seconds=90))] * 3
    assert ends._task is None, "nothing is left when no caller waits"
    assert not ends._waiting


async def test_a_result_arrives_without_redis(postgres: Postgres) -> None:
    """With the server down, the row is read now and then."""
    with embedded.valkey() as own:
        url = own.url
    engine = sql_engine(postgres.database("test_jobs_results"))
    async with keyspace.connect(url, CATALOGUE, required=False, resources={JOBS: engine}) as store:
        jobs = store[JOBS]
        await jobs.create_tables()
        job_id = await jobs.enqueue(write)
        waiting = asyncio.create_task(jobs.result(job_id, timeout=MINUTE))
        await asyncio.sleep(0)
        await attempt_by(jobs).run(job_id)
        assert (await waiting).id == UUID(int=7)
    await engine.dispose()


async def test_a_job_without_success_raises_what_happened(jobs: BoundJobs) -> None:
    """Failed, dead and cancelled jobs raise with their state and their error."""
    failed, dead, cancelled = [await jobs.enqueue(write, error) for error in ("encrypted", "lost", None)]
    for job_id in (failed, dead):
        await attempt_by(jobs).run(job_id)
    await jobs.cancel(cancelled)
    for job_id, state, error in (
        (failed, "failed", "encrypted"),
        (dead, "dead", "ConnectionError: lost"),
        (cancelled, "cancelled", None),
    ):
        with pytest.raises(JobUnsuccessful, match=f"is {state}") as raised:
            await jobs.result(job_id, timeout=MINUTE)
        assert (raised.value.state, raised.value.error) == (state, error)


async def test_the_timeout_and_an_unknown_job_are_errors(jobs: BoundJobs) -> None:
    """A job that is still running raises a `TimeoutError` with its state."""
    job_id = await jobs.enqueue(write)
    with pytest.raises(JobNotFinished, match="it is waiting") as raised:
        await jobs.result(job_id, timeout=timedelta(seconds=0.2))
    assert isinstance(raised.value, TimeoutError)
    with pytest.raises(UnknownJob):
        await jobs.result("none", timeout=MINUTE)
