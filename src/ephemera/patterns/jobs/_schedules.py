"""Schedules: jobs that are enqueued at set times, each run once.

    JOBS.schedule("nightly_report", Cron("0 3 * * *", tz="Europe/Berlin"), report, region="eu")
    JOBS.schedule("refresh", Every(timedelta(minutes=5)), refresh)

The table `{name}_schedules` has the next run of each schedule. Each second the leader among the workers looks
for runs that are due by the database's clock. During a deploy the leader may be of an older version, so the
other workers look for schedules that it leaves undone. One transaction moves the schedule to its next run and
inserts the jobs of those that are due. Two processes cannot both do that: the transaction changes the row
only if it still has the run that was read, and the id of a job is made from its schedule and its run, so that
the primary key of the jobs refuses the same run a second time.

*Missed runs.* A run that is less than five seconds late was not missed: passes are a second apart, and a new
leader takes three to be elected. Each of these has its job. If no worker was up when runs were due, `missed`
says what happens: `"one"` enqueues one job for the newest of them, unless a run that was not missed stands
for it; `"skip"` none unless it is less than a minute old; and `"all"` one for each of the newest 100.

*Daylight saving time* is handled as by Debian's cron: a job for a time that the clock skips runs right after
the change, one for a time that occurs twice runs once. Expressions with `*` for minutes or hours run by
elapsed time.

A process dispatches the schedules that it declares. The row of a schedule that none declares any more is
deleted a day after its next run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Literal
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from sqlalchemy import delete, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import InvalidDeclaration
from ephemera.patterns.jobs._enqueue import NewJob, insert_jobs
from ephemera.patterns.jobs._job_definition import Job
from ephemera.patterns.jobs._tables import JobTables

MissedRuns = Literal["skip", "one", "all"]
MAX_MISSED = 100
"""Missed runs that `missed="all"` catches up with."""
ON_TIME = timedelta(seconds=5)
"""A run that is not older was not missed."""
GRACE = timedelta(minutes=1)
"""A missed run that is not older is not skipped, if it is the newest."""
_ABANDONED = timedelta(seconds=5)
"""How late a run is, beyond `overdue`, if no process that runs has its schedule's definition."""
_FORGOTTEN = timedelta(days=1)
_NAMESPACE = UUID("3e6f7f5c-0b0a-5b57-9d1c-6d0f6d1c2b11")
_LONGEST_CHANGE = timedelta(hours=3)  # of a clock
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Cron:
    """A schedule by a cron expression.

    Args:
        expression: Five fields: minute, hour, day of the month, month, day of the week; or six, with seconds
            first. `L` is the last day of a month, `5#2` its second Friday.
        tz: The time zone of the fields, as in `Europe/Berlin`.
        missed: What is done about runs for which no worker was up: `skip`, `one` or `all`.

    """

    expression: str
    tz: str = "UTC"
    missed: MissedRuns = "one"

    def __post_init__(self) -> None:
        _check_missed(self.expression, self.missed)
        try:
            zone = ZoneInfo(self.tz)
        except (OSError, ValueError, LookupError):  # a name that is unknown, or cannot be a file's
            raise InvalidDeclaration(
                self.expression, f"{self.tz!r} is not a time zone", "as in Europe/Berlin"
            ) from None
        try:
            found = next(CronSim(self.expression, datetime(2024, 1, 1, tzinfo=zone)), None)
        except CronSimError as problem:
            raise InvalidDeclaration(self.expression, str(problem), "as in 0 3 * * * for 03:00") from None
        if found is None:
            raise InvalidDeclaration(self.expression, "it never runs", "as in 0 3 * * * for 03:00")

    @property
    def definition(self) -> str:
        """The text that SQL stores."""
        return f"{self.expression} {self.tz}"

    def next_after(self, moment: datetime) -> datetime:
        """The first run after a moment."""
        runs = CronSim(self.expression, moment.astimezone(ZoneInfo(self.tz)))
        # In the hour that occurs twice, the first ones may be those of the earlier pass.
        return next(each for each in map(_utc, runs) if each > moment)

    def runs_before(self, moment: datetime) -> Iterator[datetime]:
        """The runs at or before a moment, newest first."""
        # From later on, since by local time an hour that occurs twice is before its first pass.
        local = (moment + _LONGEST_CHANGE).astimezone(ZoneInfo(self.tz))
        runs = map(_utc, CronSim(self.expression, local, reverse=True))
        return (each for each in runs if each <= moment)


