"""Traps S16 to S19: lost and duplicate messages, two workers on a job, torn and expired checkpoints."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import JobLost
from ephemera.patterns.jobs import BoundJobs, Run
from ephemera.patterns.jobs._celery_worker import VISIBILITY
from ephemera.patterns.jobs._reaper import send_missing_messages
from ephemera.wire import Subscription
from tests.patterns.job_fixtures import JOBS, PROGRESS, Stepped, effects, generate
from tests.patterns.job_store import attempt_by, opened, resumed
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended, stepped, until

QUEUE = "celery_queue:generation"


@pytest.fixture
def own() -> Iterator[Valkey]:
    """A server with this test's queues only."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture
def sql(postgres: Postgres, key: str) -> str:
    """A database for one test."""
    return postgres.database(key[:60])


@pytest.fixture
async def jobs(own: Valkey, sql: str) -> AsyncIterator[BoundJobs]:
    """Jobs on that server and database."""
    async with opened(own.url, sql, delivery="celery") as bound:
        yield bound


def worker_of(own: Valkey, sql: str, processes: int = 1) -> Worker:
    """Our worker, with Celery delivery."""
    return Worker(own.url, sql, delivery="celery", processes=processes)


@contextmanager
def stock_worker(url: str, visibility: float) -> Iterator[subprocess.Popen[bytes]]:
    """Stock Celery with two processes, in its own process group."""
    environment = {"STOCK_URL": f"{url}/0", "STOCK_VISIBILITY": str(visibility), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "celery", "-A", "tests.traps.stock_celery", "-q", "worker", "-c", "2"]
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def stock_send(url: str, job_id: str, seconds: float) -> None:
    """Send a task to stock Celery."""
    code = (
        "import sys; from tests.traps.stock_celery import long; long.delay(sys.argv[1], float(sys.argv[2]))"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, job_id, str(seconds)]
    subprocess.run(command, env={**os.environ, "STOCK_URL": f"{url}/0"}, check=True, timeout=30)


async def test_s16_kombu_loses_a_message_in_a_crash_and_the_reaper_sends_it_again(
    jobs: BoundJobs, own: Valkey
) -> None:
    """A consumer that dies between popping a message and recording it loses it; the row restores it."""
    job_id = await jobs.enqueue(generate, 1)
    command = [sys.executable, "-m", "tests.traps.lossy_consumer", f"{own.url}/0", QUEUE]
    died = await asyncio.to_thread(subprocess.run, command, timeout=30, check=False)
    assert died.returncode == -signal.SIGKILL
    assert await jobs.store.call("LLEN", QUEUE) == 0
    assert not await jobs.store.call("EXISTS", "unacked")  # so it could never be restored

    await until(lambda: send_missing_messages(jobs._backend))
    assert await jobs.store.call("LLEN", QUEUE) == 1
    assert await send_missing_messages(jobs._backend) == 0  # once is enough
    assert await attempt_by(jobs).run(job_id) == "done"


async def test_s16_a_healthy_long_job_is_delivered_once(jobs: BoundJobs, own: Valkey, sql: str) -> None:
    """Stock Celery with a short visibility timeout runs a long task twice; our parent process renews it."""
    with stock_worker(own.url, visibility=2):
        stock_send(own.url, "long", 60)

        async def twice() -> bool:
            return bool(await jobs.store.call("LLEN", "runs:long") >= 2)

        await until(twice)

    with worker_of(own, sql, processes=2), worker_of(own, sql):
        job_id = await jobs.enqueue(generate, 1, VISIBILITY + 4.0)
        seen: list[int] = []

        async def over() -> bool:
            seen.append(await jobs.store.call("LLEN", QUEUE))
            return (await jobs.get(job_id)).ended

        await until(over)
    row = await jobs.get(job_id)
    assert (row.state, row.fence, row.attempts) == ("done", 1, 1)
    waited = seen[seen.index(0) :]  # from when a worker had it
    assert set(waited) == {0}  # it was never in the queue again


async def test_s16_a_killed_workers_job_continues_within_seconds(
    jobs: BoundJobs, own: Valkey, sql: str
) -> None:
    """Stock Celery waits for the visibility timeout, an hour; our job continues within seconds."""
    with stock_worker(own.url, visibility=3600) as first:
        stock_send(own.url, "orphan", 60)

        async def runs() -> bool:
            return bool(await jobs.store.call("LLEN", "runs:orphan"))

        await until(runs)
        os.killpg(first.pid, signal.SIGKILL)
    with worker_of(own, sql) as worker, stock_worker(own.url, visibility=3600):
        job_id = await jobs.enqueue(generate, 10, 0.2)
        await stepped(jobs, job_id, 3)
        with worker_of(own, sql):
            worker.kill()
            row = await ended(jobs, job_id)
        assert (row.state, row.fence) == ("done", 2)
        assert await jobs.store.call("LLEN", "runs:orphan") == 1  # all this time, no worker has it
        assert await jobs.store.call("HLEN", "unacked") == 1


