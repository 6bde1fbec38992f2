"""Queues: priorities, pausing, and limits that hold for all workers together, on both deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidDeclaration
from ephemera.patterns.jobs import BoundJobs, QueueSettings
from ephemera.patterns.jobs._queues import _Window
from ephemera.patterns.jobs._reaper import send_missing_messages
from tests.patterns.job_fixtures import JOBS, generate
from tests.patterns.job_store import attempt_by, lapse, opened

QUEUE = "generation"
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def own() -> Iterator[Valkey]:
    """A server with this module's queues only."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture(params=["sql", "celery"])
async def jobs(
    own: Valkey, postgres: Postgres, key: str, request: pytest.FixtureRequest
) -> AsyncIterator[BoundJobs]:
    """Jobs without a worker, delivered in either way."""
    async with opened(own.url, postgres.database(key[:60]), delivery=request.param) as bound:
        await bound.store.call("FLUSHALL")
        yield bound


async def changed(jobs: BoundJobs, job_id: str, **values: object) -> None:
    """Change a row."""
    table = JOBS.tables.jobs
    async with jobs.engine.begin() as sql:
        await sql.execute(update(table).where(table.c.id == job_id).values(**values))


async def claim(jobs: BoundJobs, worker: str = "worker", limit: int = 10) -> list[str]:
    """The jobs that a new worker process claims from the queue."""
    return [row.id for row in await attempt_by(jobs, worker).claims.due(QUEUE, limit)]


async def messages(jobs: BoundJobs) -> int:
    """How many messages the reaper sends, and adds to an empty queue."""
    await jobs.store.call("FLUSHALL")
    return await send_missing_messages(jobs._backend)


async def test_the_highest_priority_is_claimed_first(jobs: BoundJobs) -> None:
    """Jobs that are due are claimed by priority, then in order; a job for later is passed over."""
    first, second, low, high, later = [await jobs.enqueue(generate, 1) for _ in range(5)]
    await changed(jobs, low, priority=-5)
    await changed(jobs, high, priority=10)
    await changed(jobs, later, priority=99, available_at=(await jobs.get(later)).created_at + HOUR)
    assert await claim(jobs, limit=2) == [high, first]
    assert await claim(jobs) == [second, low]


async def test_jobs_with_expired_leases_are_released_once(jobs: BoundJobs) -> None:
    """The job of a process whose leases have all expired is released by one worker, with a larger fence."""
    expired = await jobs.enqueue(generate, 1)
    assert await claim(jobs) == [expired]
    held = await jobs.enqueue(generate, 1)
    assert await claim(jobs, "other") == [held]
    await lapse(jobs, expired)
    released = await asyncio.gather(*(jobs._backend.rows.release_expired(HOUR) for _ in range(4)))
    (row,) = [row for rows in released for row in rows]
    assert (row.id, row.state, row.fence, row.attempts) == (expired, "waiting", 2, 1)
    assert (await jobs.get(held)).state == "running"


async def test_a_paused_queue_starts_no_jobs_until_it_is_resumed(jobs: BoundJobs) -> None:
    """Neither a batch nor a message starts a job of a paused queue, and no attempt is used."""
    job_id = await jobs.enqueue(generate, 1)
    await jobs.pause(QUEUE)
    assert await claim(jobs) == []
    assert await attempt_by(jobs).run(job_id) == "refused"
    assert await messages(jobs) == 0
    assert (await jobs.get(job_id)).attempts == 0
    assert QueueSettings(queue=QUEUE, paused=True) in await jobs.queues()
    await jobs.resume(QUEUE)
    if jobs._backend.delivery.publishes:
        assert await messages(jobs) == 1
    assert await attempt_by(jobs).run(job_id) == "done"


async def test_no_more_jobs_run_than_allowed(jobs: BoundJobs) -> None:
    """Of many workers that claim at once, all together get as many jobs as may run, and none more."""
    ids = [await jobs.enqueue(generate, 1) for _ in range(12)]
    await jobs.set_limits(QUEUE, max_running=5)
    workers = [attempt_by(jobs, f"worker-{n}") for n in range(4)]
    claimed: list[str] = []
    for _ in range(6):
        for rows in await asyncio.gather(*(each.claims.due(QUEUE, 2) for each in workers)):
            claimed += [row.id for row in rows]
        assert len(claimed) <= 5
    assert set(claimed) == set(ids[:5])
    assert await attempt_by(jobs).run(ids[-1]) == "refused"
    assert await messages(jobs) == 0
    await jobs.cancel(claimed[0])
    if jobs._backend.delivery.publishes:
        assert await messages(jobs) == 1
    assert await attempt_by(jobs).run(ids[-1]) == "done"
    await jobs.set_limits(QUEUE)
    assert len(await claim(jobs)) == 6


async def test_no_more_jobs_start_in_a_time_than_allowed(jobs: BoundJobs) -> None:
    """A rate counts the starts of all workers, whether their jobs have ended or not."""
    ids = [await jobs.enqueue(generate, 1) for _ in range(6)]
    await jobs.set_limits(QUEUE, rate=(3, HOUR))
    assert await claim(jobs, "one", limit=2) == ids[:2]
    assert await attempt_by(jobs).run(ids[2]) == "done"
    assert await claim(jobs, "two") == []
    assert await attempt_by(jobs).run(ids[3]) == "refused"
    assert await messages(jobs) == 0
    await jobs.set_limits(QUEUE, rate=(5, HOUR))
    assert await claim(jobs, "three") == ids[3:5]


def test_a_window_never_lets_more_start_than_its_limit() -> None:
    """Whenever jobs are taken as soon as possible, no span of the period has more starts than the limit."""
    period, limit = timedelta(seconds=1), 7
    starts: list[tuple[float, int]] = []
    taken: list[float] = []
    for tick in range(0, 5000, 13):
        now = 1000 + tick / 1000
        window = _Window(starts, limit, period, now)
        if window.free > 0:
            starts = window.after(1)
            taken.append(now)
    assert max(sum(begin <= each < begin + 1 for each in taken) for begin in taken) == limit
    assert len(taken) >= 0.9 * 5 * limit  # and it does not waste them


@pytest.mark.parametrize("wrong", [{"max_running": 0}, {"rate": (0, HOUR)}, {"rate": (1, timedelta(0))}])
async def test_limits_that_no_job_could_pass_are_refused(jobs: BoundJobs, wrong: dict[str, object]) -> None:
    """So is a queue that does not exist."""
    change: Any = jobs.set_limits
    with pytest.raises(InvalidDeclaration, match=r"use at least 1|as in rate="):
        await change(QUEUE, **wrong)
    with pytest.raises(InvalidDeclaration, match="there is no such queue"):
        await jobs.pause("nowhere")
