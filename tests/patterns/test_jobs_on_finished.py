"""What an application does when a job has ended: once for each end, and never at the job's cost."""

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
    """Jobs whose attempts are made by hand."""
    monkeypatch.setattr(JOBS, "conclude", None)
    async with opened(server.url, postgres.database("test_jobs_on_finished")) as live:
        yield live


async def test_each_end_is_concluded_once(jobs: BoundJobs) -> None:
    """Done, given up and cancelled: the row that SQL has is handed over after each."""
    concluded: list[tuple[str, str]] = []

    @JOBS.on_finished
    async def conclude(store: Store, engine: AsyncEngine, row: JobRow) -> None:
        assert (store, engine) == (jobs.store, jobs.engine)
        assert row == await jobs.get(row.id)
        concluded.append((row.id, row.state))

    done, dead, cancelled = [await jobs.enqueue(generate, 1) for _ in range(3)]
    assert await attempt_by(jobs).run(done) == "done"
    row = await jobs.get(dead)
    async with jobs.engine.begin() as sql:
        table = JOBS.tables[0]
        await sql.execute(table.update().where(table.c.id == row.id).values(attempts=1000))
    assert await attempt_by(jobs).run(dead) == "dead"
    await jobs.cancel(cancelled)
    assert concluded == [(done, "done"), (dead, "dead"), (cancelled, "cancelled")]


async def test_a_conclusion_that_fails_costs_the_job_nothing(
    jobs: BoundJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is done all the same, and the log says what could not be."""

    @JOBS.on_finished
    async def conclude(store: Store, engine: AsyncEngine, row: JobRow) -> None:
        raise RuntimeError("nobody listens")

    job_id = await jobs.enqueue(generate, 1)
    assert await attempt_by(jobs).run(job_id) == "done"
    assert (await jobs.get(job_id)).state == "done"
    assert f"what follows the end of the job {job_id} could not be done" in caplog.text
