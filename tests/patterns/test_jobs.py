"""Jobs from end to end: enqueued here, run by a real worker of two processes, on both deliveries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import Any

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidValue, UnknownJob
from ephemera.patterns.jobs import BoundJobs
from tests.patterns.job_fixtures import CATALOGUE, PROGRESS, Ended, Stepped, effects, export, generate, ingest
from tests.patterns.job_store import opened
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended, stepped, until


@pytest.fixture(scope="module", params=["sql", "celery"])
def delivery(request: pytest.FixtureRequest) -> str:
    """How the worker learns of jobs."""
    return str(request.param)


@pytest.fixture(scope="module")
def queue() -> Iterator[Valkey]:
    """A server for this module's worker only: workers of two databases must not share queues."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture(scope="module")
def sql(postgres: Postgres, delivery: str) -> str:
    """The worker's database."""
    return postgres.database(f"test_jobs_{delivery}")


@pytest.fixture(scope="module")
def worker(queue: Valkey, sql: str, delivery: str) -> Iterator[Worker]:
    """A worker that runs as long as the tests of one delivery."""
    with Worker(queue.url, sql, delivery=delivery, processes=2) as running:
        yield running


@pytest.fixture
async def jobs(queue: Valkey, sql: str, worker: Worker, delivery: str) -> AsyncIterator[BoundJobs]:
    """The jobs that the worker runs."""
    async with opened(queue.url, sql, delivery=delivery) as bound:
        yield bound


async def events(jobs: BoundJobs, job_id: str) -> list[Stepped | Ended]:
    """The progress events of a job."""
    key = PROGRESS.key(job_id=job_id)
    stored = await jobs.store.client("queue").call("XRANGE", key, "-", "+")
    decoded = [PROGRESS.decode(fields[1]) for _, fields in stored]
    return [event for event in decoded if event is not None]


async def test_a_job_is_run_and_its_result_is_in_sql(jobs: BoundJobs) -> None:
    """Each step runs once, the row has the result, and listeners got an event for each step and the end."""
    job_id = await jobs.enqueue(generate, 3)
    row = await ended(jobs, job_id)
    assert (row.state, row.attempts, row.fence, row.steps, row.step) == ("done", 1, 1, 3, "slide:2")
    assert row.result == ["0 by fence 1", "1 by fence 1", "2 by fence 1"]
    assert row.started_at is not None
    assert row.finished_at is not None
    assert row.created_at <= row.started_at <= row.finished_at
    assert await effects(jobs.engine, job_id) == {"slide:0": 1, "slide:1": 1, "slide:2": 1}
    await until(lambda: _has_events(jobs, job_id, 4))
    assert await events(jobs, job_id) == [Stepped(0), Stepped(1), Stepped(2), Ended("done")]


async def _has_events(jobs: BoundJobs, job_id: str, count: int) -> bool:
    return len(await events(jobs, job_id)) == count


async def test_no_key_is_left_that_is_not_declared(jobs: BoundJobs) -> None:
    """Celery and kombu leave no key on the server that the catalogue does not declare."""
    await ended(jobs, await jobs.enqueue(generate, 1))
    keys = await jobs.store.call("KEYS", "*")
    assert keys
    assert [key for key in keys if CATALOGUE.classify(key) is None] == []


async def test_a_job_can_use_plain_functions_and_the_worker_context(jobs: BoundJobs) -> None:
    """A step may block, in a thread; `run.worker_context` is what the declaration opens in each process."""
    row = await ended(jobs, await jobs.enqueue(ingest))
    assert row.result == {"words": ["a", "b", "c"], "attempt": 1}


async def test_a_failed_attempt_is_followed_by_another_that_continues(jobs: BoundJobs) -> None:
    """The second attempt starts after a second, finds the first step recorded, and succeeds."""
    job_id = await jobs.enqueue(ingest, fail_times=1)
    row = await ended(jobs, job_id)
    assert (row.state, row.attempts, row.steps, row.error) == ("done", 2, 1, None)
    assert await effects(jobs.engine, job_id) == {"attempt:1": 1, "attempt:2": 1}


async def test_a_job_that_always_fails_is_dead_with_its_error_and_can_be_retried(jobs: BoundJobs) -> None:
    """After the third of three attempts it is dead; a retry gives it three more."""
    job_id = await jobs.enqueue(ingest, fail_times=3)
    row = await ended(jobs, job_id)
    assert (row.state, row.attempts, row.error) == ("dead", 3, "ValueError: attempt 3 went wrong")
    await until(lambda: _has_events(jobs, job_id, 2))
    assert (await events(jobs, job_id))[-1] == Ended("dead", "ValueError: attempt 3 went wrong")

    again = await jobs.retry(job_id)
    assert (again.state, again.attempts) == ("waiting", 0)
    assert (await ended(jobs, job_id)).state == "dead"  # it still fails the first three times
    assert (await effects(jobs.engine, job_id))["attempt:1"] == 2


