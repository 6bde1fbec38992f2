"""What the queues of a database did in the last hour, as operators see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import func, insert

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, QueueStats, _queues, read_queue_stats
from tests.patterns.job_fixtures import JOBS
from tests.patterns.job_store import opened

T = JOBS.tables.jobs
NOW = func.clock_timestamp()


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres, key: str) -> AsyncIterator[BoundJobs]:
    """Jobs without a worker."""
    async with opened(server.url, postgres.database(key[:60])) as bound:
        yield bound


async def add(jobs: BoundJobs, job_id: str, state: str, **values: object) -> None:
    """A job in the queue `export`."""
    row = {"id": job_id, "kind": "generate", "queue": "export", "arguments": {}, "state": state}
    async with jobs.engine.begin() as sql:
        await sql.execute(insert(T).values(**row, **values))


async def stats(jobs: BoundJobs) -> QueueStats:
    """The statistics of the queue `export`."""
    found = await read_queue_stats(JOBS.tables, jobs.engine, JOBS.queues)
    assert [each.queue for each in found] == list(JOBS.queues)
    return next(each for each in found if each.queue == "export")


async def test_an_empty_queue_has_no_figures(jobs: BoundJobs) -> None:
    """Counts are zero, and there are no percentiles."""
    found = await stats(jobs)
    assert (found.waiting, found.delayed, found.running, sum(found.per_minute)) == (0, 0, 0, 0)
    assert (found.wait, found.run, found.settings.paused) == (None, None, False)
    assert len(found.per_minute) == 60


async def test_open_jobs_are_counted_by_what_they_wait_for(jobs: BoundJobs) -> None:
    """A delayed job is not one that waits for a worker; a paused queue says so."""
    await add(jobs, "due", "waiting")
    await add(jobs, "later", "waiting", available_at=NOW + timedelta(hours=1))
    await add(jobs, "running", "running", lease_until=NOW + timedelta(hours=1))
    await jobs.pause("export")
    found = await stats(jobs)
    assert (found.waiting, found.delayed, found.running) == (1, 1, 1)
    assert found.settings.paused


async def test_times_are_percentiles_of_the_last_hour(jobs: BoundJobs) -> None:
    """Older jobs are left out, failed ones do not count as run times, retried ones not as waits."""
    for number in range(1, 102):  # waits of 1 s to 101 s, runs of 2 s to 202 s
        ended = NOW - timedelta(minutes=5)
        started = ended - timedelta(seconds=2 * number)
        times = {"available_at": started - timedelta(seconds=number), "started_at": started}
        await add(jobs, f"done-{number}", "done", attempts=1, finished_at=ended, **times)
    long = {"available_at": NOW - timedelta(days=1), "started_at": NOW - timedelta(hours=12)}
    await add(jobs, "old", "done", attempts=1, finished_at=NOW - timedelta(hours=2), **long)
    await add(jobs, "failed", "failed", attempts=3, finished_at=NOW - timedelta(minutes=20), **long)
    found = await stats(jobs)
    assert sum(found.per_minute) == 102
    assert sum(found.per_minute[-8:]) == 101, "the latest minutes come last"
    assert found.wait == pytest.approx((51, 96), abs=0.1)
    assert found.run == pytest.approx((102, 192), abs=0.1)
    by_minute = [each for each in found.run_per_minute if each is not None]
    assert by_minute == [pytest.approx((102, 192), abs=0.1)], "they ended in one minute"
    assert found.wait_per_minute[-8:].count(None) == 7, "the latest minutes come last"


async def test_all_jobs_are_counted_and_times_are_those_of_the_newest(
    jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy hour has its whole throughput; minutes whose times were not read have none, rather than 0."""
    monkeypatch.setattr(_queues, "MAX_ENDED", 3)
    for minute in (40, 30, 10, 10, 10):
        ended = NOW - timedelta(minutes=minute, seconds=30)
        times = {"available_at": ended - timedelta(seconds=3), "started_at": ended - timedelta(seconds=2)}
        name = f"done-{minute}-{len(await jobs.find())}"
        await add(jobs, name, "done", attempts=1, finished_at=ended, **times)
    found = await stats(jobs)
    assert (found.per_minute[-41], found.per_minute[-31], found.per_minute[-11]) == (1, 1, 3)
    assert sum(found.per_minute) == 5
    for times_read in (found.wait_per_minute, found.run_per_minute):
        assert [number for number, each in enumerate(reversed(times_read)) if each is not None] == [10]


async def test_a_retried_job_starts_again(jobs: BoundJobs) -> None:
    """The day that a dead job lay there is no run time."""
    long_ago = NOW - timedelta(days=1)
    await add(jobs, "dead", "dead", attempts=1, started_at=long_ago, finished_at=long_ago)
    await jobs.retry("dead")
    assert (await jobs.get("dead")).started_at is None
