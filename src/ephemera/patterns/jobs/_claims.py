"""How a worker process claims jobs, keeps them while their attempts last, and completes them.

*Claims.* A batch is one statement: `FOR NO KEY UPDATE SKIP LOCKED` chooses rows that no other worker is
claiming, and the UPDATE gives each a fence and a lease. The index of waiting rows is ordered by priority and
then by the time they are due. The statement goes from priority to priority and reads from each the rows that
are due, so that a million jobs scheduled for tomorrow cost it nothing. Rows of a kind that the process does
not know stay where they are. Suspects, which may be what their processes died of, are claimed one at a time,
by a process that runs nothing else. Jobs whose lease has expired are released first, each second
(`JobRows.release_expired`).

*Limits.* The settings of the queues are loaded again after a second. Only a claim from a limited queue is a
transaction of several statements (`_queues`).

*Leases.* One statement each second renews the leases of all jobs that the process runs. A job that it did not
renew was cancelled or taken over, and its work is cancelled with a `JobLost` that says why. The same happens
to every job whose lease ran out while SQL could not be reached, even if a query hangs: another worker may
have it by then. As long as something of a cancelled attempt still runs, a thread or a step that ends slowly,
its process extends the lease of the cancelled row, for which a retry waits.

*Completion.* The first job that is done is written at once; those that are done by then share the next
statement. A job is done when its row says so: each waits for the statement that it is in. One whose row
another transaction has locked is tried again by itself, and delays no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Integer, Text, any_, bindparam, func, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import JobLost
from ephemera.patterns.jobs._declaration import Jobs
from ephemera.patterns.jobs._job_queries import JobQueries
from ephemera.patterns.jobs._queues import QueueSettings, QueueTable
from ephemera.patterns.jobs._rows import DATABASE_ERRORS, CompletedJob, HeldJob, JobRows, claim_values
from ephemera.patterns.jobs._run_context import Run, with_timeout
from ephemera.patterns.jobs._tables import SUSPECT_LITERAL, WAITING, JobRow, JobTables, read_row, row_columns

_SETTINGS_AGE = 1.0  # seconds after which the settings of the queues are loaded again
_RENEWAL = 1.0  # seconds between renewals of leases, at most a fifth of one
_BATCH = 500  # jobs that are completed by one statement
_LOCKED = 0.1  # seconds until a locked row is tried again
_log = logging.getLogger("ephemera.jobs")


class JobClaims:
    """The claims of one worker process."""

    def __init__(self, declaration: Jobs, engine: AsyncEngine, rows: JobRows, worker: str) -> None:
        tables, lease = declaration.tables, declaration.lease
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._rows = rows
        self._queues = QueueTable(tables, engine)
        self._worker = worker
        self._lease = lease
        self._kinds = list(declaration.kinds)
        self._due = _claim(tables, _chosen_due(tables.jobs, suspects=False), worker, lease)
        self._suspects = _claim(tables, _chosen_due(tables.jobs, suspects=True), worker, lease)
        self._settings: dict[str, QueueSettings] = {}
        self._loaded = float("-inf")

    async def due(self, queue: str, limit: int, *, suspects: bool = False) -> list[JobRow]:
        """Claim up to `limit` due jobs of a queue, highest priority first: suspects, or all others."""
        settings = (await self.settings()).get(queue)
        if settings is not None and settings.paused:
            return []
        if settings is None or not settings.is_limited:
            async with self._engine.connect() as sql:
                return await self._claim_batch(sql, queue, limit, suspects=suspects)
        async with self._queues.places(queue, limit) as places:
            if not places.free:
                return []
            claimed = await self._claim_batch(places.sql, queue, places.free, suspects=suspects)
            places.taken = len(claimed)
            return claimed

    async def named(self, job_id: str, queue: str) -> JobRow | None:
        """Claim the one job that a message names; None if it cannot be claimed."""
        settings = (await self.settings()).get(queue)
        if settings is None or not settings.is_limited:
            return await self._rows.claim(job_id, self._worker, self._lease, self._kinds)
        async with self._queues.places(queue, 1, wait=True) as places:
            # The claim has a connection of its own: it commits before the place is given up.
            row = (
                await self._rows.claim(job_id, self._worker, self._lease, self._kinds)
                if places.free
                else None
            )
            places.taken = int(row is not None)
            return row

    async def settings(self, *, reload: bool = False) -> dict[str, QueueSettings]:
        """The queues that have settings, as they were at most a second ago."""
        if reload or monotonic() - self._loaded > _SETTINGS_AGE:
            self._settings, self._loaded = await self._queues.load(), monotonic()
        return self._settings

    async def _claim_batch(
        self, sql: AsyncConnection, queue: str, limit: int, *, suspects: bool
    ) -> list[JobRow]:
        chosen = {"queue_": queue, "limit_": limit, "kinds_": self._kinds}
        statement = self._suspects if suspects else self._due
        claimed = [read_row(row) for row in await sql.execute(statement, chosen)]
        return sorted(claimed, key=lambda row: (-row.priority, row.available_at))


def _claim(tables: JobTables, chosen: Any, worker: str, lease: timedelta) -> Any:
    c, ids = tables.jobs.c, chosen.cte("chosen")
    claimed = update(tables.jobs).where(c.id == ids.c.id).values(**claim_values(c, worker, lease))
    return claimed.returning(*row_columns(tables))


def _chosen_due(jobs: Any, *, suspects: bool) -> Any:
    c = jobs.c
    sort = c.crashes >= SUSPECT_LITERAL if suspects else c.crashes < SUSPECT_LITERAL
    waits = (c.queue == bindparam("queue_", type_=Text), c.state == WAITING, sort)
    levels = select(func.max(c.priority).label("priority")).where(*waits).cte("levels", recursive=True)
    lower = select(func.max(c.priority)).where(*waits, c.priority < levels.c.priority).scalar_subquery()
    levels = levels.union_all(select(lower).where(levels.c.priority.is_not(None)))
    due = (
        select(c.id)
        .where(
            *waits, c.priority == levels.c.priority, c.available_at <= func.statement_timestamp(), _known(c)
        )
        .order_by(c.available_at)
        .limit(bindparam("limit_", type_=Integer))
        .with_for_update(skip_locked=True, key_share=True)
        .lateral("due")
    )
    return select(due.c.id).select_from(levels.join(due, true())).limit(bindparam("limit_", type_=Integer))


def _known(c: Any) -> Any:
    return c.kind == any_(bindparam("kinds_", type_=ARRAY(Text)))


class LeaseKeeper:
    """Renews the leases of the attempts of a process, and cancels those that are lost."""

    def __init__(
        self, rows: JobRows, queries: JobQueries, lease: timedelta, is_stopping: Callable[[], bool]
    ) -> None:
        self._rows = rows
        self._queries = queries
        self._is_stopping = is_stopping
        self._lease = lease
        self._interval = min(_RENEWAL, self._lease.total_seconds() / 5)
        self._safe = self._lease.total_seconds() * 0.95  # clocks may run at different speeds
        self._held: dict[Run, _HeldAttempt] = {}
        self._renewal: asyncio.Task[None] | None = None

    def deadline(self, claimed: float) -> float:
        """Until when a lease is certainly held that was asked for at a moment (monotonic)."""
        return claimed + self._safe

    def hold(self, run: Run, work: asyncio.Task[str], deadline: float) -> None:
        """Renew the lease of an attempt from now on."""
        self._held[run] = _HeldAttempt(work, deadline)
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew(), name="ephemera-job-leases")

    def drop(self, run: Run) -> None:
        """No longer renew the lease of an attempt."""
        self._held.pop(run, None)
        if not self._held and self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    def find(self, task: asyncio.Task[Any]) -> Run | None:
        """The attempt that a task belongs to, as its function or as one of its steps."""
        for run, (work, _) in list(self._held.items()):
            if task is work or task in list(run._state.steps.values()):
                return run
        return None

    @asynccontextmanager
    async def delay_retry(self, run: Run) -> AsyncIterator[None]:
        """Let a retry of a job that was cancelled wait for the block's end."""
        job = (run.id, run.row.worker or "")
        delaying = asyncio.create_task(self._delay_retry(*job), name="ephemera-job-delayed-retry")
        try:
            yield
        finally:
            delaying.cancel()
            await asyncio.wait((delaying,))
            with suppress(*DATABASE_ERRORS, TimeoutError):  # then the lease ends by itself
                await with_timeout(self._rows.allow_retry(*job), self._lease.total_seconds())

    async def _delay_retry(self, job_id: str, worker: str) -> None:
        while True:
            with suppress(*DATABASE_ERRORS, TimeoutError):
                extended = self._rows.delay_retry(job_id, worker, self._lease)
                await with_timeout(extended, self._lease.total_seconds())
            await asyncio.sleep(self._interval)

    def announce_stop(self) -> None:
        """Let no attempt begin a further step."""
        for run in self._held:
            if not run._state.stopping:
                run._state.stopping = True
                _log.info("job %s is released after its current step: this worker stops", run.id)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            if self._is_stopping():
                self.announce_stop()
            try:
                await self._renew_all()
            except Exception:  # nothing awaits this task, so its end would go unnoticed
                _log.exception("the leases of %d jobs were not renewed", len(self._held))

    async def _renew_all(self) -> None:
        if not self._held:  # what is lost may still run for a moment
            return
        left = min(attempt.deadline for attempt in self._held.values()) - monotonic()
        try:
            await with_timeout(self._renew_once(list(self._held)), max(left, self._interval))
        except (*DATABASE_ERRORS, TimeoutError) as problem:
            for run, attempt in list(self._held.items()):
                if monotonic() >= attempt.deadline:
                    self._lose(run, f"its lease could not be renewed in SQL ({problem!r})")

    async def _renew_once(self, runs: list[Run]) -> None:
        sent, jobs = monotonic(), {run: HeldJob(run.id, run.fence) for run in runs}
        renewed = await self._rows.renew(list(jobs.values()), self._lease)
        for run, job in jobs.items():
            if run not in self._held:
                continue
            if job in renewed:
                self._held[run] = self._held[run]._replace(deadline=sent + self._safe)
            elif reason := await self._why_lost(run, job):
                self._lose(run, reason)

    async def _why_lost(self, run: Run, job: HeldJob) -> str:
        """The reason, or an empty text if it is not lost."""
        row = await self._queries.get(job.id)
        if row is None:
            return "its row was deleted"
        if row.fence in (job.fence, run.fence):  # this attempt has ended it, or its row is locked
            attempt = self._held.get(run)
            expired = attempt is not None and row.state == "running" and monotonic() >= attempt.deadline
            return "its row was locked for longer than its lease" if expired else ""
        if row.state == "cancelled":
            return "it was cancelled"
        return f"it is {row.state}, with the fence {row.fence} of {row.worker}"

    def _lose(self, run: Run, reason: str) -> None:
        attempt = self._held.pop(run, None)
        if attempt is not None:
            run._state.lost = JobLost(run.id, run.fence, reason)
            attempt.work.cancel(str(run._state.lost))


