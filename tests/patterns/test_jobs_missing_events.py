"""A worker that dies between recording a step in SQL and its checkpoint leaves no gap in the progress."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, Run
from ephemera.patterns.progress import ProgressEntry, Snapshot
from tests.patterns.job_fixtures import PROGRESS, Ended, Stepped, ingest
from tests.patterns.job_store import opened, resumed

_OVER = timedelta(microseconds=1)


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """Jobs whose attempts the test makes itself."""
    async with opened(server.url, postgres.database("test_jobs_missing_events")) as bound:
        yield bound


async def _begun(jobs: BoundJobs, job_id: str, worker: str) -> Run:
    """An attempt whose lease expires at once, so that the next one may begin."""
    row = await jobs._backend.rows.claim(job_id, worker, _OVER)
    assert row is not None
    return await resumed(jobs, row)


async def _published_steps(jobs: BoundJobs, job_id: str) -> list[int]:
    """The numbers of the steps whose events were published, once the job has ended."""

    async def snapshot(**_: object) -> Snapshot:
        return Snapshot("", ended=True)

    async with jobs.store[PROGRESS].listen(job_id=job_id, snapshot=snapshot) as updates:
        events = [update.event async for update in updates if isinstance(update, ProgressEntry)]
    return [event.number for event in events if isinstance(event, Stepped)]


async def _work() -> int:
    return 1


async def test_the_next_attempt_publishes_the_event_of_the_last_step(jobs: BoundJobs) -> None:
    """A step that only SQL has is not repeated, and its event is published once."""
    job_id = await jobs.enqueue(ingest)

    first = await _begun(jobs, job_id, "first")
    assert await first.step("one", _work, event=Stepped(1)) == 1
    assert await jobs._backend.rows.record(None, job_id, first.fence, "two", b"2"), "and here it is killed"

    second = await _begun(jobs, job_id, "second")
    assert await second.step("one", _work, event=Stepped(1)) == 1
    assert await second.step("two", _work, event=Stepped(2)) == 2
    third = await _begun(jobs, job_id, "third")
    for number, name in ((1, "one"), (2, "two"), (3, "three")):
        await third.step(name, _work, event=Stepped(number))
    await third.checkpoint._end(event=Ended("done"))
    assert await _published_steps(jobs, job_id) == [1, 2, 3]