async def test_a_job_can_give_up_by_itself(jobs: BoundJobs) -> None:
    """`JobFailed` ends a job at once as failed, with the reason it gives."""
    row = await ended(jobs, await jobs.enqueue(ingest, give_up=True))
    assert (row.state, row.attempts, row.error) == ("failed", 1, "the document is encrypted")


async def test_a_job_can_wait_without_using_up_an_attempt(jobs: BoundJobs) -> None:
    """`JobSnoozed` schedules a job for later; it continues from its last step, and its attempts are left."""
    row = await ended(jobs, await jobs.enqueue(ingest, snooze=True))
    assert (row.state, row.attempts, row.error, row.fence) == ("done", 1, None, 2)
    assert row.result == {"words": ["a", "b", "c"], "attempt": 1}


async def test_a_running_job_that_is_cancelled_stops_between_its_steps(jobs: BoundJobs) -> None:
    """Its worker stops it within about a second; nothing is recorded after the cancellation."""
    job_id = await jobs.enqueue(generate, 1000, 0.05)
    await stepped(jobs, job_id, 2)
    row = await jobs.cancel(job_id)
    assert row.state == "cancelled"
    done = await effects(jobs.engine, job_id)
    assert (await ended(jobs, await jobs.enqueue(generate, 40, 0.05))).state == "done"  # some time passes
    assert await effects(jobs.engine, job_id) == done
    assert (await jobs.get(job_id)).state == "cancelled"
    assert (await events(jobs, job_id))[-1] == Ended("cancelled")
    with pytest.raises(UnknownJob, match="has ended already: it is cancelled"):
        await jobs.cancel(job_id)


async def test_an_attempt_over_its_time_limit_ends_and_counts(jobs: BoundJobs) -> None:
    """A step that takes too long gets two attempts of 1.5 s; then the job is dead, with the reason."""
    job_id = await jobs.enqueue(export, 60.0)
    row = await ended(jobs, job_id)
    assert (row.state, row.attempts) == ("dead", 2)
    assert row.error is not None
    assert "did not end within 1.5 s, and was in the step 'long'" in row.error
    assert await effects(jobs.engine, job_id) == {"first": 1}


async def test_a_job_enqueued_in_a_transaction_runs_when_that_commits(jobs: BoundJobs) -> None:
    """A rolled-back transaction leaves no job; a committed one has it run within seconds."""
    ids: list[str] = []

    async def enqueue(fail: bool) -> None:
        async with jobs.engine.begin() as sql:
            ids.append(await jobs.enqueue_in(sql, generate, 1))
            if fail:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        await enqueue(fail=True)
    await enqueue(fail=False)
    with pytest.raises(UnknownJob, match="is not in the table"):
        await jobs.get(ids[0])
    assert (await ended(jobs, ids[1])).state == "done"

    await enqueue(fail=False)
    await jobs.publish(ids[2])
    assert (await ended(jobs, ids[2])).state == "done"


async def test_a_queue_is_paused_on_all_workers_while_others_run(jobs: BoundJobs) -> None:
    """A paused queue's jobs wait while those of others are done, and run when it is resumed."""
    await jobs.pause("ingestion")
    begun = monotonic()

    async def paused() -> bool:  # one worker may know it before another: each within about a second
        job_id = await jobs.enqueue(ingest)
        await ended(jobs, await jobs.enqueue(generate, 1))
        return (await jobs.get(job_id)).state == "waiting" and monotonic() - begun > 3

    await until(paused)
    waiting = await jobs.enqueue(ingest)
    for _ in range(3):
        await ended(jobs, await jobs.enqueue(generate, 1))
        assert (await jobs.get(waiting)).state == "waiting"
    await jobs.resume("ingestion")
    assert (await ended(jobs, waiting)).state == "done"


async def test_arguments_that_the_job_would_not_take_are_refused(jobs: BoundJobs) -> None:
    """A wrong call raises at the call, and no row is written."""
    enqueue: Any = jobs.enqueue
    with pytest.raises(InvalidValue, match="missing a required argument: 'slides'"):
        await enqueue(generate)
    with pytest.raises(InvalidValue, match="unexpected keyword argument 'topic'"):
        await enqueue(generate, 3, topic="whales")
