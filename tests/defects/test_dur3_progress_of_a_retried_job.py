"""DUR3: the progress of a retried job follows the new run, and does not end at the old failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs
from ephemera.patterns.progress import ENDED, Missed, ProgressEntry, Snapshot
from tests.patterns.job_fixtures import JOBS, PROGRESS, Ended, Stepped, ingest
from tests.patterns.job_store import attempt_by, opened

pytestmark = pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """Jobs whose attempts the test makes itself."""
    async with opened(server.url, postgres.database("test_dur3")) as bound:
        yield bound


async def dead_job(jobs: BoundJobs) -> str:
    """A job that died after its first step, and would succeed now."""
    job_id = await jobs.enqueue(ingest)
    rows = jobs._backend.rows
    row = await rows.claim(job_id, "one", JOBS.lease)
    assert row is not None
    await rows.record(None, job_id, row.fence, "parse", b'["a"]')
    await jobs._backend.checkpoint(row).save({"step:parse": b'["a"]'}, event=Stepped(1))
    ended = await rows.fail(job_id, row.fence, "dead", "no")
    assert ended is not None
    await jobs._backend.finish(ended)
    return job_id


async def follow(jobs: BoundJobs, job_id: str, after: str | None = None) -> list[object]:
    """What a listener gets until the end: the kinds of events, and whether a snapshot says recovered."""

    async def snapshot(job_id: str) -> Snapshot:
        row = await jobs.get(job_id)
        return Snapshot(row.state, ended=row.ended)

    got: list[object] = []
    async with jobs.store[PROGRESS].listen(job_id=job_id, after=after, snapshot=snapshot) as updates:
        async for each in updates:
            if isinstance(each, ProgressEntry):
                got.append(each.event.state if isinstance(each.event, Ended) else each.event.number)
            else:
                got.append(f"recovered: {each.recovered}")
    return got


async def last_id(jobs: BoundJobs, job_id: str) -> str:
    """The id of the last event."""
    return (await jobs.store[PROGRESS.keyspace].range(job_id=job_id))[-1][0]


async def test_dur3_listeners_of_a_retried_job_follow_the_new_run(jobs: BoundJobs) -> None:
    """New ones get all events but the old end; those that had the old end continue after it."""
    job_id = await dead_job(jobs)
    assert await follow(jobs, job_id) == [1, "dead"]
    seen = await last_id(jobs, job_id)
    assert await follow(jobs, job_id, seen) == []
    await jobs.retry(job_id)
    listeners = [asyncio.create_task(follow(jobs, job_id, after)) for after in (None, seen, ENDED)]
    while not jobs.store[PROGRESS]._watcher._streams:
        await asyncio.sleep(0.01)
    assert await attempt_by(jobs).run(job_id) == "done"
    assert await asyncio.gather(*listeners) == [[1, "done"], ["done"], ["done"]]
    assert await follow(jobs, job_id) == [1, "done"], "and so do those that come after the end"


async def test_dur3_a_worker_reopens_the_progress_if_the_retry_could_not(jobs: BoundJobs) -> None:
    """The process that retried died, or Redis did not answer: the next attempt does it, once."""
    job_id = await dead_job(jobs)
    await jobs._backend.rows.retry(job_id)
    row = await jobs._backend.rows.claim(job_id, "two", JOBS.lease)
    assert row is not None
    for _ in range(2):
        await jobs._backend.checkpoint(row)._begin()
    stream = await jobs.store.call("XRANGE", PROGRESS.key(job_id=job_id), "-", "+")
    assert [fields[0] for _, fields in stream] == [b"d", b"d", b"r"]


async def test_dur3_a_late_retry_does_not_reopen_the_progress_of_a_later_run(jobs: BoundJobs) -> None:
    """The process that retried is slow: the new run has ended in the meantime, and stays ended."""
    job_id = await dead_job(jobs)
    retried = await jobs._backend.rows.retry(job_id)
    assert retried is not None
    assert await attempt_by(jobs).run(job_id) == "done"
    await jobs._backend.reopen(retried)
    assert await follow(jobs, job_id) == [1, "done"]


async def test_dur3_a_new_listener_of_an_empty_stream_has_missed_nothing(jobs: BoundJobs) -> None:
    """It begins with the state; one that had a position has missed something."""
    job_id = await jobs.enqueue(ingest)

    async def snapshot(job_id: str) -> Snapshot:
        return Snapshot((await jobs.get(job_id)).state)

    for after, recovered in ((None, True), ("5-1234", False)):
        async with jobs.store[PROGRESS].listen(job_id=job_id, after=after, snapshot=snapshot) as updates:
            first = await anext(updates)
            assert isinstance(first, Missed)
            assert (first.recovered, first.snapshot.state) == (recovered, "waiting")
