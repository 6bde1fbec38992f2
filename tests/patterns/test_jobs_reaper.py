"""The reaper: which messages it sends again, and which it does not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, JobRow, _reaper
from ephemera.patterns.jobs._reaper import send_missing_messages
from tests.patterns.job_fixtures import JOBS, generate
from tests.patterns.job_store import job_of, lapse, opened

LEASE = timedelta(seconds=60)
LONG = timedelta(seconds=30)
QUEUE = "celery_queue:generation"


@pytest.fixture(scope="module")
def own() -> Iterator[Valkey]:
    """A server with this module's queues only."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture
async def jobs(own: Valkey, postgres: Postgres, key: str) -> AsyncIterator[BoundJobs]:
    """Jobs without a worker, and an empty queue."""
    async with opened(own.url, postgres.database(key[:60]), delivery="celery") as bound:
        await bound.store.call("FLUSHALL")
        yield bound


async def queued(jobs: BoundJobs) -> int:
    """How many messages are in the queue."""
    return int(await jobs.store.call("LLEN", QUEUE))


async def taken(jobs: BoundJobs) -> None:
    """Pop a message, as a worker that then died."""
    await jobs.store.call("RPOP", QUEUE)


async def aged(jobs: BoundJobs, job_id: str, age: timedelta) -> None:
    """Move the time of a job's message back."""
    c = JOBS.tables.jobs.c
    async with jobs.engine.begin() as sql:
        change = update(JOBS.tables.jobs).where(c.id == job_id)
        await sql.execute(
            change.values(published_at=c.published_at - age, available_at=c.available_at - age * 2)
        )


async def claimed(jobs: BoundJobs, job_id: str, lease: timedelta = LEASE) -> JobRow:
    """Claim a job for a worker."""
    row = await jobs._backend.rows.claim(job_id, "worker", lease)
    assert row is not None
    return row


async def test_queued_and_running_jobs_get_no_second_message(jobs: BoundJobs) -> None:
    """No message is sent for jobs in the queue, however long they wait, and for running jobs."""
    waiting, running = await jobs.enqueue(generate, 1), await jobs.enqueue(generate, 1)
    await aged(jobs, waiting, LONG)
    assert await send_missing_messages(jobs._backend) == 0
    await claimed(jobs, running)
    await aged(jobs, running, LONG * 4)
    assert await send_missing_messages(jobs._backend) == 0
    assert await queued(jobs) == 2


async def test_a_job_enqueued_in_a_transaction_is_sent_once(jobs: BoundJobs) -> None:
    """The first pass sends its message; the second finds nothing to do."""
    async with jobs.engine.begin() as sql:
        await jobs.enqueue_in(sql, generate, 1)
    assert await send_missing_messages(jobs._backend) == 1
    assert await send_missing_messages(jobs._backend) == 0
    assert await queued(jobs) == 1


async def test_a_job_with_an_expired_lease_is_sent_once(jobs: BoundJobs) -> None:
    """Its message is sent when its lease has expired, and not while it is renewed."""
    job_id = await jobs.enqueue(generate, 1)
    await claimed(jobs, job_id)
    await aged(jobs, job_id, LONG)
    await taken(jobs)
    assert await send_missing_messages(jobs._backend) == 0
    await lapse(jobs, job_id)
    assert await send_missing_messages(jobs._backend) == 1
    assert await send_missing_messages(jobs._backend) == 0


async def test_a_job_claimed_by_an_unrecorded_message_is_sent_again(jobs: BoundJobs) -> None:
    """The sender got an error, a worker received the message nevertheless, and died."""
    job_id = await jobs.enqueue(generate, 1)
    await claimed(jobs, job_id)
    await jobs._backend.rows.mark_unpublished([job_id])
    await taken(jobs)
    assert await send_missing_messages(jobs._backend) == 0
    await lapse(jobs, job_id)
    assert await send_missing_messages(jobs._backend) == 1
    assert await send_missing_messages(jobs._backend) == 0


async def test_a_lost_message_is_sent_again_when_the_queue_is_empty(jobs: BoundJobs) -> None:
    """Only after a grace period, since a worker may be about to claim the job."""
    job_id = await jobs.enqueue(generate, 1)
    await taken(jobs)
    assert await send_missing_messages(jobs._backend) == 0
    await aged(jobs, job_id, LONG)
    assert await send_missing_messages(jobs._backend) == 1
    assert await send_missing_messages(jobs._backend) == 0


