"""What may happen to a job's row: each change is one statement, guarded by state and fence.

A statement that finds another fence or another state changes no row and says so; nothing is read first and
written later. All times come from the database (`clock_timestamp`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec
from sqlalchemy import and_, func, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.jobs._tables import OPEN, Tables

SQL_TROUBLE = (OperationalError, InterfaceError)
"""What SQLAlchemy raises when the database is away, for now."""

State = Literal["waiting", "running", "done", "failed", "cancelled", "dead"]


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as SQL has it."""

    id: str
    kind: str
    queue: str
    arguments: dict[str, Any]
    state: State
    attempts: int
    fence: int
    worker: str | None
    lease_until: datetime | None
    step: str | None
    steps: int
    error: str | None
    result: Any
    available_at: datetime
    published_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it, unless it is retried."""
        return self.state not in OPEN


class Waiting(NamedTuple):
    """A job whose message is due."""

    id: str
    kind: str
    queue: str


class Rows:
    """The rows of one database, by single statements that commit at once."""

    def __init__(self, tables: Tables, engine: AsyncEngine) -> None:
        self._jobs, self._steps = tables
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._columns = [self._jobs.c[name] for name in JobRow.__struct_fields__]

    async def add(self, sql: AsyncConnection | None, values: dict[str, Any], *, published: bool) -> None:
        """Write a new row, in the caller's transaction if there is one."""
        statement = insert(self._jobs).values(
            **values, published_at=func.clock_timestamp() if published else None
        )
        if sql is None:
            await self._one(statement)
        else:
            await sql.execute(statement)

    async def get(self, job_id: str) -> JobRow | None:
        """A row."""
        return _row(await self._one(select(*self._columns).where(self._jobs.c.id == job_id)))

    async def claim(self, job_id: str, worker: str, lease: timedelta) -> JobRow | None:
        """Take a job that waits, or whose worker is gone; None when it is not to be had."""
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
        """Keep a job for another lease; False when it is no longer held by this fence."""
        c = self._jobs.c
        statement = (
            update(self._jobs)
            .where(c.id == job_id, c.fence == fence, c.state == "running")
            .values(lease_until=func.clock_timestamp() + lease)
            .returning(c.id)
        )
        return await self._one(statement) is not None

    async def raise_fence(self, job_id: str, fence: int, above: int) -> JobRow | None:
        """Give a job that is held a fence above another."""
        return await self._held(job_id, fence, fence=above + 1)

    async def steps(self, job_id: str) -> dict[str, bytes]:
        """The results of the steps that were recorded, as JSON."""
        s = self._steps.c
        async with self._engine.connect() as sql:
            found = await sql.execute(select(s.name, s.result).where(s.job_id == job_id))
            return {name: result.encode() for name, result in found}

    async def record(
        self, sql: AsyncConnection | None, job_id: str, fence: int, name: str, result: bytes
    ) -> bool:
        """Record a step, in the caller's transaction if there is one; False when the fence is not the job's.

        The same fence may record the same step again: it repeats a statement whose outcome it did not learn.
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

    async def finish(self, job_id: str, fence: int, result: Any) -> JobRow | None:
        """Done."""
        return await self._end(job_id, fence, state="done", result=result, error=None)

    async def give_up(self, job_id: str, fence: int, state: State, error: str) -> JobRow | None:
        """`failed` or `dead`, with its reason."""
        return await self._end(job_id, fence, state=state, error=error)

    async def again(self, job_id: str, fence: int, error: str, delay: timedelta) -> JobRow | None:
        """Let it wait for its next attempt."""
        available = func.clock_timestamp() + delay
        return await self._held(
            job_id, fence, state="waiting", error=error, lease_until=None, available_at=available
        )

    async def hand_back(self, job_id: str, fence: int) -> JobRow | None:
        """Let another worker go on at once; this attempt does not count."""
        c, now = self._jobs.c, func.clock_timestamp()
        values = {"state": "waiting", "attempts": c.attempts - 1, "lease_until": None}
        return await self._held(job_id, fence, **values, available_at=now, published_at=now, resent=True)

    async def cancel(self, job_id: str) -> JobRow | None:
        """End a job that has not ended; its worker's fence is the older one from here on."""
        c = self._jobs.c
        return await self._changed(
            and_(c.id == job_id, c.state.in_(OPEN)),
            state="cancelled",
            fence=c.fence + 1,
            lease_until=None,
            finished_at=func.clock_timestamp(),
        )

    async def retry(self, job_id: str) -> JobRow | None:
        """Let a job that ended without success go on from its last step, with all its attempts before it."""
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

    async def unpublish(self, job_ids: Sequence[str]) -> None:
        """Their messages could not be sent: the reaper shall."""
        c = self._jobs.c
        await self._one(update(self._jobs).where(c.id.in_(job_ids)).values(published_at=None))

    async def publish(self, job_ids: Sequence[str]) -> None:
        """Their messages were sent just now."""
        c = self._jobs.c
        await self._one(
            update(self._jobs)
            .where(c.id.in_(job_ids))
            .values(published_at=func.clock_timestamp(), resent=c.published_at.is_not(None))
        )

    async def due(self, queue: str, most: int) -> list[Waiting]:
        """Jobs that nobody was told of: never, or not since they became due or lost their worker."""
        c, now = self._jobs.c, func.clock_timestamp()
        waiting = and_(c.state == "waiting", c.available_at <= now, c.published_at < c.available_at)
        # Without a time: its message was taken, though whoever sent it heard that it could not be sent.
        untold = or_(c.published_at.is_(None), c.published_at < c.lease_until)
        lapsed = and_(c.state == "running", c.lease_until < now, untold)
        unsent = and_(c.state == "waiting", c.available_at <= now, c.published_at.is_(None))
        return await self._waiting(and_(c.queue == queue, or_(unsent, waiting, lapsed)), most)

    async def overdue(self, queue: str, silence: timedelta, most: int, *, empty: bool) -> list[Waiting]:
        """Jobs whose message is lost: the queue is empty, or what was put in it later was taken before."""
        c, now = self._jobs.c, func.clock_timestamp()
        bound: Any = now
        if not empty:
            # Of a job with two messages nobody knows which was taken: its time says nothing of the queue.
            taken = or_(c.state == "done", and_(c.state == "running", c.lease_until >= now))
            once = and_(c.queue == queue, taken, ~c.resent)
            bound = select(func.max(c.published_at)).where(once).scalar_subquery()
        waits = or_(
            and_(c.state == "waiting", c.available_at <= now), and_(c.state == "running", c.lease_until < now)
        )
        return await self._waiting(and_(c.queue == queue, waits, c.published_at < bound - silence), most)

    async def select(
        self,
        *,
        states: Sequence[str] = (),
        kind: str | None = None,
        most: int = 50,
        before: datetime | None = None,
    ) -> list[JobRow]:
        """The newest rows, of these states and this kind, created before a moment if one is given."""
        c = self._jobs.c
        chosen = select(*self._columns).order_by(c.created_at.desc()).limit(most)
        if states:
            chosen = chosen.where(c.state.in_(states))
        if kind is not None:
            chosen = chosen.where(c.kind == kind)
        if before is not None:
            chosen = chosen.where(c.created_at < before)
        async with self._engine.connect() as sql:
            return [_read(row) for row in await sql.execute(chosen)]

    async def _waiting(self, where: Any, most: int) -> list[Waiting]:
        c = self._jobs.c
        chosen = select(c.id, c.kind, c.queue).where(where).order_by(c.available_at).limit(most)
        async with self._engine.connect() as sql:
            return [Waiting(*row) for row in await sql.execute(chosen)]

    async def _end(self, job_id: str, fence: int, **values: Any) -> JobRow | None:
        return await self._held(job_id, fence, **values, lease_until=None, finished_at=func.clock_timestamp())

    async def _held(self, job_id: str, fence: int, /, **values: Any) -> JobRow | None:
        """Change a running job for who holds it."""
        c = self._jobs.c
        return await self._changed(and_(c.id == job_id, c.fence == fence, c.state == "running"), **values)

    async def _changed(self, where: Any, **values: Any) -> JobRow | None:
        return _row(
            await self._one(update(self._jobs).where(where).values(**values).returning(*self._columns))
        )

    async def _one(self, statement: Any) -> Any:
        async with self._engine.connect() as sql:
            done = await sql.execute(statement)
            return done.first() if done.returns_rows else None


def _row(found: Any) -> JobRow | None:
    return None if found is None else _read(found)


def _read(found: Any) -> JobRow:
    return JobRow(**found._mapping)
