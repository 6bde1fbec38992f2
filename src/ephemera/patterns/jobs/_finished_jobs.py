"""What follows the end of a job: waiting callers are woken, `on_finished` is called, the row is deleted.

*Results.* The script that ends a job publishes its id on a channel. A process that waits subscribes once for
all its waiting callers, and each of them reads its row when it is woken. Pub/sub loses messages and Redis may
be down, so rows are read now and then anyway: every five seconds while subscribed, every half second
otherwise.

*`on_finished`* is called at least once for each end of a job. The statement that ends a job also records that
its callback is due, `CALLBACK_LEASE` from then. The process that ended it calls the callback at once and
clears the record. If that process dies, before, during or right after the call, the record becomes due: the
leader among the workers claims it, which moves it into the future by another lease, calls the callback and
clears the record. A callback that fails or takes longer than `CALLBACK_TIMEOUT` is called again after 1, 2,
4, ... 600 seconds, until it succeeds. The record is cleared only for the fence that the job ended with. A
retry deletes the record: the job has not ended any more, and its next end has a record of its own. Where no
callback is declared, as in a console that cancels a job, the record is left to the workers; if these have
none either, it is cleared a day later.

*Retention.* Rows of jobs that ended long ago are deleted, in batches, by the leader among the workers. A row
is kept as long as `on_finished` has not succeeded for it, and as long as it holds a unique key.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Any

import msgspec
from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import InvalidDeclaration, InvalidValue, JobNotFinished, JobUnsuccessful, UnknownJob
from ephemera.keyspace import REDIS_ERRORS, convert
from ephemera.patterns.jobs._job_queries import JobQueries
from ephemera.patterns.jobs._rows import DATABASE_ERRORS
from ephemera.patterns.jobs._tables import JOB_STATES, OPEN_STATES, JobRow, JobTables, read_row, row_columns
from ephemera.wire import Client

_POLL = 0.5  # seconds between two reads of a row without a subscription
_POLL_SUBSCRIBED = 5.0
CALLBACK_LEASE = timedelta(seconds=30)
"""How long a process has for a call of `on_finished` before another process repeats it."""
CALLBACK_TIMEOUT = timedelta(seconds=25)
"""How long a call may take."""
_MAX_DELAY = 600.0  # seconds between two calls
_MAX_CALLS = 20  # calls at a time
_FORGOTTEN = timedelta(days=1)
DELETED_AT_ONCE = 1000
"""Rows deleted by one statement, with their steps."""
_DELETION_TIME = 0.5  # seconds of each second that may be spent on it
_DELETION_INTERVAL = 60.0  # seconds between two looks when there is little to delete
_ENDED = tuple(state for state in JOB_STATES if state not in OPEN_STATES)
FindCallback = Callable[[], Callable[[JobRow], Awaitable[None]] | None]
"""Gives the declared callback, if there is one."""
Keep = timedelta | Mapping[str, timedelta] | None
"""How long rows are kept after their end: all of them, or by state; None and absent states forever."""
_log = logging.getLogger("ephemera.jobs")


class JobEnds:
    """Wakes the callers of one process that wait for the end of jobs."""

    def __init__(self, client: Client, channel: str, queries: JobQueries) -> None:
        self._client = client
        self._channel = channel
        self._queries = queries
        self._waiting: defaultdict[str, list[asyncio.Event]] = defaultdict(list)
        self._task: asyncio.Task[None] | None = None
        self._subscribed = False

    async def wait(self, job_id: str, timeout: timedelta | None) -> JobRow:
        """The row of a job that has ended; `JobNotFinished` after the timeout."""
        seconds = None if timeout is None else timeout.total_seconds()
        row: JobRow | None = None
        try:
            async with asyncio.timeout(seconds) as clock:
                with self._woken(job_id) as woken:
                    while True:
                        woken.clear()
                        row = await self._queries.get(job_id)
                        if row is None:
                            raise UnknownJob(job_id, "is not in the table")
                        if row.ended:
                            return row
                        await self._next_read(woken)
        except TimeoutError:
            if not clock.expired():  # of the database
                raise
            state = "not yet read" if row is None else row.state
            raise JobNotFinished(job_id, state, seconds or 0.0) from None

    async def _next_read(self, woken: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SUBSCRIBED if self._subscribed else _POLL):
                await woken.wait()

    @contextmanager
    def _woken(self, job_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when a job may have ended."""
        woken = asyncio.Event()
        self._waiting[job_id].append(woken)
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="ephemera-job-ends")
        try:
            yield woken
        finally:
            self._waiting[job_id].remove(woken)
            if not self._waiting[job_id]:
                del self._waiting[job_id]
            if not self._waiting and self._task is not None:
                self._task.cancel()
                self._task = None
                self._subscribed = False

    async def _listen(self) -> None:
        """Wake callers until the store is closed; then they read their rows by themselves."""
        while True:
            with suppress(*REDIS_ERRORS):
                try:
                    await self._receive()
                    return
                finally:
                    self._subscribed = False
            await asyncio.sleep(_POLL)

    async def _receive(self) -> None:
        async with self._client.subscribe(self._channel) as messages:
            self._subscribed = True
            self._wake_all()  # those that ended before the subscription
            async for message in messages:
                if message.lost:
                    self._wake_all()
                else:
                    self._wake(message.data.decode("utf-8", "replace"))

    def _wake(self, job_id: str) -> None:
        for woken in self._waiting.get(job_id, ()):
            woken.set()

    def _wake_all(self) -> None:
        for job_id in self._waiting:
            self._wake(job_id)


