"""Schedules: runs by the clock, each enqueued once, across changes of the clock and outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import func, insert, select, update

from ephemera import Catalogue, keyspace
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.patterns.jobs import (
    BoundJobs,
    Cron,
    Every,
    Jobs,
    Run,
    Schedule,
    Unique,
    sql_engine,
)
from ephemera.patterns.jobs._reaper import run_reaper, run_upkeep
from ephemera.patterns.jobs._schedules import MAX_MISSED, ScheduleDispatcher
from tests.patterns.job_store import delivered_by, message_lists, sent, waiting_messages
from tests.patterns.wait_for_jobs import until

pytestmark = pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")

BOTH = pytest.mark.parametrize("delivery", ["sql", "celery"])
BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)
UNKNOWN: Any = "some"


def make(when: Cron | Every = Every(MINUTE), **options: Any) -> tuple[Jobs, Schedule]:  # noqa: B008 immutable
    """Jobs with one schedule."""
    jobs = Jobs(
        Catalogue("test-schedules"), "planned_checkpoint:{job_id}", queues=("planned",), name="planned"
    )

    @jobs.job(queue="planned", **options)
    async def report(run: Run, region: str) -> None:
        """Runs by the clock."""

    return jobs, jobs.schedule("report eu", when, report, "eu")


@pytest.fixture
async def database(postgres: Postgres, key: str) -> str:
    """A database of the test's own."""
    return postgres.database(key[:60])


@pytest.fixture
def delivery() -> str:
    """How workers learn of jobs, where a test does not say."""
    return "sql"


@pytest.fixture
async def jobs(server: Valkey, database: str, delivery: str) -> AsyncIterator[BoundJobs]:
    """Jobs with a schedule, and an empty queue."""
    declared, _ = make()
    engine = sql_engine(database)
    resources = {declared: delivered_by(delivery, engine)}
    async with keyspace.connect(server.url, declared.catalogue, resources=resources) as store:
        await store[declared].create_tables()
        await store.call("UNLINK", *message_lists(declared, "planned"))
        yield store[declared]
    await engine.dispose()


async def past(jobs: BoundJobs, ago: timedelta) -> datetime:
    """Move the next run of every schedule into the past; returns it."""
    table = jobs.declaration.tables.schedules
    moved = update(table).values(next_run_at=func.date_trunc("minute", func.clock_timestamp()) - ago)
    async with jobs.engine.begin() as sql:
        return (await sql.execute(moved.returning(table.c.next_run_at))).scalar_one()  # type: ignore[no-any-return]


def dispatcher(jobs: BoundJobs, schedule: Schedule) -> ScheduleDispatcher:
    """The dispatcher of a process that declares one schedule."""
    return ScheduleDispatcher(jobs.declaration.tables, jobs.engine, {schedule.name: schedule})


@BOTH
async def test_a_run_is_enqueued_when_it_is_due(jobs: BoundJobs) -> None:
    """A new schedule waits for its first run, which has a job with its arguments, and a message."""
    await run_upkeep(jobs._backend)
    (stored,) = await jobs.schedules()
    assert (stored.name, stored.kind, stored.definition) == ("report eu", "report", "every 0:01:00")
    assert await jobs.find() == []
    due = await past(jobs, timedelta(0))
    await run_upkeep(jobs._backend)
    (row,) = await jobs.find()
    assert (row.kind, row.arguments, row.state) == ("report", {"region": "eu"}, "waiting")
    assert await sent(jobs, "planned") == 1
    (stored,) = await jobs.schedules()
    assert (stored.last_run_at, stored.last_job_id) == (due, row.id)
    assert stored.next_run_at > due
    await run_upkeep(jobs._backend)
    assert len(await jobs.find()) == 1


@BOTH
async def test_the_leader_among_the_workers_runs_schedules(jobs: BoundJobs) -> None:
    """What every worker runs stores the schedule, enqueues its job when it is due, and sends the message."""
    leading = asyncio.create_task(run_reaper(jobs._backend))
    try:
        await until(jobs.schedules)
        await past(jobs, timedelta(0))
        await until(lambda: waiting_messages(jobs, "planned"))
    finally:
        leading.cancel()
    (row,) = await jobs.find()
    assert row.arguments == {"region": "eu"}


async def test_two_leaders_enqueue_a_run_once(jobs: BoundJobs) -> None:
    """Whichever is first; and a run whose schedule was set back is refused by the jobs' own table."""
    await jobs._backend.schedules.dispatch()
    due = await past(jobs, timedelta(0))
    counts = await asyncio.gather(*(jobs._backend.schedules.dispatch() for _ in range(8)))
    assert sorted(counts) == [0] * 7 + [1]
    async with jobs.engine.begin() as sql:
        await sql.execute(update(jobs.declaration.tables.schedules).values(next_run_at=due))
    assert await jobs._backend.schedules.dispatch() == 0
    assert len(await jobs.find()) == 1


