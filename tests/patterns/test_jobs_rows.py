"""The rows: only the worker that holds a job can change its row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import MetaData, text

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, JobRow
from ephemera.patterns.jobs._rows import CompletedJob, HeldJob
from ephemera.patterns.jobs._tables import job_tables
from tests.patterns.job_fixtures import generate
from tests.patterns.job_store import opened

LEASE = timedelta(seconds=30)
LAPSED = timedelta(seconds=-1)


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """Jobs without a worker."""
    async with opened(server.url, postgres.database("test_jobs_rows")) as bound:
        yield bound


def test_a_column_with_a_default_is_never_null() -> None:
    """Queries need not ask for a third value where a new row has a definite one."""
    columns = [column for table in job_tables(MetaData(), "jobs") for column in table.columns]
    assert not [str(column) for column in columns if column.server_default is not None and column.nullable]


async def claimed(jobs: BoundJobs, lease: timedelta = LEASE) -> JobRow:
    """A job that a worker has claimed."""
    row = await jobs._backend.rows.claim(await jobs.enqueue(generate, 1), "one", lease)
    assert row is not None
    return row


async def test_one_of_many_workers_gets_a_job(jobs: BoundJobs) -> None:
    """Of ten concurrent claims one succeeds; the row has its worker, fence and attempt."""
    job_id = await jobs.enqueue(generate, 1)
    claims = await asyncio.gather(
        *(jobs._backend.rows.claim(job_id, f"worker-{n}", LEASE) for n in range(10))
    )
    (won,) = [row for row in claims if row is not None]
    assert (won.state, won.fence, won.attempts) == ("running", 1, 1)
    assert (await jobs.get(job_id)).worker == won.worker


async def test_a_job_is_taken_over_when_its_lease_has_expired_and_not_before(jobs: BoundJobs) -> None:
    """A renewed lease refuses other workers; after an expired one the next worker gets a larger fence."""
    row = await claimed(jobs, LAPSED)
    assert await jobs._backend.rows.renew([HeldJob(row.id, row.fence)], LEASE)
    assert await jobs._backend.rows.claim(row.id, "two", LEASE) is None
    assert await jobs._backend.rows.renew([HeldJob(row.id, row.fence)], LAPSED)
    taken = await jobs._backend.rows.claim(row.id, "two", LEASE)
    assert taken is not None
    assert (taken.fence, taken.attempts, taken.worker) == (2, 2, "two")


async def test_sql_refuses_every_write_with_an_older_fence(jobs: BoundJobs) -> None:
    """A late worker can neither renew, record, end, reschedule nor release a job."""
    row = await claimed(jobs, LAPSED)
    new = await jobs._backend.rows.claim(row.id, "two", LEASE)
    rows, old = jobs._backend.rows, (row.id, row.fence)
    assert not await rows.renew([HeldJob(*old)], LEASE)
    assert not await rows.record(None, *old, "step", b"1")
    assert await rows.complete([CompletedJob(*old, "1")]) == []
    assert await rows.fail(*old, "dead", "late") is None
    assert await rows.reschedule(*old, "late", LEASE) is None
    assert await rows.release(*old) is None
    assert await jobs.get(row.id) == new
    assert await jobs._backend.queries.steps(row.id) == {}


@pytest.mark.parametrize("late_first", [True, False])
async def test_a_late_result_in_the_same_statement_is_not_the_jobs(jobs: BoundJobs, late_first: bool) -> None:
    """A process may complete two attempts of one job at once; the result is that of the newer fence."""
    row = await claimed(jobs, LAPSED)
    new = await jobs._backend.rows.claim(row.id, "one", LEASE)
    assert new is not None
    both = [CompletedJob(row.id, row.fence, '"late"'), CompletedJob(row.id, new.fence, '"newer"')]
    (done,) = await jobs._backend.rows.complete(both if late_first else both[::-1])
    assert (done.result, done.fence) == ("newer", new.fence)


async def test_a_cancelled_job_is_refused_to_its_worker_and_to_others(jobs: BoundJobs) -> None:
    """Cancelling raises the fence: its worker can record nothing more, and no worker can claim it."""
    row = await claimed(jobs, LAPSED)
    cancelled = await jobs.cancel(row.id)
    assert (cancelled.state, cancelled.fence) == ("cancelled", 2)
    assert not await jobs._backend.rows.record(None, row.id, row.fence, "step", b"1")
    assert await jobs._backend.rows.claim(row.id, "two", LEASE) is None


async def test_a_worker_can_record_a_step_twice(jobs: BoundJobs) -> None:
    """Repeating a statement whose outcome is unknown does no harm."""
    row = await claimed(jobs)
    for _ in range(2):
        assert await jobs._backend.rows.record(None, row.id, row.fence, "step", b'{"a":1}')
    assert await jobs._backend.queries.steps(row.id) == {"step": b'{"a":1}'}


async def test_a_rescheduled_job_is_not_claimed_early(jobs: BoundJobs) -> None:
    """A failed job waits for its next attempt, and has the error of the last one."""
    row = await claimed(jobs)
    await jobs._backend.rows.reschedule(row.id, row.fence, "ValueError: no", LEASE)
    assert await jobs._backend.rows.claim(row.id, "two", LEASE) is None
    waiting = await jobs.get(row.id)
    assert (waiting.state, waiting.error, waiting.attempts) == ("waiting", "ValueError: no", 1)


async def test_a_snoozed_job_is_not_claimed_early(jobs: BoundJobs) -> None:
    """A job that is snoozed waits for its delay; the attempt does not count."""
    row, rows = await claimed(jobs), jobs._backend.rows
    snoozed = await rows.snooze(row.id, row.fence, LEASE)
    assert snoozed is not None
    assert (snoozed.state, snoozed.attempts) == ("waiting", 0)
    assert await rows.claim(row.id, "two", LEASE) is None


async def test_the_checkpoint_names_the_worker_of_the_row(jobs: BoundJobs) -> None:
    """A checkpoint in Redis shows which worker holds the job."""
    row = await claimed(jobs)
    checkpoint = jobs._backend.checkpoint(row)
    await checkpoint._begin()
    assert await jobs._backend.store.call("HGET", checkpoint._key, "_worker") == b"one"


async def test_a_released_job_has_not_used_an_attempt(jobs: BoundJobs) -> None:
    """A worker that stops releases its job; the attempt does not count, the steps do."""
    row = await claimed(jobs)
    handed = await jobs._backend.rows.release(row.id, row.fence)
    assert handed is not None
    assert (handed.state, handed.attempts, handed.fence) == ("waiting", 0, 1)
    assert await jobs._backend.rows.claim(row.id, "two", LEASE) is not None


async def test_rows_are_found_by_state_and_kind(jobs: BoundJobs) -> None:
    """The newest rows come first, and only those that match."""
    ids = [await jobs.enqueue(generate, number) for number in range(3)]
    found = await jobs.find(states=("waiting",), kind="generate", limit=2)
    assert [row.id for row in found] == ids[:0:-1]
    assert await jobs.find(kind="nothing") == []


async def test_only_known_states_can_be_written(jobs: BoundJobs) -> None:
    """The table itself refuses an unknown state."""
    row = await claimed(jobs)
    async with jobs.engine.connect() as sql:
        with pytest.raises(Exception, match="jobs_state"):
            await sql.execute(text("UPDATE jobs SET state = 'lost' WHERE id = :id"), {"id": row.id})
