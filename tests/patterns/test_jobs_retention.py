"""Retention: rows of ended jobs are deleted when their time is over, in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import insert, select, text

from ephemera import Catalogue
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidDeclaration
from ephemera.patterns.jobs import BoundJobs, Jobs, _finished_jobs
from ephemera.patterns.jobs._finished_jobs import Retention, keep_by_state
from ephemera.patterns.jobs._reaper import run_upkeep
from tests.patterns.job_fixtures import JOBS, generate
from tests.patterns.job_store import opened

pytestmark = pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")

DAY = timedelta(days=1)


@pytest.fixture(params=["sql", "celery"])
async def jobs(
    server: Valkey, postgres: Postgres, key: str, request: pytest.FixtureRequest
) -> AsyncIterator[BoundJobs]:
    """Jobs without a worker."""
    sql = postgres.database(f"{request.param}_{key}"[:60])
    async with opened(server.url, sql, delivery=request.param) as bound:
        yield bound


async def add(jobs: BoundJobs, job_id: str, state: str, days: float, **values: object) -> None:
    """A job that ended some days ago, with a step."""
    table, steps = jobs.declaration.tables.jobs, jobs.declaration.tables.steps
    ended = text(f"clock_timestamp() - interval '{days} days'")
    row = {"id": job_id, "kind": "generate", "queue": "generation", "arguments": {}, "state": state}
    async with jobs.engine.begin() as sql:
        await sql.execute(insert(table).values(**row, finished_at=ended, **values))
        await sql.execute(insert(steps).values(job_id=job_id, name="one", result="1", fence=1))


async def ids(jobs: BoundJobs) -> set[str]:
    """The jobs that are left."""
    return {row.id for row in await jobs.find(limit=1000)}


async def test_old_rows_are_deleted_with_their_steps(jobs: BoundJobs) -> None:
    """After 30 days by default, whatever their state; open jobs, and those with a due callback, stay."""
    for state in ("done", "failed", "dead", "cancelled"):
        await add(jobs, f"old {state}", state, 31)
        await add(jobs, f"new {state}", state, 29)
    await add(jobs, "unpublished", "done", 31, callback_due_at=text("clock_timestamp() + interval '1 hour'"))
    await add(
        jobs, "held", "done", 31, unique_key="x", unique_until=text("clock_timestamp() + interval '1 h'")
    )
    waiting = await jobs.enqueue(generate, 1)
    await run_upkeep(jobs._backend)
    assert await ids(jobs) == {
        "new done",
        "new failed",
        "new dead",
        "new cancelled",
        "unpublished",
        "held",
        waiting,
    }
    async with jobs.engine.connect() as sql:
        steps = (await sql.execute(select(JOBS.tables.steps.c.job_id))).scalars().all()
    assert set(steps) == await ids(jobs) - {waiting}


async def test_states_may_be_kept_for_different_times(jobs: BoundJobs) -> None:
    """A state that is not named is kept forever."""
    for state in ("done", "failed", "dead"):
        await add(jobs, state, state, 5)
    retention = Retention(JOBS.tables, jobs.engine, {"done": DAY, "dead": 10 * DAY})
    assert await retention.delete_batch() == 1
    assert await ids(jobs) == {"failed", "dead"}


async def test_deletion_is_bounded_and_continues(jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full batches follow each other while there is time, then with the next pass; others wait a minute."""
    monkeypatch.setattr(_finished_jobs, "DELETED_AT_ONCE", 2)
    now = 0.0
    monkeypatch.setattr(_finished_jobs, "monotonic", lambda: now)
    for number in range(9):
        await add(jobs, f"{number}", "done", 40 - number)
    retention = Retention(JOBS.tables, jobs.engine, {"done": DAY})
    delete_batch, took = retention.delete_batch, 0.3  # seconds

    async def timed() -> int:
        nonlocal now
        deleted = await delete_batch()
        now += took
        return deleted

    monkeypatch.setattr(retention, "delete_batch", timed)
    left = []
    for _ in range(3):
        await retention.delete_if_due()
        left.append(await ids(jobs))
    assert left == [{"4", "5", "6", "7", "8"}, {"8"}, set()]
    await add(jobs, "later", "done", 40)
    await retention.delete_if_due()
    assert await ids(jobs) == {"later"}
    now += 60
    await retention.delete_if_due()
    assert await ids(jobs) == set()


def test_periods_are_checked() -> None:
    """None keeps everything; a state that is not an end, or a negative period, is refused."""
    assert keep_by_state("jobs", None) == {}
    assert set(keep_by_state("jobs", DAY)) == {"done", "failed", "cancelled", "dead"}
    for wrong in ({"running": DAY}, {"done": -DAY}):
        with pytest.raises(InvalidDeclaration, match="keep="):
            Jobs(Catalogue("wrong"), "checkpoint:{job_id}", queues=("work",), keep=wrong)