@pytest.mark.parametrize(
    ("missed", "hours", "expected"),
    [("one", 5, 1), ("skip", 5, 0), ("all", 5, 6), ("all", 500, MAX_MISSED), ("skip", 0, 1)],
)
async def test_missed_runs_are_handled_by_the_policy(
    jobs: BoundJobs, missed: Any, hours: int, expected: int
) -> None:
    """After an outage one run, none, or all of a bounded number are enqueued, the newest ones."""
    now = datetime.now(UTC).replace(minute=0, second=30 if hours == 0 else 0, microsecond=0)
    first = now.replace(second=0) - timedelta(hours=hours)
    for when in (Cron("0 * * * *", missed=missed), Every(timedelta(hours=1), missed=missed)):
        _, schedule = make(when)
        runs = schedule.due(first, now + timedelta(seconds=90) if hours else now)
        assert len(runs) == expected
        assert runs == sorted(runs)
        if runs:
            assert runs[-1] == now.replace(second=0)


@pytest.mark.parametrize("missed", ["skip", "one", "all"])
@pytest.mark.parametrize(("lag", "expected"), [(0.0, 1), (1.01, 2), (3.2, 4)])
def test_short_intervals_lose_no_run_between_two_passes(missed: Any, lag: float, expected: int) -> None:
    """A pass is a second and its work after the one before, and after a change of leaders three more."""
    first = datetime(2026, 1, 1, 12, 0, 10, tzinfo=UTC)
    for when in (Every(timedelta(seconds=1), missed=missed), Cron("* * * * * *", missed=missed)):
        _, schedule = make(when)
        runs = schedule.due(first, first + timedelta(seconds=lag))
        assert runs == [first + timedelta(seconds=number) for number in range(expected)]


def test_a_run_on_time_stands_for_the_missed_ones_before_it() -> None:
    """After an outage of an hour there is one job for each run of the last five seconds, and no other."""
    first = datetime(2026, 1, 1, 12, tzinfo=UTC)
    _, schedule = make(Every(timedelta(seconds=2)))
    now = first + timedelta(hours=1, seconds=1)
    assert schedule.due(first, now) == [now - timedelta(seconds=late) for late in (5, 3, 1)]


async def test_a_backlog_of_missed_runs_is_enqueued_in_one_transaction(jobs: BoundJobs) -> None:
    """Each run has a job of its own."""
    _, schedule = make(Every(MINUTE, missed="all"))
    every = dispatcher(jobs, schedule)
    await every.dispatch()
    await past(jobs, timedelta(minutes=4))
    assert await every.dispatch() in (5, 6)  # a minute may begin in the meantime
    assert await every.dispatch() in (0, 1)


async def test_a_changed_schedule_runs_by_its_new_definition(jobs: BoundJobs) -> None:
    """And nothing is enqueued for the runs of the old one."""
    await jobs._backend.schedules.dispatch()
    await past(jobs, timedelta(hours=1))
    _, yearly = make(Cron("0 0 1 1 *", tz="Europe/Berlin"))
    assert await dispatcher(jobs, yearly).dispatch() == 0
    (stored,) = await jobs.schedules()
    assert stored.definition == "0 0 1 1 * Europe/Berlin"
    assert stored.next_run_at.astimezone(BERLIN).timetuple()[1:5] == (1, 1, 0, 0)


async def test_a_unique_job_is_not_scheduled_while_one_is_open(jobs: BoundJobs) -> None:
    """Runs do not pile up behind a slow one."""
    _, schedule = make(Every(MINUTE, missed="all"), unique=Unique())
    every = dispatcher(jobs, schedule)
    await every.dispatch()
    await past(jobs, timedelta(minutes=3))
    assert await every.dispatch() == 1


async def test_schedules_that_none_declares_are_deleted_after_a_day(jobs: BoundJobs) -> None:
    """Not earlier, since during a deploy another version may declare them."""
    table = jobs.declaration.tables.schedules
    await jobs._backend.schedules.dispatch()
    for name, ago in (("recent", timedelta(hours=1)), ("forgotten", timedelta(days=2))):
        values = {"name": name, "kind": "old", "definition": "", "next_run_at": func.now() - ago}
        async with jobs.engine.begin() as sql:
            await sql.execute(insert(table).values(**values))
    await jobs._backend.schedules.dispatch()
    async with jobs.engine.connect() as sql:
        assert set((await sql.execute(select(table.c.name))).scalars()) == {"report eu", "recent"}


