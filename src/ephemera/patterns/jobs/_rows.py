"""The tables of jobs in PostgreSQL, and every statement that reads or changes them.

The tables are part of the application's own metadata if it passes one, so that its migrations include them.
Each change of a row is one statement, guarded by state and fence: one that finds another fence or another
state changes no row and reports it. Nothing is read first and written later. All times come from the database
(`clock_timestamp`), never from a worker. `fence` grows with every claim, cancellation and retry; every write
names the fence it holds, and an older one changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    false,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

JOB_STATES = ("waiting", "running", "done", "failed", "cancelled", "dead")
"""A `failed` job gave up by itself (`JobFailed`); a `dead` one used up its attempts."""
OPEN_STATES = ("waiting", "running")

DATABASE_ERRORS = (OperationalError, InterfaceError)
"""What SQLAlchemy raises while the database is unavailable."""

_TIME = DateTime(timezone=True)


class JobTables(NamedTuple):
    """The tables of one declaration."""

    jobs: Table
    steps: Table


def job_tables(metadata: MetaData, name: str) -> JobTables:
    """Declare the tables `name` and `name_steps`."""
    now = func.clock_timestamp()
    jobs = Table(
        name,
        metadata,
        Column("id", Text, primary_key=True),
        Column("kind", Text, nullable=False),
        Column("queue", Text, nullable=False),
        Column("arguments", JSONB, nullable=False),
        Column("state", Text, nullable=False, server_default="waiting"),
        Column("attempts", Integer, nullable=False, server_default="0"),
        Column("fence", BigInteger, nullable=False, server_default="0"),
        Column("worker", Text, comment="the worker that ran it last: host:process"),
        Column("lease_until", _TIME, comment="a running job may be taken over after this"),
        Column("step", Text, comment="the last step that was recorded"),
        Column("steps", Integer, nullable=False, server_default="0", comment="how many were recorded"),
        Column("error", Text, comment="of the last attempt"),
        Column("result", JSONB),
        Column("available_at", _TIME, nullable=False, server_default=now, comment="not run before this"),
        Column("published_at", _TIME, comment="when its last message was put in the queue"),
        Column("resent", Boolean, nullable=False, server_default=false(), comment="more than one message"),
        Column("created_at", _TIME, nullable=False, server_default=now),
        Column("started_at", _TIME, comment="of its first attempt"),
        Column("finished_at", _TIME),
        CheckConstraint(f"state IN {JOB_STATES}", name=f"{name}_state"),
    )
    # Leases are in no index, so that their renewal touches the row's page alone.
    Index(f"{name}_open", jobs.c.queue, jobs.c.available_at, postgresql_where=jobs.c.state.in_(OPEN_STATES))
    Index(f"{name}_published", jobs.c.queue, jobs.c.published_at)
    Index(f"{name}_listed", jobs.c.created_at)
    Index(f"{name}_finished", jobs.c.finished_at)
    steps = Table(
        f"{name}_steps",
        metadata,
        Column("job_id", Text, ForeignKey(jobs.c.id, ondelete="CASCADE"), primary_key=True),
        Column("name", Text, primary_key=True),
        Column("result", Text, nullable=False, comment="JSON"),
        Column("fence", BigInteger, nullable=False, comment="of the attempt that ran it"),
        Column("done_at", _TIME, nullable=False, server_default=now),
    )
    return JobTables(jobs, steps)


JobState = Literal["waiting", "running", "done", "failed", "cancelled", "dead"]


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is in SQL."""

    id: str
    kind: str
    queue: str
    arguments: dict[str, Any]
    state: JobState
    attempts: int
    fence: int
    """Grows with every claim, cancellation and retry."""
    worker: str | None
    """The worker that ran it last, as host:process."""
    lease_until: datetime | None
    """When another worker may take over a running job."""
    step: str | None
    """The step recorded last."""
    steps: int
    """How many steps were recorded."""
    error: str | None
    """Of the last attempt."""
    result: Any
    available_at: datetime
    published_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def ended(self) -> bool:
        """Whether it is done, failed, cancelled or dead; only a retry changes it then."""
        return self.state not in OPEN_STATES


class QueuedJob(NamedTuple):
    """A job whose message is due: all that its message needs."""

    id: str
    kind: str
    queue: str