async def test_an_overtaken_message_is_sent_again(jobs: BoundJobs) -> None:
    """The queue is FIFO: when a later message was delivered, an earlier one is no longer in it."""
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


async def test_a_job_with_two_messages_proves_nothing_about_the_queue(jobs: BoundJobs) -> None:
    """It may have been claimed by its older message, so messages before its newer one may still wait."""
    twice, waiting = await jobs.enqueue(generate, 1), await jobs.enqueue(generate, 1)
    await aged(jobs, waiting, LONG)
    await jobs._backend.rows.mark_published([twice])
    await claimed(jobs, twice)
    assert await send_missing_messages(jobs._backend) == 0


async def test_one_pass_sends_the_messages_of_a_server_that_lost_everything(
    jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost and unsent messages are sent in batches by a single pass, each once."""
    monkeypatch.setattr(_reaper, "BATCH", 3)
    lost = [await jobs.enqueue(generate, 1) for _ in range(7)]
    for job_id in lost:
        await aged(jobs, job_id, LONG)
    await jobs.store.call("FLUSHALL")
    async with jobs.engine.begin() as sql:
        unsent = [await jobs.enqueue_in(sql, generate, 1) for _ in range(4)]
    assert [await send_missing_messages(jobs._backend) for _ in range(2)] == [11, 0]
    messages = await jobs.store.call("LRANGE", QUEUE, 0, -1)
    assert sorted(map(job_of, messages)) == sorted([*lost, *unsent])


async def test_messages_that_were_sent_just_before_a_loss_follow_soon(jobs: BoundJobs) -> None:
    """A message too young for the first pass after a loss is sent by a later one, whatever is queued."""
    old, young = await jobs.enqueue(generate, 1), await jobs.enqueue(generate, 1)
    await aged(jobs, old, LONG)
    await jobs.store.call("FLUSHALL")
    assert await send_missing_messages(jobs._backend) == 1
    await aged(jobs, young, LONG)
    assert [await send_missing_messages(jobs._backend) for _ in range(2)] == [1, 0]
    messages = await jobs.store.call("LRANGE", QUEUE, 0, -1)
    assert sorted(map(job_of, messages)) == sorted([old, young])


async def test_a_delivered_priority_proves_nothing_about_messages_of_a_lower_one(jobs: BoundJobs) -> None:
    """A message of a priority above 0 has a list of its own, and is delivered before those that wait."""
    waiting, urgent = await jobs.enqueue(generate, 1), await jobs.enqueue(generate, 1)
    async with jobs.engine.begin() as sql:
        table = JOBS.tables.jobs
        await sql.execute(update(table).where(table.c.id == urgent).values(priority=5, published_at=None))
    await taken(jobs)
    await taken(jobs)
    await aged(jobs, waiting, LONG)
    assert await send_missing_messages(jobs._backend) == 2
    assert job_of(await jobs.store.call("RPOP", f"{QUEUE}~-5")) == urgent
    delivery: Any = jobs._backend.delivery
    delivery.empty_at.clear()  # the message that is aged now was sent after that
    await aged(jobs, waiting, LONG)
    await claimed(jobs, urgent)
    assert await send_missing_messages(jobs._backend) == 0


async def test_a_low_priority_may_wait_behind_messages_that_were_sent_later(jobs: BoundJobs) -> None:
    """That one of the usual priority was delivered does not prove that an older low one is lost."""
    low = await jobs.enqueue(generate.options(priority=-5), 1)
    usual = await jobs.enqueue(generate, 1)
    await taken(jobs)
    await claimed(jobs, usual)
    await aged(jobs, low, LONG)
    assert await send_missing_messages(jobs._backend) == 0


async def test_a_due_attempt_is_sent(jobs: BoundJobs) -> None:
    """The message of a failed job is sent when its next attempt is due, and not before."""
    job_id = await jobs.enqueue(generate, 1)
    row = await claimed(jobs, job_id)
    await taken(jobs)
    await jobs._backend.rows.reschedule(job_id, row.fence, "no", LONG)
    assert await send_missing_messages(jobs._backend) == 0
    await aged(jobs, job_id, LONG)
    assert await send_missing_messages(jobs._backend) == 1
