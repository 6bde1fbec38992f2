"""DUR4: a job that kills its process ends as dead after its own attempts, and costs its neighbours none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import BoundJobs, JobRow
from ephemera.patterns.jobs._rows import HeldJob
from ephemera.patterns.jobs._tables import SUSPECT
from tests.defects.poison_jobs import kill, kill_worker, opened, work
from tests.patterns.job_store import attempt_by
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended, until

LEASE = timedelta(minutes=1)
MODULE = "tests.defects.poison_jobs"


@pytest.fixture
def sql(postgres: Postgres, key: str) -> str:
    """A database for one test."""
    return postgres.database(key[:60])


@pytest.fixture
async def jobs(server: Valkey, sql: str) -> AsyncIterator[BoundJobs]:
    """The jobs, without a worker."""
    async with opened(server.url, sql) as bound:
        yield bound


async def claimed(jobs: BoundJobs, worker: str, *, suspects: bool = False) -> list[JobRow]:
    """The jobs that a process has claimed."""
    return await attempt_by(jobs, worker).claims.due("work", 10, suspects=suspects)


async def test_dur4_one_job_that_kills_its_process_ends_dead_and_nine_are_done(
    jobs: BoundJobs, server: Valkey, sql: str
) -> None:
    """With default retries, nine harmless jobs of the same process end as done in their first attempt."""
    harmless = [await jobs.enqueue(work, 0.2) for _ in range(9)]
    poison = await jobs.enqueue(kill)
    with Worker(server.url, sql, concurrency=20, module=MODULE):
        rows = [await ended(jobs, job_id) for job_id in harmless]
        assert [(row.state, row.attempts) for row in rows] == [("done", 1)] * 9
        row = await ended(jobs, poison)
        assert (row.state, row.attempts) == ("dead", 6)
        assert "its worker process died with the exit code -9" in str(row.error)


async def test_dur4_a_suspect_has_a_process_of_its_own_which_ends_with_it(
    jobs: BoundJobs, server: Valkey, sql: str
) -> None:
    """So a job that is enqueued in the meantime and kills its process costs a harmless suspect nothing."""
    suspect = await jobs.enqueue(work, 2.0)
    beside = await jobs.enqueue(work, 0.0)
    for _ in range(SUSPECT):
        assert len(await claimed(jobs, "worker")) == 2
        await jobs._backend.rows.release_crashed("worker", "it died")
    await jobs.cancel(beside)
    with Worker(server.url, sql, concurrency=20, module=MODULE) as worker:
        other = await jobs.enqueue(work, 0.0)
        poison = await jobs.enqueue(kill)
        row = await ended(jobs, suspect)
        assert (row.state, row.attempts, row.fence) == ("done", 1, SUSPECT + 1)
        assert row.worker != (await ended(jobs, other)).worker
        await jobs.cancel(poison)

        async def one_is_left() -> bool:
            return len(worker.children()) == 1

        await until(one_is_left)


async def test_dur4_jobs_of_a_dead_process_use_no_attempt_and_become_suspects(jobs: BoundJobs) -> None:
    """After one crash together they run as before; after two only a process of their own claims them."""
    rows = jobs._backend.rows
    for _ in range(3):
        await jobs.enqueue(work, 0.0)
    for crashes in range(1, SUSPECT + 1):
        assert len(await claimed(jobs, "worker")) == 3
        released = await rows.release_crashed("worker", "it died")
        assert [(row.attempts, row.crashes, row.error) for row in released] == [(0, crashes, None)] * 3
    assert await claimed(jobs, "worker") == []
    assert await rows.has_suspects(["work"], ["work"])
    assert not await rows.has_suspects(["work"], ["another"])
    assert len(await claimed(jobs, "worker", suspects=True)) == 3


async def test_dur4_a_job_that_was_alone_in_its_process_has_used_an_attempt(jobs: BoundJobs) -> None:
    """There is no doubt about the cause then."""
    await jobs.enqueue(work, 0.0)
    assert len(await claimed(jobs, "worker")) == 1
    (row,) = await jobs._backend.rows.release_crashed("worker", "it died")
    assert (row.attempts, row.crashes, row.error) == (1, 1, "it died")


async def test_dur4_expired_leases_of_a_process_are_released_together(jobs: BoundJobs) -> None:
    """Until its last lease has expired nothing is released; then no job of several has used an attempt."""
    rows = jobs._backend.rows
    for _ in range(3):
        await jobs.enqueue(work, 0.0)
    held = [HeldJob(row.id, row.fence) for row in await claimed(jobs, "worker")]
    await rows.renew(held[:2], timedelta(seconds=-1))
    await rows.renew(held[2:], LEASE)
    assert await rows.release_expired(LEASE) == []
    await rows.renew(held[2:], timedelta(seconds=-1))
    released = await rows.release_expired(LEASE)
    assert {(row.attempts, row.crashes, row.fence) for row in released} == {(0, 1, 2)}
    assert len(released) == 3


async def test_dur4_a_job_that_its_live_process_no_longer_renews_is_released(jobs: BoundJobs) -> None:
    """After another lease it is, although its process holds others."""
    for _ in range(2):
        await jobs.enqueue(work, 0.0)
    lost, kept = [HeldJob(row.id, row.fence) for row in await claimed(jobs, "worker")]
    await jobs._backend.rows.renew([lost], -2 * LEASE)
    await jobs._backend.rows.renew([kept], LEASE)
    (row,) = await jobs._backend.rows.release_expired(LEASE)
    assert (row.id, row.attempts) == (lost.id, 0)


async def test_dur4_a_process_that_was_blocked_does_not_release_its_own_jobs(jobs: BoundJobs) -> None:
    """It renews them, unless another process was faster."""
    rows = jobs._backend.rows
    for _ in range(2):
        await jobs.enqueue(work, 0.0)
    held = [HeldJob(row.id, row.fence) for row in await claimed(jobs, "worker")]
    await rows.renew(held, timedelta(seconds=-1))
    assert await rows.release_expired(LEASE, "worker") == []
    assert await rows.renew(held, timedelta(seconds=-1)) == set(held)
    assert len(await rows.release_expired(LEASE, "other")) == 2


async def test_dur4_a_job_that_kills_all_of_its_worker_ends_dead(
    jobs: BoundJobs, server: Valkey, sql: str
) -> None:
    """A job that kills the parent, too, is found by the leases: its neighbours are done, and it is dead."""
    harmless = [await jobs.enqueue(work, 0.3) for _ in range(3)]
    poison = await jobs.enqueue(kill_worker)

    async def restarting() -> None:  # as a service manager does
        while True:
            with Worker(server.url, sql, concurrency=20, module=MODULE) as worker:
                while worker.exit_code is None:
                    await asyncio.sleep(0.05)

    manager = asyncio.create_task(restarting())
    try:
        assert (await ended(jobs, poison)).state == "dead"
        rows = [await ended(jobs, job_id) for job_id in harmless]
        assert [(row.state, row.attempts) for row in rows] == [("done", 1)] * 3
    finally:
        manager.cancel()
        await asyncio.wait({manager})