def read_result(row: JobRow, returned: Any) -> Any:
    """The result of a job that is done, as its return annotation says; `JobUnsuccessful` otherwise."""
    if row.state != "done":
        raise JobUnsuccessful(row.id, row.kind, row.state, row.error)
    try:
        return convert(row.result, returned, strict=False)
    except msgspec.ValidationError as problem:
        raise InvalidValue(row.kind, f"results of {returned}", f"that of job {row.id}: {problem}") from None


class FinishedCallbacks:
    """The calls of one process."""

    def __init__(self, tables: JobTables, engine: AsyncEngine, callback: FindCallback) -> None:
        self._jobs = tables.jobs
        self._columns = row_columns(tables)
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._callback = callback
        self._calls: set[asyncio.Task[None]] = set()

    def due(self) -> Any:
        """What a statement that ends a job writes to `callback_due_at`."""
        return None if self._callback() is None else func.clock_timestamp() + CALLBACK_LEASE

    async def call(self, row: JobRow) -> None:
        """Call the callback for a job that has ended, and record the outcome; it does not raise."""
        callback, problem = self._callback(), None
        try:
            if callback is not None:
                async with asyncio.timeout(CALLBACK_TIMEOUT.total_seconds()):
                    await callback(row)
        except Exception as error:
            problem = error
            _log.exception("`on_finished` failed for job %s; it is called again", row.id)
        delay = (
            None
            if problem is None
            else timedelta(seconds=min(2.0 ** min(row.callback_attempts, 20), _MAX_DELAY))
        )
        try:
            await self._record(row, delay)
        except DATABASE_ERRORS as error:
            _log.warning("`on_finished` of job %s may be called again: %s", row.id, error)

    async def call_due(self) -> int:
        """Start the calls that are due and that no other process makes; returns how many."""
        if self._callback() is None:
            await self._clear_forgotten()
            return 0
        room = _MAX_CALLS - len(self._calls)
        due = await self._claim(room) if room > 0 else []
        for row in due:
            call = asyncio.create_task(self.call(row), name=f"on_finished of job {row.id}")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        return len(due)

    async def aclose(self) -> None:
        """Cancel the calls; other processes repeat them."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _clear_forgotten(self) -> None:
        """Clear old records; not at once, since during a deploy another version may have a callback."""
        c = self._jobs.c
        old = c.callback_due_at < func.clock_timestamp() - _FORGOTTEN
        async with self._engine.connect() as sql:
            await sql.execute(update(self._jobs).where(old).values(callback_due_at=None))

    async def _claim(self, limit: int) -> list[JobRow]:
        c, now = self._jobs.c, func.clock_timestamp()
        due = (
            select(c.id)
            .where(c.callback_due_at <= now)
            .order_by(c.callback_due_at)
            .limit(limit)
            .with_for_update(skip_locked=True, key_share=True)
        )
        statement = (
            update(self._jobs)
            .where(c.id.in_(due.scalar_subquery()))
            .values(callback_due_at=now + CALLBACK_LEASE, callback_attempts=c.callback_attempts + 1)
            .returning(*self._columns)
        )
        async with self._engine.connect() as sql:
            return [read_row(row) for row in await sql.execute(statement)]

    async def _record(self, row: JobRow, delay: timedelta | None) -> None:
        """Clear the record, or schedule the next call."""
        c = self._jobs.c
        due = None if delay is None else func.clock_timestamp() + delay
        mine = (c.id == row.id, c.fence == row.fence, c.callback_due_at.is_not(None))
        async with self._engine.connect() as sql:
            await sql.execute(update(self._jobs).where(*mine).values(callback_due_at=due))


def keep_by_state(name: str, keep: Keep) -> dict[str, timedelta]:
    """How long the rows of each state are kept."""
    by_state = dict.fromkeys(_ENDED, keep) if isinstance(keep, timedelta) else dict(keep or {})
    for state, period in by_state.items():
        if state not in _ENDED:
            raise InvalidDeclaration(name, f"keep= for the state {state!r}", f"use {', '.join(_ENDED)}")
        if period < timedelta(0):
            raise InvalidDeclaration(name, f"keep={period}", "it is not negative; None keeps rows forever")
    return by_state


class Retention:
    """Deletes the old rows of one database."""

    def __init__(self, tables: JobTables, engine: AsyncEngine, keep: Mapping[str, timedelta]) -> None:
        self._jobs = tables.jobs
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._keep = keep
        self._next_at = 0.0

    async def delete_if_due(self) -> None:
        """Delete batches for a moment; the rest follow with the next call, or new ones in a minute."""
        if not self._keep or monotonic() < self._next_at:
            return
        until, deleted = monotonic() + _DELETION_TIME, DELETED_AT_ONCE
        while deleted == DELETED_AT_ONCE and monotonic() < until:
            deleted = await self.delete_batch()
        self._next_at = monotonic() + (0.0 if deleted == DELETED_AT_ONCE else _DELETION_INTERVAL)

    async def delete_batch(self) -> int:
        """Delete the oldest rows that are no longer kept, at most `DELETED_AT_ONCE`; returns how many."""
        c, now = self._jobs.c, func.clock_timestamp()
        periods: dict[timedelta, list[str]] = {}
        for state, period in self._keep.items():
            periods.setdefault(period, []).append(state)
        old: Any = or_(
            *(and_(c.state.in_(states), c.finished_at < now - period) for period, states in periods.items())
        )
        free = or_(c.unique_until.is_(None), c.unique_until <= now)
        chosen = (
            select(c.id)
            .where(old, free, c.callback_due_at.is_(None), c.finished_at < now - min(periods))
            .order_by(c.finished_at)
            .limit(DELETED_AT_ONCE)
            .with_for_update(skip_locked=True)
        )
        statement = delete(self._jobs).where(c.id.in_(chosen.scalar_subquery())).returning(c.id)
        async with self._engine.connect() as sql:
            return len((await sql.execute(statement)).all())