@pytest.mark.parametrize(
    ("expression", "day", "expected"),
    [
        ("30 2 * * *", (2026, 3, 29), ["2026-03-29 03:00", "2026-03-30 02:30"]),  # 02:30 does not exist
        ("30 2 * * *", (2026, 10, 25), ["2026-10-25 02:30", "2026-10-26 02:30"]),  # it occurs twice
        ("0 3 * * *", (2026, 3, 29), ["2026-03-29 03:00", "2026-03-30 03:00"]),
        ("0 3 * * *", (2026, 10, 25), ["2026-10-25 03:00", "2026-10-26 03:00"]),
    ],
)
def test_a_daily_run_happens_once_when_the_clock_changes(
    expression: str, day: tuple[int, int, int], expected: list[str]
) -> None:
    """A time that is skipped runs right after the change, one that occurs twice runs once."""
    cron, now = Cron(expression, tz="Europe/Berlin"), datetime(*day, tzinfo=BERLIN)
    runs = []
    for _ in expected:
        now = cron.next_after(now)
        runs.append(f"{now.astimezone(BERLIN):%Y-%m-%d %H:%M}")
    assert runs == expected


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 29), 23), ((2026, 10, 25), 25)])
def test_an_hourly_run_follows_elapsed_time_when_the_clock_changes(
    day: tuple[int, int, int], hours: int
) -> None:
    """A day of 23 or 25 hours has as many runs."""
    cron, now = Cron("0 * * * *", tz="Europe/Berlin"), datetime(*day, tzinfo=BERLIN) - timedelta(seconds=1)
    end, runs = now.astimezone(UTC) + timedelta(hours=hours), 0
    while (now := cron.next_after(now)) <= end:
        runs += 1
    assert runs == hours


@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "0 3 * * *", "*/15 * * * *", "30 1-3 * * 0", "5 4 L * *"]
)
@pytest.mark.parametrize(
    "start", [datetime(2026, 3, 28, tzinfo=BERLIN), datetime(2026, 10, 24, tzinfo=BERLIN)]
)
def test_no_run_is_lost_or_repeated_wherever_a_dispatcher_looks(expression: str, start: datetime) -> None:
    """Around both changes of the clock every moment's next run is later, and catching up finds all runs."""
    _, schedule = make(Cron(expression, tz="Europe/Berlin", missed="all"))
    cron, now = schedule.when, start.astimezone(UTC)
    first, end, runs = cron.next_after(now), now + timedelta(days=2), []
    run = first
    while run <= end:
        runs.append(run)
        run = cron.next_after(run)
    while now < end - timedelta(minutes=25):  # a dispatcher that looks every 25 minutes, and was down before
        now += timedelta(minutes=25)
        assert cron.next_after(now) > now
        if first <= now:
            due = schedule.due(first, now)
            assert due == [each for each in runs if each <= now][-MAX_MISSED:], now


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Cron("0 3 * *"), "Wrong number of fields"),
        (lambda: Cron("0 0 30 2 *"), "Bad day-of-month"),
        (lambda: Cron("0 3 * * *", tz="Europe/Atlantis"), "is not a time zone"),
        (lambda: Cron("0 3 * * *", missed=UNKNOWN), "use 'skip', 'one' or 'all'"),
        (lambda: Every(timedelta(milliseconds=10)), "is too often"),
    ],
)
def test_schedules_that_cannot_work_are_refused(wrong: Any, message: str) -> None:
    """Where they are declared."""
    with pytest.raises(InvalidDeclaration, match=message):
        wrong()


def test_a_schedule_checks_its_job_and_arguments() -> None:
    """A second one of the same name, wrong arguments and an id for all runs are refused."""
    jobs, schedule = make()
    with pytest.raises(InvalidDeclaration, match="declared twice"):
        jobs.schedule("report eu", Every(MINUTE), schedule.job, "eu")
    with pytest.raises(InvalidValue, match="missing a required argument"):
        jobs.schedule("report us", Every(MINUTE), schedule.job)
    with pytest.raises(InvalidDeclaration, match="cannot all have one id"):
        jobs.schedule("report us", Every(MINUTE), schedule.job.options(job_id="one"), "us")


async def test_a_schedule_that_the_leader_does_not_know_runs(jobs: BoundJobs, database: str) -> None:
    """During a deploy the leader may be an old worker; others dispatch what it leaves undone, and no more."""
    dispatcher = jobs._backend.schedules
    late = timedelta(seconds=5)
    assert await dispatcher.dispatch(overdue=late) == 0  # the row is made
    table = jobs._backend.declaration.tables.schedules
    async with jobs.engine.begin() as sql:
        await sql.execute(update(table).values(next_run_at=func.clock_timestamp() - timedelta(seconds=3)))
    assert await dispatcher.dispatch(overdue=late) == 0, "the leader may still do it"
    async with jobs.engine.begin() as sql:
        await sql.execute(update(table).values(next_run_at=func.clock_timestamp() - timedelta(seconds=30)))
    assert await dispatcher.dispatch(overdue=late) == 1
    async with jobs.engine.begin() as sql:
        await sql.execute(update(table).values(definition="every day", next_run_at=func.clock_timestamp()))
    assert await dispatcher.dispatch(overdue=timedelta(0)) == 0, (
        "the leader's definition stays while it leads"
    )


def test_a_schedule_has_no_moment_of_its_own() -> None:
    """All its jobs would wait for the same one."""
    jobs, schedule = make()
    moment = datetime.now(UTC)
    with pytest.raises(InvalidDeclaration, match="one moment"):
        jobs.schedule("once", Every(MINUTE), schedule.job.options(at=moment), "eu")
