"""DUR2: a worker that does not know a job's kind hands it back, without using up its attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs
from tests.patterns.job_fixtures import JOBS, generate, ingest
from tests.patterns.job_store import attempt_by, opened


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """Jobs that workers of two versions share."""
    async with opened(server.url, postgres.database("test_dur2")) as bound:
        yield bound


async def test_dur2_a_named_job_of_an_unknown_kind_is_handed_back(
    jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often an old worker receives its message, it has all its attempts, and runs elsewhere."""
    job_id = await jobs.enqueue(ingest)
    new = attempt_by(jobs, "new")
    monkeypatch.delitem(JOBS.kinds, "ingest")
    old = attempt_by(jobs, "old")
    assert await old.run(job_id) == "unknown"
    row = await jobs.get(job_id)
    assert (row.state, row.attempts, row.fence, row.published_at) == ("waiting", 0, 0, None)
    assert "does not know this kind of job" in str(row.error)
    assert row.available_at - row.created_at >= JOBS.lease  # it is not sent again at once
    monkeypatch.undo()
    async with jobs.engine.begin() as sql:
        await sql.execute(JOBS.tables.jobs.update().values(available_at=row.created_at))
    assert await new.run(job_id) == "done"


async def test_dur2_a_batch_leaves_unknown_kinds_to_others(
    jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker claims the jobs it knows past any number of others, and changes nothing of those."""
    unknown = [await jobs.enqueue(generate, 1) for _ in range(3)]
    async with jobs.engine.begin() as sql:
        await sql.execute(JOBS.tables.jobs.update().values(queue="ingestion"))
    known = await jobs.enqueue(ingest)
    monkeypatch.delitem(JOBS.kinds, "generate")
    old = attempt_by(jobs, "old")
    assert [row.id for row in await old.claims.due("ingestion", 10)] == [known]
    rows = [await jobs.get(job_id) for job_id in unknown]
    assert {(row.state, row.attempts, row.fence) for row in rows} == {("waiting", 0, 0)}