class _HeldAttempt(NamedTuple):
    work: asyncio.Task[str]
    deadline: float
    """Until when its lease is certainly held (monotonic)."""


class _Completion(NamedTuple):
    job: CompletedJob
    written: asyncio.Future[JobRow | None]


class Completions:
    """Ends jobs as `done`, many in a statement."""

    def __init__(self, rows: JobRows) -> None:
        self._rows = rows
        self._waiting: list[_Completion] = []
        self._writing: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()

    async def complete(self, job: CompletedJob) -> JobRow | None:
        """The row of a job that is done; None if this fence no longer holds it."""
        completion = _Completion(job, asyncio.get_running_loop().create_future())
        self._waiting.append(completion)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="ephemera-job-completions")
        return await completion.written

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
            rows = await self._write_together(batch)
            for each in batch:
                if (row := rows.get(each.job.id)) is None:
                    alone = asyncio.create_task(self._write_alone(each))
                    self._alone.add(alone)
                    alone.add_done_callback(self._alone.discard)
                elif not each.written.done():
                    each.written.set_result(row)
        self._writing = None

    async def _write_together(self, batch: list[_Completion]) -> dict[str, JobRow]:
        try:
            rows = await self._rows.complete([each.job for each in batch])
            return {row.id: row for row in rows}
        except Exception as problem:  # each alone gets its own error
            _log.debug("%d jobs are completed one by one: %r", len(batch), problem)
            return {}

    async def _write_alone(self, completion: _Completion) -> None:
        """Write a row that the statement left out: it is locked, or lost, or one of the batch was refused."""
        job, written = completion
        try:
            while not (rows := await self._rows.complete([job])):
                if written.done() or not await self._rows.is_held(HeldJob(job.id, job.fence)):
                    break
                await asyncio.sleep(_LOCKED)
        except Exception as problem:
            if not written.done():
                written.set_exception(problem)
        else:
            if not written.done():
                written.set_result(rows[0] if rows else None)