class JobRows:
    """The changes of jobs in one database: single statements that commit at once."""

    def __init__(self, tables: JobTables, engine: AsyncEngine) -> None:
        self._jobs, self._steps = tables
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._columns = row_columns(tables)

    async def add(self, sql: AsyncConnection | None, values: dict[str, Any], *, published: bool) -> None:
        """Write a new row, in the caller's transaction if there is one."""
        statement = insert(self._jobs).values(
            **values, published_at=func.clock_timestamp() if published else None
        )
        if sql is None:
            await self._one(statement)
        else:
            await sql.execute(statement)

    async def claim(self, job_id: str, worker: str, lease: timedelta) -> JobRow | None:
        """Claim a job that waits, or whose worker is gone; None if it cannot be claimed."""
        c, now = self._jobs.c, func.clock_timestamp()
        free = or_(
            and_(c.state == "waiting", c.available_at <= now), and_(c.state == "running", c.lease_until < now)
        )
        return await self._changed(
            and_(c.id == job_id, free),
            state="running",
            fence=c.fence + 1,
            attempts=c.attempts + 1,
            worker=worker,
            lease_until=now + lease,
            started_at=func.coalesce(c.started_at, now),
        )

    async def renew(self, job_id: str, fence: int, lease: timedelta) -> bool:
        """Hold a job for another lease; False if this fence no longer holds it."""
        c = self._jobs.c
        statement = (
            update(self._jobs)
            .where(c.id == job_id, c.fence == fence, c.state == "running")
            .values(lease_until=func.clock_timestamp() + lease)
            .returning(c.id)
        )
        return await self._one(statement) is not None

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

    async def complete(self, job_id: str, fence: int, result: Any) -> JobRow | None:
        """End a job as `done`."""
        return await self._end(job_id, fence, state="done", result=result, error=None)

    async def fail(self, job_id: str, fence: int, state: JobState, error: str) -> JobRow | None:
        """End a job as `failed` or `dead`, with the reason."""
        return await self._end(job_id, fence, state=state, error=error)

    async def reschedule(self, job_id: str, fence: int, error: str, delay: timedelta) -> JobRow | None:
        """Schedule the next attempt."""
        available = func.clock_timestamp() + delay
        return await self._held(
            job_id, fence, state="waiting", error=error, lease_until=None, available_at=available
        )

    async def release(self, job_id: str, fence: int) -> JobRow | None:
        """Let another worker continue at once; this attempt does not count."""
        c, now = self._jobs.c, func.clock_timestamp()
        values = {"state": "waiting", "attempts": c.attempts - 1, "lease_until": None}
        return await self._held(job_id, fence, **values, available_at=now, published_at=now, resent=True)

    async def cancel(self, job_id: str) -> JobRow | None:
        """End a job that has not ended; from now on its worker holds an outdated fence."""
        c = self._jobs.c
        return await self._changed(
            and_(c.id == job_id, c.state.in_(OPEN_STATES)),
            state="cancelled",
            fence=c.fence + 1,
            lease_until=None,
            finished_at=func.clock_timestamp(),
        )

    async def retry(self, job_id: str) -> JobRow | None:
        """Let a job that ended without success continue from its last step, with all its attempts left."""
        c, now = self._jobs.c, func.clock_timestamp()
        return await self._changed(
            and_(c.id == job_id, c.state.in_(("failed", "dead", "cancelled"))),
            state="waiting",
            attempts=0,
            fence=c.fence + 1,
            finished_at=None,
            available_at=now,
            published_at=now,
            resent=True,
        )

    async def mark_unpublished(self, job_ids: Sequence[str]) -> None:
        """Note that messages could not be sent, so that the reaper sends them."""
        c = self._jobs.c
        await self._one(update(self._jobs).where(c.id.in_(job_ids)).values(published_at=None))

    async def mark_published(self, job_ids: Sequence[str]) -> None:
        """Note that messages were sent just now."""
        c = self._jobs.c
        await self._one(
            update(self._jobs)
            .where(c.id.in_(job_ids))
            .values(published_at=func.clock_timestamp(), resent=c.published_at.is_not(None))
        )

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
        self, queue: str, silence: timedelta, limit: int, *, queue_is_empty: bool
    ) -> list[QueuedJob]:
        """Jobs whose message is lost: the queue is empty, or a message sent later was delivered before it."""
        c, now = self._jobs.c, func.clock_timestamp()
        bound: Any = now
        if not queue_is_empty:
            # With two messages it is unknown which one was delivered, so that time proves nothing.
            taken = or_(c.state == "done", and_(c.state == "running", c.lease_until >= now))
            once = and_(c.queue == queue, taken, ~c.resent)
            bound = select(func.max(c.published_at)).where(once).scalar_subquery()
        waits = or_(
            and_(c.state == "waiting", c.available_at <= now), and_(c.state == "running", c.lease_until < now)
        )
        return await self._queued(and_(c.queue == queue, waits, c.published_at < bound - silence), limit)

    async def _queued(self, where: Any, limit: int) -> list[QueuedJob]:
        c = self._jobs.c
        chosen = select(c.id, c.kind, c.queue).where(where).order_by(c.available_at).limit(limit)
        async with self._engine.connect() as sql:
            return [QueuedJob(*row) for row in await sql.execute(chosen)]

    async def _end(self, job_id: str, fence: int, **values: Any) -> JobRow | None:
        return await self._held(job_id, fence, **values, lease_until=None, finished_at=func.clock_timestamp())

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


def row_columns(tables: JobTables) -> list[Column[Any]]:
    """The columns of a `JobRow`, to select or to return."""
    return [tables.jobs.c[name] for name in JobRow.__struct_fields__]


def read_row(found: Any) -> JobRow:
    """A `JobRow` from a row of SQLAlchemy's."""
    return JobRow(**found._mapping)