@dataclass(frozen=True)
class Every:
    """A schedule by an interval: at its multiples since 1970-01-01 00:00 UTC, whichever process runs it.

    Args:
        interval: At least a second.
        missed: What is done about runs for which no worker was up: `skip`, `one` or `all`.

    """

    interval: timedelta
    missed: MissedRuns = "one"

    def __post_init__(self) -> None:
        _check_missed(f"every {self.interval}", self.missed)
        if self.interval < timedelta(seconds=1):
            raise InvalidDeclaration(f"every {self.interval}", "is too often", "use a second or more")

    @property
    def definition(self) -> str:
        """The text that SQL stores."""
        return f"every {self.interval}"

    def next_after(self, moment: datetime) -> datetime:
        """The first run after a moment."""
        return _EPOCH + self.interval * ((moment - _EPOCH) // self.interval + 1)

    def runs_before(self, moment: datetime) -> Iterator[datetime]:
        """The runs at or before a moment, newest first."""
        run = self.next_after(moment)
        while True:
            run -= self.interval
            yield run


class Schedule:
    """A declared schedule: when a job is enqueued, and with which arguments."""

    def __init__(self, name: str, when: Cron | Every, job: Job[..., Any], arguments: NewJob) -> None:
        self.name = name
        self.when = when
        self.job = job
        self._arguments = arguments

    def due(self, first: datetime, now: datetime) -> list[datetime]:
        """Of the runs from `first` on that are due now, those to enqueue jobs for."""
        later = takewhile(lambda run: run > first, self.when.runs_before(now))
        runs = [*islice(later, MAX_MISSED), first][:MAX_MISSED]
        if self.when.missed != "all":
            runs = [run for run in runs if now - run <= ON_TIME] or runs[:1]
        if self.when.missed == "skip":
            runs = [run for run in runs if now - run <= GRACE]
        return runs[::-1]

    def job_at(self, table: str, run: datetime) -> NewJob:
        """The job of one run; its id is the same in every process."""
        job_id = uuid5(_NAMESPACE, f"{table}/{self.name}/{run.astimezone(UTC).isoformat()}")
        return self._arguments._replace(id=str(job_id))

    def __repr__(self) -> str:
        return f"<Schedule {self.name!r}: {self.job.kind} {self.when.definition}>"


class ScheduleDispatcher:
    """Enqueues the jobs of the schedules that a process declares."""

    def __init__(self, tables: JobTables, engine: AsyncEngine, declared: dict[str, Schedule]) -> None:
        self._tables = tables
        self._table = tables.schedules
        self._engine = engine
        self._declared = declared

    async def dispatch(self, *, overdue: timedelta | None = None) -> int:
        """Enqueue what is due, and store the next runs; returns how many jobs were enqueued.

        A process that is not the leader gives `overdue`: then only schedules that the leader seems not to
        know are dispatched, those without a row and those whose run is due for that long. It leaves the
        definition of another version as it is, so that two versions without a leader do not overwrite each
        other's, unless nothing seems to run by it any more.
        """
        if not self._declared:
            return 0
        late = overdue or timedelta(0)
        async with self._engine.connect() as sql:
            now: datetime = (await sql.execute(select(func.clock_timestamp()))).scalar_one()
            rows = {row.name: row for row in await sql.execute(select(self._table))}
        enqueued = 0
        for schedule in self._declared.values():
            row, defined = rows.get(schedule.name), (schedule.job.kind, schedule.when.definition)
            if row is None:
                await self._define(schedule, now)
            elif (row.kind, row.definition) != defined:
                if overdue is None or row.next_run_at <= now - late - _ABANDONED:
                    await self._define(schedule, now)
            elif row.next_run_at <= now - late:
                enqueued += await self._run(schedule, row.next_run_at, now)
        if overdue is None and any(row.next_run_at < now - _FORGOTTEN for row in rows.values()):
            await self._delete_forgotten(now)
        return enqueued

    async def _define(self, schedule: Schedule, now: datetime) -> None:
        """Store a schedule that is new, or has changed; it runs next by its new definition."""
        values = {
            "kind": schedule.job.kind,
            "definition": schedule.when.definition,
            "next_run_at": schedule.when.next_after(now),
        }
        c, statement = self._table.c, upsert(self._table).values(name=schedule.name, **values)
        async with self._engine.begin() as sql:
            await sql.execute(
                statement.on_conflict_do_update(
                    index_elements=[c.name],
                    set_=values,
                    where=tuple_(c.kind, c.definition) != tuple_(values["kind"], values["definition"]),
                )
            )

    async def _run(self, schedule: Schedule, first: datetime, now: datetime) -> int:
        c, runs = self._table.c, schedule.due(first, now)
        async with self._engine.begin() as sql:
            claimed = (
                update(self._table)
                .where(c.name == schedule.name, c.next_run_at == first)
                .values(next_run_at=schedule.when.next_after(now))
                .returning(c.name)
            )
            if (await sql.execute(claimed)).first() is None or not runs:
                return 0
            return await self._enqueue(sql, schedule, runs)

    async def _enqueue(self, sql: AsyncConnection, schedule: Schedule, runs: list[datetime]) -> int:
        new = [schedule.job_at(self._tables.jobs.name, run) for run in runs]
        done = await insert_jobs(sql, self._tables, schedule.job, new, published=False)
        ran = update(self._table).where(self._table.c.name == schedule.name)
        await sql.execute(ran.values(last_run_at=runs[-1], last_job_id=done[-1].id))
        return sum(each.is_new for each in done)

    async def _delete_forgotten(self, now: datetime) -> None:
        c = self._table.c
        forgotten = delete(self._table).where(
            c.next_run_at < now - _FORGOTTEN, c.name.not_in(list(self._declared))
        )
        async with self._engine.begin() as sql:
            await sql.execute(forgotten)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _check_missed(of: str, missed: str) -> None:
    if missed not in ("skip", "one", "all"):
        raise InvalidDeclaration(of, f"missed={missed!r}", "use 'skip', 'one' or 'all'")
