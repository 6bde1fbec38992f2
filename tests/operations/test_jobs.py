"""Counting and listing jobs for the console: bounded by an index, one page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from ephemera import Catalogue, Store
from ephemera.embedded import Postgres, Valkey
from ephemera.operations.inspect import count_jobs
from ephemera.patterns.jobs import BoundJobs, Jobs
from tests.patterns.job_fixtures import JOBS, generate
from tests.patterns.job_store import attempt_by, opened


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """Jobs that no worker runs, in a database of this file."""
    async with opened(server.url, postgres.database("operations_jobs")) as live:
        async with live.engine.begin() as sql:
            await sql.execute(sa.delete(JOBS.tables.jobs))
        yield live


async def test_jobs_are_counted_by_state_and_kind(jobs: BoundJobs) -> None:
    """Three jobs, one done: counts by state and kind, and the usual number of steps."""
    done = await jobs.enqueue(generate, 3)
    for _ in range(2):
        await jobs.enqueue(generate, 1)
    await attempt_by(jobs).run(done)
    counts = await count_jobs(JOBS, jobs.engine)
    assert counts.counted == 3
    assert counts.states == {"done": 1, "waiting": 2}
    assert counts.kinds == {"generate": 3}
    assert counts.usual_steps == {"generate": (await jobs.get(done)).steps}
    assert (await count_jobs(JOBS, jobs.engine, limit=2)).counted == 2


async def test_pages_continue_before_the_last_job_shown(jobs: BoundJobs) -> None:
    """Pages by time of creation contain every job once, newest first."""
    ids = [await jobs.enqueue(generate, 1) for _ in range(5)]
    first = await jobs.find(limit=3)
    second = await jobs.find(limit=3, before=first[-1].created_at)
    assert [row.id for row in (*first, *second)] == ids[::-1]


async def test_a_process_without_the_job_function_can_retry_it(jobs: BoundJobs) -> None:
    """A console without the job's code can retry it; a worker that has it runs it."""
    job_id = await jobs.enqueue(generate, 1)
    await jobs.cancel(job_id)
    catalogue = Catalogue("test-jobs-stranger")
    stranger = Jobs(catalogue, "gen_checkpoint:{job_id}", queues=JOBS.queues)
    store = Store(
        {"cache": jobs.store.client(), "queue": jobs.store.client()},
        catalogue,
        resources={stranger: jobs.engine},
    )
    assert (await store[stranger].retry(job_id)).state == "waiting"
    assert [each.id for each in await jobs._backend.rows.unpublished("generation", 10)] == [job_id]
