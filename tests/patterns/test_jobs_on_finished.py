"""`on_finished`: called once for each end of a job, without affecting the job."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, JobRow
from tests.patterns.job_fixtures import JOBS, generate
from tests.patterns.job_store import attempt_by, opened

pytestmark = pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")


@pytest.fixture
async def jobs(
    server: Valkey, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BoundJobs]:
    """Jobs whose attempts the test makes itself."""
    monkeypatch.setattr(JOBS, "finished_callback", None)
    async with opened(server.url, postgres.database("test_jobs_on_finished")) as bound:
        yield bound


async def test_on_finished_is_called_once_for_each_end(jobs: BoundJobs) -> None:
    """It gets the row after a job is done, dead or cancelled."""
    calls: list[tuple[str, str]] = []

    @JOBS.on_finished
    async def finished(store: Store, engine: AsyncEngine, row: JobRow) -> None:
        assert (store, engine) == (jobs.store, jobs.engine)
        assert row == await jobs.get(row.id)
        calls.append((row.id, row.state))

    done, dead, cancelled = [await jobs.enqueue(generate, 1) for _ in range(3)]
    assert await attempt_by(jobs).run(done) == "done"
    row = await jobs.get(dead)
    async with jobs.engine.begin() as sql:
        table = JOBS.tables[0]
        await sql.execute(table.update().where(table.c.id == row.id).values(attempts=1000))
    assert await attempt_by(jobs).run(dead) == "dead"
    await jobs.cancel(cancelled)
    assert calls == [(done, "done"), (dead, "dead"), (cancelled, "cancelled")]


async def test_a_failing_on_finished_does_not_affect_the_job(
    jobs: BoundJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is done nevertheless, and the failure is logged."""

    @JOBS.on_finished
    async def finished(store: Store, engine: AsyncEngine, row: JobRow) -> None:
        raise RuntimeError("the mail server is down")

    job_id = await jobs.enqueue(generate, 1)
    assert await attempt_by(jobs).run(job_id) == "done"
    assert (await jobs.get(job_id)).state == "done"
    assert f"`on_finished` failed for job {job_id}" in caplog.text
