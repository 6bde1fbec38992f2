"""Upkeep without the reaper's lock: it goes on, in every worker, and nothing is done twice or lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from sqlalchemy import func, update
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, Store, keyspace
from ephemera.embedded import Postgres, Valkey, free_ports, valkey
from ephemera.patterns.jobs import BoundJobs, Every, JobRow, Jobs, Run, sql_engine
from ephemera.patterns.jobs._reaper import OVERDUE, run_reaper
from tests.patterns.job_store import delivered_by, waiting_messages
from tests.patterns.wait_for_jobs import until

pytestmark = pytest.mark.standalone("it fills or breaks the one server")

HOUR = timedelta(hours=1)
BOTH = pytest.mark.parametrize("delivery", ["sql", "celery"])


def declared(interval: timedelta = HOUR) -> Jobs:
    """Jobs with a schedule, as one version of a service declares them."""
    jobs = Jobs(Catalogue("test-upkeep"), "kept_checkpoint:{job_id}", queues=("kept",), name="kept")

    @jobs.job(queue="kept")
    async def report(run: Run) -> None:
        """Runs by the clock."""

    jobs.schedule("report", Every(interval), report)
    return jobs


@pytest.fixture
def own() -> Iterator[Valkey]:
    """A server that the test may break."""
    with valkey() as running:
        yield running


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    """Closes what the test opens."""
    async with AsyncExitStack() as stack:
        yield stack


async def bound(opened: AsyncExitStack, jobs: Jobs, url: str, sql: str, delivery: str = "sql") -> BoundJobs:
    """The jobs of one process, with their tables."""
    engine = sql_engine(sql)
    opened.push_async_callback(engine.dispose)
    resources = {jobs: delivered_by(delivery, engine)}
    store = keyspace.connect(url, jobs.catalogue, required=False, resources=resources)
    made = (await opened.enter_async_context(store))[jobs]
    await made.create_tables()
    return made


def leading(opened: AsyncExitStack, jobs: BoundJobs) -> asyncio.Task[None]:
    """What every worker runs."""
    task = asyncio.create_task(run_reaper(jobs._backend))
    opened.callback(task.cancel)
    return task


async def make_due(jobs: BoundJobs) -> None:
    """Have the schedule's next run be due."""
    await jobs._backend.schedules.dispatch()
    table = jobs.declaration.tables.schedules
    async with jobs.engine.begin() as sql:
        await sql.execute(update(table).values(next_run_at=func.clock_timestamp() - timedelta(seconds=1)))


@BOTH
@pytest.mark.parametrize(
    "command",
    [("CONFIG", "SET", "maxmemory", "1"), ("LPUSH", "kept:reaper", "x"), ("SET", "kept:reaper", "x")],
    ids=["full", "list", "string"],
)
async def test_upkeep_goes_on_while_redis_answers_with_errors(
    own: Valkey,
    postgres: Postgres,
    key: str,
    opened: AsyncExitStack,
    delivery: str,
    command: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Schedules run, and calls of `on_finished` are repeated, without the lock that a full server refuses."""
    caplog.set_level(logging.INFO, logger="ephemera.jobs")
    jobs = await bound(opened, declared(), own.url, postgres.database(key[:60]), delivery)
    called: list[str] = []

    @jobs.declaration.on_finished
    async def finished(store: Store, engine: AsyncEngine, row: JobRow) -> None:
        called.append(row.id)

    await make_due(jobs)
    own.ask(*command)
    leading(opened, jobs)

    async def both_done() -> bool:
        for row in await jobs.find():
            if not row.ended:
                await jobs._rows.cancel(row.id)  # by a process that dies before it calls
                table = jobs.declaration.tables.jobs
                async with jobs.engine.begin() as sql:
                    await sql.execute(update(table).values(callback_due_at=func.clock_timestamp()))
        return bool(called)

    # The lock of a string seems to be held, until its lifetime is looked at.
    await until(both_done, within=OVERDUE.total_seconds() - 1 if command[0] != "SET" else 20)
    assert len(await jobs.find()) == 1
    assert len([each for each in caplog.messages if "works without its lock" in each]) == 1


async def test_missing_messages_are_sent_without_the_lock(
    own: Valkey, postgres: Postgres, key: str, opened: AsyncExitStack
) -> None:
    """With Celery, whatever is under the lock's key."""
    jobs = await bound(opened, declared(), own.url, postgres.database(key[:60]), "celery")
    own.ask("SET", "kept:reaper", "x")
    async with jobs.engine.begin() as sql:
        await jobs.enqueue_in(sql, jobs.declaration.kinds["report"])
    leading(opened, jobs)
    await until(lambda: waiting_messages(jobs, "kept"))


async def test_two_versions_without_redis_leave_each_others_schedules(
    postgres: Postgres, key: str, opened: AsyncExitStack
) -> None:
    """In a rolling deploy that changes a schedule, a due run of the old definition is not dropped."""
    (port,) = free_ports(1)
    url, sql = f"redis://127.0.0.1:{port}", postgres.database(key[:60])
    old = await bound(opened, declared(), url, sql)
    new = await bound(opened, declared(2 * HOUR), url, sql)
    await make_due(old)
    leading(opened, new)
    leading(opened, old)
    await until(old.find, within=10)
    (stored,) = await old.schedules()
    assert stored.definition == "every 1:00:00"


async def test_a_schedule_that_nothing_runs_by_any_more_is_changed_without_redis(
    postgres: Postgres, key: str, opened: AsyncExitStack
) -> None:
    """When the old version is gone, the new definition applies although no leader can be elected."""
    (port,) = free_ports(1)
    url, sql = f"redis://127.0.0.1:{port}", postgres.database(key[:60])
    old = await bound(opened, declared(), url, sql)
    await make_due(old)
    new = await bound(opened, declared(2 * HOUR), url, sql)
    leading(opened, new)

    async def changed() -> bool:
        (stored,) = await new.schedules()
        return stored.definition == "every 2:00:00"

    await until(changed, within=20)


async def test_an_outage_of_redis_is_logged_once_by_the_reaper(
    own: Valkey, postgres: Postgres, key: str, opened: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """That its lock is unavailable, and that it continues; nothing each second."""
    caplog.set_level(logging.INFO, logger="ephemera.jobs")
    jobs = await bound(opened, declared(), own.url, postgres.database(key[:60]))
    task = leading(opened, jobs)
    await until(jobs.schedules)
    own.kill()

    async def logged(count: int) -> bool:
        return len([each for each in caplog.messages if "reaper" in each]) == count

    await until(lambda: logged(1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(task), 3)
    assert await logged(1)
    own.restart()
    await until(lambda: logged(2))
    assert [each.levelname for each in caplog.records if "reaper" in each.getMessage()] == ["WARNING", "INFO"]