async def test_s17_of_two_workers_on_one_job_the_older_is_refused(jobs: BoundJobs) -> None:
    """A naive checkpoint keeps the last write; ours compares the fence, in Redis and in SQL."""
    call = jobs.store.call
    for worker, step in (("new", "slide:9"), ("old, late", "slide:3")):
        await call("HSET", "naive", "worker", worker, "step", step)
    assert await call("HGET", "naive", "step") == b"slide:3"  # the older worker has overwritten it

    old, new = await two_runs(jobs)
    await new.step("slide:9", int, durable=False)
    with pytest.raises(JobLost):
        await old.step("slide:3", int, durable=False)
    with pytest.raises(JobLost):
        await old.step("slide:4", int)
    assert await new.checkpoint.load() == {"step:slide:9": b"0"}
    assert await jobs._backend.queries.steps(new.id) == {}


async def two_runs(jobs: BoundJobs) -> tuple[Run, Run]:
    """Two workers on one job, the first of which hung for longer than its lease."""
    job_id = await jobs.enqueue(generate, 20)
    runs = []
    for worker, lease in (("old", timedelta(seconds=-1)), ("new", timedelta(seconds=60))):
        row = await jobs._backend.rows.claim(job_id, worker, lease)
        assert row is not None
        runs.append(await resumed(jobs, row))
    return runs[0], runs[1]


async def test_s18_checkpoint_progress_and_publication_are_one_step(
    jobs: BoundJobs, own: Valkey, key: str
) -> None:
    """Killed at any moment, the naive way leaves a step without its message; ours has all three."""
    torn = 0
    for attempt in range(20):
        steps, entries, messages = await saved_until_killed(jobs, own, "naive", f"{key}:{attempt}")
        torn += not steps == entries == messages
        if torn:
            break
    assert torn

    for attempt in range(5):
        steps, entries, messages = await saved_until_killed(jobs, own, "ours", f"{key}:{attempt}")
        assert steps == entries == messages > 10


async def saved_until_killed(jobs: BoundJobs, own: Valkey, way: str, job_id: str) -> tuple[int, int, int]:
    """The numbers of steps, entries and messages after the process that saves them was killed."""
    call, stream = jobs.store.call, PROGRESS.key(job_id=job_id)
    channel, message = (
        ("naive-wake", job_id) if way == "naive" else (jobs.store[PROGRESS.wake].name(), stream)
    )
    client: Any = jobs.store.client("queue")
    async with Subscription(client.hub, "channel", [channel], backlog=1_000_000) as wakes:
        ours = await connected(jobs)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.traps.killed_saver", way, own.url, job_id),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(0.01)  # any moment will do
        process.kill()
        await process.wait()

        async def done_with_it() -> bool:
            return await connected(jobs) <= ours

        await until(done_with_it)  # the server has executed all commands
        await call("PUBLISH", channel, "the end")
        messages = 0
        async for wake in wakes:
            assert not wake.lost
            if wake.data == b"the end":
                break
            messages += wake.data == message.encode()
    if way == "naive":
        return await call("HLEN", f"naive:{job_id}"), await call("XLEN", f"naive-progress:{job_id}"), messages
    fields = await call("HKEYS", JOBS.checkpoints.key(job_id=job_id))
    newest = await call("XREVRANGE", stream, "+", "-", "COUNT", 1)
    return sum(name.startswith(b"step:") for name in fields), number_of(newest) + 1, messages


async def connected(jobs: BoundJobs) -> set[bytes]:
    """The ids of the server's connections."""
    clients = await jobs.store.call("CLIENT", "LIST")
    return {line.split()[0] for line in clients.splitlines()}


def number_of(newest: Any) -> int:
    """The number of the last published step; the stream itself keeps its newest 200."""
    event = PROGRESS.decode(newest[0][1][1])
    assert isinstance(event, Stepped)
    return event.number


async def test_s19_a_job_whose_checkpoint_expired_continues_from_sql(jobs: BoundJobs) -> None:
    """After the checkpoint's hour a naive job starts again; ours has its steps in SQL."""
    call = jobs.store.call
    await call("HSET", "naive", "step", "slide:7")
    await call("PEXPIRE", "naive", 1)
    job_id = await jobs.enqueue(generate, 8)
    row = await jobs._backend.rows.claim(job_id, "killed", timedelta(seconds=-1))
    assert row is not None
    run = await resumed(jobs, row)
    for number in range(7):
        await run.step(f"slide:{number}", dict, number=number, by="the first")
    await call("PEXPIRE", JOBS.checkpoints.key(job_id=job_id), 1)

    async def both_gone() -> bool:
        return not await call("EXISTS", "naive", JOBS.checkpoints.key(job_id=job_id))

    await until(both_gone)
    assert await call("HGET", "naive", "step") is None  # so it starts again

    assert await attempt_by(jobs, "second").run(job_id) == "done"
    assert await effects(jobs.engine, job_id) == {"slide:7": 1}
    assert (await jobs.get(job_id)).result == [*(f"{n} by the first" for n in range(7)), "7 by fence 2"]
