"""Every statement that changes a job.

Each change of a row is one statement, guarded by state and fence: one that finds another fence or another
state changes no row and reports it. Nothing is read first and written later. All times come from the database
(`clock_timestamp`), never from a worker. `fence` grows with every claim, cancellation and retry; every write
names the fence it holds, and an older one changes nothing. Rows are locked as an UPDATE locks them
(`key_share`), so that an application's transaction with a foreign key to a job is in no one's way.

*Crashes.* Of the jobs of a process that died any may be the cause. If it ran one job, that one has used an
attempt. If it ran several, none has, and each has one crash more; from the second in a row on a job is a
suspect, which is run alone in a process. So a job that kills its process ends as `dead` after its attempts,
and costs its neighbours none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, BigInteger, Text, and_, case, cast, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.jobs._tables import (
    OPEN_STATES,
    RUNNING,
    SUSPECT_LITERAL,
    TIME,
    WAITING,
    JobRow,
    JobState,
    JobTables,
    read_row,
    row_columns,
)

DATABASE_ERRORS = (OperationalError, InterfaceError, PoolTimeout)
"""What SQLAlchemy raises while the database is unavailable, or no connection of the pool is free."""


class QueuedJob(NamedTuple):
    """A job whose message is due: all that its message needs."""

    id: str
    kind: str
    queue: str
    priority: int = 0


class HeldJob(NamedTuple):
    """A job and the fence of the attempt that has it."""

    id: str
    fence: int


class CompletedJob(NamedTuple):
    """A job whose function has returned."""

    id: str
    fence: int
    result: str
    """As `encode_result` writes it."""
    error: str | None = None


class JobRows:
    """The changes of jobs in one database: single statements that commit at once.

    With `publishes`, a row notes when its message was sent. `callback_due` gives what the end of a job writes
    to `callback_due_at`.
    """

    def __init__(
        self,
        tables: JobTables,
        engine: AsyncEngine,
        *,
        publishes: bool = True,
        callback_due: Callable[[], Any] = lambda: None,
    ) -> None:
        self._jobs, self._steps = tables.jobs, tables.steps
        self._published: Any = func.clock_timestamp() if publishes else None
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._columns = row_columns(tables)
        self._callback_due = callback_due

    async def claim(
        self, job_id: str, worker: str, lease: timedelta, kinds: Sequence[str] | None = None
    ) -> JobRow | None:
        """Claim a job that waits, or whose worker is gone; None if it cannot be claimed.

        With `kinds`, a job of another kind is not claimed.
        """
        c, now = self._jobs.c, func.clock_timestamp()
        free = or_(
            and_(c.state == "waiting", c.available_at <= now), and_(c.state == "running", c.lease_until < now)
        )
        known = () if kinds is None else (c.kind.in_(kinds),)
        return await self._changed(and_(c.id == job_id, free, *known), **claim_values(c, worker, lease))

    async def hand_back(self, job_id: str, kinds: Sequence[str], error: str, delay: timedelta) -> bool:
        """Leave a waiting job of a kind that is not among these to another worker, later."""
        c = self._jobs.c
        return (
            await self._changed(
                and_(c.id == job_id, c.state == "waiting", c.kind.not_in(kinds)),
                error=error,
                available_at=func.clock_timestamp() + delay,
                published_at=None,
            )
            is not None
        )

    async def renew(self, held: Sequence[HeldJob], lease: timedelta) -> set[HeldJob]:
        """Hold jobs for another lease, in one statement; returns those that were renewed.

        The others have ended, or have another fence, or their row is locked: waiting for one locked row
        would let the leases of all others expire.
        """
        c = self._jobs.c
        chosen = self._chosen(held)
        statement = (
            update(self._jobs)
            .where(c.id == chosen.c.id)
            .values(lease_until=func.clock_timestamp() + lease)
            .returning(c.id, c.fence)
        )
        async with self._engine.connect() as sql:
            return {HeldJob(*row) for row in await sql.execute(statement)}

    async def raise_fence(self, job_id: str, fence: int, above: int) -> JobRow | None:
        """Give a held job a fence above another one."""
        return await self._held(job_id, fence, fence=above + 1)

    async def record(
        self, sql: AsyncConnection | None, job_id: str, fence: int, name: str, result: bytes
    ) -> bool:
        """Record a step, in the caller's transaction if there is one; False if the fence is not the job's.

        The same fence may record the same step again: it repeats a statement whose outcome is unknown.
        """
        c, s = self._jobs.c, self._steps.c
        held = (
            update(self._jobs)
            .where(c.id == job_id, c.fence == fence, c.state == "running")
            .values(step=name, steps=c.steps + 1)
            .returning(c.id)
            .cte("held")
        )
        values = [literal(name), literal(result.decode()), literal(fence)]
        statement = upsert(self._steps).from_select(
            ["job_id", "name", "result", "fence"], select(held.c.id, *values)
        )
        recorded = statement.on_conflict_do_update(
            index_elements=[s.job_id, s.name],
            set_={"result": statement.excluded.result, "fence": statement.excluded.fence},
        ).returning(s.name)
        if sql is not None:
            return (await sql.execute(recorded)).first() is not None
        return await self._one(recorded) is not None

    async def complete(self, done: Sequence[CompletedJob]) -> list[JobRow]:
        """End jobs as `done`, in one statement; returns those whose fence was the row's, and not locked."""
        c = self._jobs.c
        chosen = self._chosen([HeldJob(job.id, job.fence) for job in done])
        given = _unnested(
            "given",
            id=[job.id for job in done],
            fence=[job.fence for job in done],
            result=[job.result for job in done],
            error=[job.error for job in done],
        )
        statement = (
            update(self._jobs)
            .where(c.id == chosen.c.id, c.id == given.c.id, c.fence == given.c.fence)
            .values(
                state="done",
                result=cast(given.c.result, JSONB),
                error=given.c.error,
                lease_until=None,
                finished_at=func.clock_timestamp(),
                callback_due_at=self._callback_due(),
                callback_attempts=0,
            )
            .returning(*self._columns)
        )
        async with self._engine.connect() as sql:
            return [read_row(row) for row in await sql.execute(statement)]

    async def is_held(self, job: HeldJob) -> bool:
        """Whether this fence still holds a running job."""
        c = self._jobs.c
        held = select(c.id).where(c.id == job.id, c.fence == job.fence, c.state == "running")
        return await self._one(held) is not None

    async def fail(self, job_id: str, fence: int, state: JobState, error: str) -> JobRow | None:
        """End a job as `failed` or `dead`, with the reason."""
        return await self._end(job_id, fence, state=state, error=error)

    async def reschedule(self, job_id: str, fence: int, error: str, delay: timedelta) -> JobRow | None:
        """Schedule the next attempt."""
        available = func.clock_timestamp() + delay
        return await self._held(
            job_id, fence, state="waiting", error=error, crashes=0, lease_until=None, available_at=available
        )

    async def note_error(self, job_id: str, fence: int, error: str) -> JobRow | None:
        """Note why an attempt failed that cannot end yet."""
        return await self._held(job_id, fence, error=error)

    async def release(self, job_id: str, fence: int) -> JobRow | None:
        """Let another worker continue at once; this attempt does not count."""
        c, now = self._jobs.c, func.clock_timestamp()
        values = {"state": "waiting", "attempts": c.attempts - 1, "crashes": 0, "lease_until": None}
        published = {"published_at": self._published, "resent": True}
        return await self._held(job_id, fence, **values, available_at=now, **published)

    async def release_killed(self, worker: str, culprit: str, error: str) -> list[JobRow]:
        """Let other workers continue the jobs of a process that was killed for one of them.

        The attempt counts for that one only.
        """
        c = self._jobs.c
        counts = c.id == culprit
        return await self._release_where(and_(c.worker == worker, c.state == "running"), counts, error)

    async def release_crashed(self, worker: str, error: str) -> list[JobRow]:
        """Let other workers continue the jobs of a process that died by itself, or by one of them."""
        c = self._jobs.c
        runs = and_(c.worker == worker, c.state == "running")
        return await self._release_where(runs, self._is_alone(), error, crashes=c.crashes + 1)

    async def release_expired(self, lease: timedelta, worker: str = "") -> list[JobRow]:
        """Let workers continue the jobs of processes whose leases have expired: they died, or hang.

        The jobs of a process are released together, when the last lease has expired: until then it is unknown
        which jobs it ran. A job is released alone if its process holds others, and not this one, for another
        lease; so are those of `worker`, the process that asks: it was blocked, and may still renew them.
        """
        mine, other, now = self._jobs.alias("mine").c, self._jobs.alias("other").c, func.statement_timestamp()
        holds = and_(other.worker == mine.worker, other.state == RUNNING, other.lease_until >= now)
        is_dead = and_(mine.worker != worker, ~select(literal(1)).where(holds).exists())
        expired = or_(and_(mine.lease_until < now, is_dead), mine.lease_until < now - lease)
        chosen = select(mine.id).where(mine.state == RUNNING, expired)
        chosen = chosen.with_for_update(skip_locked=True, key_share=True, of=mine.id)
        ids, c = chosen.cte("chosen"), self._jobs.c
        error = "the lease of its process expired: it died, or hung"
        crashed = {"crashes": c.crashes + 1, "fence": c.fence + 1}
        return await self._release_where(c.id == ids.c.id, self._is_alone(), error, **crashed)

    async def has_suspects(self, queues: Sequence[str], kinds: Sequence[str]) -> bool:
        """Whether jobs of these queues and kinds wait that must run alone in a process."""
        c = self._jobs.c
        waits = (c.state == WAITING, c.crashes >= SUSPECT_LITERAL)
        due = (c.queue.in_(queues), c.kind.in_(kinds), c.available_at <= func.statement_timestamp())
        return await self._one(select(c.id).where(*waits, *due).limit(1)) is not None

    def _is_alone(self) -> Any:
        """Whether no other job runs in the process of a running one."""
        c, other = self._jobs.c, self._jobs.alias("neighbour")
        running = other.c.state == RUNNING
        same = and_(other.c.worker == c.worker, running, other.c.id != c.id)
        return ~select(literal(1)).where(same).correlate(self._jobs).exists()

    async def _release_where(self, where: Any, counts: Any, error: str, **values: Any) -> list[JobRow]:
        """Let jobs wait; the attempt counts for some, which have the error then."""
        c = self._jobs.c
        statement = (
            update(self._jobs)
            .where(where)
            .values(
                state="waiting",
                attempts=c.attempts - case((counts, 0), else_=1),
                error=case((counts, error), else_=c.error),
                lease_until=None,
                available_at=func.clock_timestamp(),
                published_at=None,
                **values,
            )
            .returning(*self._columns)
        )
        async with self._engine.connect() as sql:
            return [read_row(row) for row in await sql.execute(statement)]

    async def snooze(self, job_id: str, fence: int, delay: timedelta) -> JobRow | None:
        """Schedule the job for later; this attempt does not count."""
        c, available = self._jobs.c, func.clock_timestamp() + delay
        values = {"state": "waiting", "attempts": c.attempts - 1, "crashes": 0, "lease_until": None}
        return await self._held(job_id, fence, **values, available_at=available)

    async def cancel(self, job_id: str) -> JobRow | None:
        """End a job that has not ended; from now on its worker holds an outdated fence.

        The lease stays: until then something of the attempt may run, and a retry waits for it.
        """
        c = self._jobs.c
        return await self._changed(
            and_(c.id == job_id, c.state.in_(OPEN_STATES)),
            state="cancelled",
            fence=c.fence + 1,
            finished_at=func.clock_timestamp(),
            # A process without the callback leaves it to a worker, which knows whether there is one.
            callback_due_at=func.clock_timestamp() if (due := self._callback_due()) is None else due,
            callback_attempts=0,
        )

    async def retry(self, job_id: str) -> JobRow | None:
        """Let a job that ended without success continue from its last step, with all its attempts left."""
        c, now = self._jobs.c, func.clock_timestamp()
        return await self._changed(
            and_(c.id == job_id, c.state.in_(("failed", "dead", "cancelled"))),
            state="waiting",
            attempts=0,
            crashes=0,
            fence=c.fence + 1,
            started_at=None,
            finished_at=None,
            available_at=func.greatest(now, c.lease_until),
            published_at=self._published,
            resent=True,
            callback_due_at=None,
        )

    async def delay_retry(self, job_id: str, worker: str, lease: timedelta) -> None:
        """Let a retry of a cancelled job wait for this worker, which still runs something of its attempt."""
        c, until = self._jobs.c, func.clock_timestamp() + lease
        later = case((c.state == "waiting", until), else_=c.available_at)
        values = {"lease_until": until, "available_at": later}
        await self._one(update(self._jobs).where(self._outlived(job_id, worker)).values(**values))

    async def allow_retry(self, job_id: str, worker: str) -> None:
        """Nothing of a cancelled attempt runs any more: a retry may begin at once."""
        c, now = self._jobs.c, func.clock_timestamp()
        earlier = case((c.state == "waiting", now), else_=c.available_at)
        values = {"lease_until": None, "available_at": earlier}
        await self._one(update(self._jobs).where(self._outlived(job_id, worker)).values(**values))

    def _outlived(self, job_id: str, worker: str) -> Any:
        """A job that was cancelled, and perhaps retried, during an attempt of this worker."""
        c = self._jobs.c
        is_open = c.state.in_(("cancelled", "waiting"))
        return and_(c.id == job_id, c.worker == worker, c.lease_until.is_not(None), is_open)

    async def now(self) -> datetime:
        """The database's time."""
        found: datetime = (await self._one(select(func.clock_timestamp())))[0]
        return found

    async def mark_unpublished(self, job_ids: Sequence[str]) -> None:
        """Note that messages could not be sent, so that the reaper sends them."""
        c = self._jobs.c
        await self._one(update(self._jobs).where(c.id.in_(job_ids)).values(published_at=None))

    async def mark_published(self, job_ids: Sequence[str]) -> bool:
        """Note that messages were sent just now; False if none of these jobs is due."""
        c, now = self._jobs.c, func.clock_timestamp()
        statement = (
            update(self._jobs)
            .where(c.id.in_(job_ids), c.available_at <= now)
            .values(published_at=now, resent=c.published_at.is_not(None))
            .returning(c.id)
        )
        return await self._one(statement) is not None

    async def unpublished(self, queue: str, limit: int) -> list[QueuedJob]:
        """Jobs without a message: none was sent, or none since they became due or lost their worker."""
        c, now = self._jobs.c, func.clock_timestamp()
        waiting = and_(c.state == "waiting", c.available_at <= now, c.published_at < c.available_at)
        # Without a time: its message was delivered, although its sender got an error.
        not_since = or_(c.published_at.is_(None), c.published_at < c.lease_until)
        lapsed = and_(c.state == "running", c.lease_until < now, not_since)
        unsent = and_(c.state == "waiting", c.available_at <= now, c.published_at.is_(None))
        return await self._queued(and_(c.queue == queue, or_(unsent, waiting, lapsed)), limit)

    async def with_lost_message(
        self, queue: str, silence: timedelta, limit: int, *, empty_at: datetime | None
    ) -> list[QueuedJob]:
        """Jobs whose message is lost: it was sent before the queue was empty, or before a delivered one."""
        c, now = self._jobs.c, func.clock_timestamp()
        # With two messages it is unknown which one was delivered, so that time proves nothing.
        taken = or_(c.state == "done", and_(c.state == "running", c.lease_until >= now))
        # A message of the usual priority or a lower one is delivered after all of the usual or a higher one
        # that were sent before.
        once = and_(c.queue == queue, taken, ~c.resent, c.priority <= 0)
        delivered = select(func.max(c.published_at)).where(once).scalar_subquery()
        before_delivered = and_(c.priority >= 0, c.published_at < delivered - silence)
        before_empty = and_(c.published_at < literal(empty_at, TIME), c.published_at < now - silence)
        waits = or_(
            and_(c.state == "waiting", c.available_at <= now), and_(c.state == "running", c.lease_until < now)
        )
        return await self._queued(and_(c.queue == queue, waits, or_(before_empty, before_delivered)), limit)

    async def _queued(self, where: Any, limit: int) -> list[QueuedJob]:
        c = self._jobs.c
        order = (c.priority.desc(), c.available_at)
        chosen = select(c.id, c.kind, c.queue, c.priority).where(where).order_by(*order).limit(limit)
        async with self._engine.connect() as sql:
            return [QueuedJob(*row) for row in await sql.execute(chosen)]

    def _chosen(self, held: Sequence[HeldJob]) -> Any:
        """The running jobs among these that have the same fence and that no other transaction has locked."""
        c = self._jobs.c
        given = _unnested("held", id=[job.id for job in held], fence=[job.fence for job in held])
        same = and_(c.id == given.c.id, c.fence == given.c.fence, c.state == "running")
        free = select(c.id).where(same).with_for_update(skip_locked=True, key_share=True, of=self._jobs)
        return free.cte("chosen")

    async def _end(self, job_id: str, fence: int, **values: Any) -> JobRow | None:
        due = {"callback_due_at": self._callback_due(), "callback_attempts": 0}
        ended = {"lease_until": None, "finished_at": func.clock_timestamp()}
        return await self._held(job_id, fence, **values, **ended, **due)

    async def _held(self, job_id: str, fence: int, /, **values: Any) -> JobRow | None:
        """Change a running job, if this fence holds it."""
        c = self._jobs.c
        return await self._changed(and_(c.id == job_id, c.fence == fence, c.state == "running"), **values)

    async def _changed(self, where: Any, **values: Any) -> JobRow | None:
        statement = update(self._jobs).where(where).values(**values).returning(*self._columns)
        found = await self._one(statement)
        return None if found is None else read_row(found)

    async def _one(self, statement: Any) -> Any:
        async with self._engine.connect() as sql:
            done = await sql.execute(statement)
            return done.first() if done.returns_rows else None


def claim_values(c: Any, worker: str, lease: timedelta) -> dict[str, Any]:
    """What a claim changes in a row: an attempt begins, with a fence and a lease of its own."""
    now = func.clock_timestamp()
    return {
        "state": "running",
        "fence": c.fence + 1,
        "attempts": c.attempts + 1,
        "worker": worker,
        "lease_until": now + lease,
        "started_at": func.coalesce(c.started_at, now),
    }


def _unnested(name: str, **columns: list[Any]) -> Any:
    """Lists of the same length as a table."""
    types = {"fence": BigInteger}
    arrays = [literal(values, ARRAY(types.get(key, Text))) for key, values in columns.items()]
    return func.unnest(*arrays).table_valued(*columns, name=name).render_derived()
