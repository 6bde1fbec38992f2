"""The reaper: what it sends again, and what it leaves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from sqlalchemy import update

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, JobRow, _reaper
from ephemera.patterns.jobs._reaper import send_missing_messages
from tests.patterns.job_fixtures import JOBS, generate
from tests.patterns.job_store import opened

LEASE = timedelta(seconds=60)
LONG = timedelta(seconds=30)
QUEUE = "celery_queue:generation"


@pytest.fixture(scope="module")
def own() -> Iterator[Valkey]:
    """A server whose queues are this module's alone."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture
async def jobs(own: Valkey, postgres: Postgres, key: str) -> AsyncIterator[BoundJobs]:
    """Jobs without a worker, and an empty queue."""
    async with opened(own.url, postgres.database(key[:60])) as live:
        await live.store.call("FLUSHALL")
        yield live


async def queued(jobs: BoundJobs) -> int:
    """How many messages are in the queue."""
    return await jobs._backend.queue_length("generation")


async def taken(jobs: BoundJobs) -> None:
    """Somebody took a message out, and was never heard of again."""
    await jobs.store.call("RPOP", QUEUE)


async def aged(jobs: BoundJobs, job_id: str, age: timedelta) -> None:
    """Let a job's message have been sent so much earlier."""
    c = JOBS.tables.jobs.c
    async with jobs.engine.begin() as sql:
        change = update(JOBS.tables.jobs).where(c.id == job_id)
        await sql.execute(
            change.values(published_at=c.published_at - age, available_at=c.available_at - age * 2)
        )


async def claimed(jobs: BoundJobs, job_id: str, lease: timedelta = LEASE) -> JobRow:
    """Let a worker have a job."""
    row = await jobs._backend.rows.claim(job_id, "worker", lease)
    assert row is not None
    return row


async def test_what_is_on_its_way_is_left_alone(jobs: BoundJobs) -> None:
    """Jobs in the queue, however long they wait there, and jobs that run, cost no message."""
    waiting, running = await jobs.enqueue(generate, 1), await jobs.enqueue(generate, 1)
    await aged(jobs, waiting, LONG)
    assert await send_missing_messages(jobs._backend) == 0
    await claimed(jobs, running)
    await aged(jobs, running, LONG * 4)
    assert await send_missing_messages(jobs._backend) == 0
    assert await queued(jobs) == 2


async def test_a_job_of_a_transaction_is_sent_once(jobs: BoundJobs) -> None:
    """Its row is the news; the second look finds nothing to do."""
    async with jobs.engine.begin() as sql:
        await jobs.enqueue_in(sql, generate, 1)
    assert await send_missing_messages(jobs._backend) == 1
    assert await send_missing_messages(jobs._backend) == 0
    assert await queued(jobs) == 1


async def test_a_job_whose_lease_has_lapsed_is_sent_once(jobs: BoundJobs) -> None:
    """Its worker is gone; one that renews its lease is left alone."""
    job_id = await jobs.enqueue(generate, 1)
    row = await claimed(jobs, job_id)
    await aged(jobs, job_id, LONG)
    await taken(jobs)
    assert await send_missing_messages(jobs._backend) == 0
    await jobs._backend.rows.renew(job_id, row.fence, timedelta(seconds=-1))
    assert await send_missing_messages(jobs._backend) == 1
    assert await send_missing_messages(jobs._backend) == 0


async def test_a_job_that_was_taken_by_a_message_nobody_knew_of_is_not_forgotten(jobs: BoundJobs) -> None:
    """The sender heard that its message could not be sent, a worker took it all the same, and died."""
    job_id = await jobs.enqueue(generate, 1)
    row = await claimed(jobs, job_id)
    await jobs._backend.rows.mark_unpublished([job_id])
    await taken(jobs)
    assert await send_missing_messages(jobs._backend) == 0
    await jobs._backend.rows.renew(job_id, row.fence, timedelta(seconds=-1))
    assert await send_missing_messages(jobs._backend) == 1
    assert await send_missing_messages(jobs._backend) == 0


async def test_a_message_that_was_lost_is_sent_again_when_the_queue_is_empty(jobs: BoundJobs) -> None:
    """Not at once, since a worker may be about to claim the job; after a silence."""
    job_id = await jobs.enqueue(generate, 1)
    await taken(jobs)
    assert await send_missing_messages(jobs._backend) == 0
    await aged(jobs, job_id, LONG)
    assert await send_missing_messages(jobs._backend) == 1
    assert await send_missing_messages(jobs._backend) == 0


async def test_a_message_that_was_overtaken_is_lost_and_sent_again(jobs: BoundJobs) -> None:
    """First in, first out: when a later message was taken, the earlier one is in the queue no more."""
    lost, later, behind = [await jobs.enqueue(generate, 1) for _ in range(3)]
    await aged(jobs, lost, LONG)
    await taken(jobs)
    assert (
        await send_missing_messages(jobs._backend) == 0
    )  # the queue is not empty, and nothing behind it was taken
    await taken(jobs)
    await claimed(jobs, later)
    assert await send_missing_messages(jobs._backend) == 1
    assert await queued(jobs) == 2
    assert (await jobs.get(behind)).state == "waiting"


async def test_a_job_with_two_messages_says_nothing_of_the_queue(jobs: BoundJobs) -> None:
    """It was taken by its older message, perhaps: those before its newer one may well be waiting."""
    twice, waiting = await jobs.enqueue(generate, 1), await jobs.enqueue(generate, 1)
    await aged(jobs, waiting, LONG)
    await jobs._backend.rows.mark_published([twice])
    await claimed(jobs, twice)
    assert await send_missing_messages(jobs._backend) == 0


async def test_one_look_sends_so_many_and_no_more(jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lost everything is filled again a bit at a time."""
    monkeypatch.setattr(_reaper, "LIMIT", 3)
    async with jobs.engine.begin() as sql:
        for _ in range(7):
            await jobs.enqueue_in(sql, generate, 1)
    assert [await send_missing_messages(jobs._backend) for _ in range(4)] == [3, 3, 1, 0]
    assert await queued(jobs) == 7


async def test_an_attempt_that_is_due_is_sent(jobs: BoundJobs) -> None:
    """A job that failed is sent when its next attempt may begin, and not before."""
    job_id = await jobs.enqueue(generate, 1)
    row = await claimed(jobs, job_id)
    await taken(jobs)
    await jobs._backend.rows.reschedule(job_id, row.fence, "no", LONG)
    assert await send_missing_messages(jobs._backend) == 0
    await aged(jobs, job_id, LONG)
    assert await send_missing_messages(jobs._backend) == 1
