"""The planner's own state in SQL: its progress, which users are enqueued, and when to recheck users."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.planner._tables import (
    PlannerTables,
    is_one_of,
    milliseconds_of,
    server_time,
    timestamp,
    to_timestamps,
    user_times,
)
from ephemera.patterns.planner._tick import ENQUEUED_MS, Tick


class PlannerProgress(NamedTuple):
    """The planner's row, and the server's time."""

    now: int
    examined_at: int
    swept_at: int


class PlannerRows:
    """The planner's row, and its columns of the users' rows."""

    def __init__(self, engine: AsyncEngine, tables: PlannerTables) -> None:
        self.engine = engine
        self._state = tables.planner_state
        self._users = tables.user_stats

    async def progress(self) -> PlannerProgress:
        """Return the planner's row, created if missing: everything is to be examined then."""
        table = self._state
        never = timestamp(0)
        create = insert(table).values(one=True, examined_at=never, swept_at=never).on_conflict_do_nothing()
        read = sa.select(
            milliseconds_of(server_time()),
            milliseconds_of(table.c.examined_at),
            milliseconds_of(table.c.swept_at),
        ).select_from(table)
        async with self.engine.begin() as sql:
            row = (await sql.execute(read)).first()
            if row is None:
                await sql.execute(create)
                row = (await sql.execute(read)).one()
        return PlannerProgress(*row)

    async def advance(self, *, examined_at: int = 0, swept_at: int = 0) -> None:
        """Advance the planner's row; it never moves back."""
        table = self._state
        forward = sa.update(table).values(
            examined_at=sa.func.greatest(table.c.examined_at, timestamp(examined_at)),
            swept_at=sa.func.greatest(table.c.swept_at, timestamp(swept_at)),
        )
        async with self.engine.begin() as sql:
            await sql.execute(forward)

    async def save_tick(self, tick: Tick) -> None:
        """Store what a tick did, in SQL because Redis may be down."""
        async with self.engine.begin() as sql:
            await sql.execute(sa.update(self._state).values(last_tick=msgspec.to_builtins(tick)))

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Mark users as enqueued and return those that were not."""
        c = self._users.c
        # In order, so that two planners wait for each other and never deadlock.
        free = (
            sa.select(c.user_id)
            .where(is_one_of(c.user_id, users))
            .where(c.enqueued_until.is_(None) | (c.enqueued_until <= timestamp(now)))
            .order_by(c.user_id)
            .with_for_update()
        )
        until = timestamp(now + ENQUEUED_MS)
        async with self.engine.begin() as sql:
            claimed = set((await sql.execute(free)).scalars())
            await sql.execute(
                sa.update(self._users)
                .where(is_one_of(c.user_id, claimed))
                .values(last_enqueued_at=timestamp(now), enqueued_until=until, recheck_at=until)
            )
        return claimed

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Undo claims: the users are free at once, and due for a recheck."""
        given = user_times(enqueued_before)
        before = sa.case((given.c.at > 0, to_timestamps(given.c.at)), else_=None)
        free = (
            sa.update(self._users)
            .where(self._users.c.user_id == given.c.user_id)
            .values(last_enqueued_at=before, enqueued_until=None, recheck_at=timestamp(now))
        )
        async with self.engine.begin() as sql:
            await sql.execute(free)

    async def schedule_rechecks(
        self, rechecks: Mapping[str, int], cleared: Collection[str], now: int
    ) -> None:
        """Recheck users at a time, or earlier if that was scheduled; cancel the rechecks of `cleared`."""
        c = self._users.c
        given = user_times(rechecks)
        later = (
            sa.update(self._users)
            .where(c.user_id == given.c.user_id)
            .where(
                c.recheck_at.is_(None)
                | (c.recheck_at > to_timestamps(given.c.at))
                | (c.recheck_at <= timestamp(now))
            )
            .values(recheck_at=to_timestamps(given.c.at))
        )
        # A user who returned in the meantime has a later time than this tick's, and keeps it.
        done = (
            sa.update(self._users)
            .where(is_one_of(c.user_id, cleared), c.recheck_at <= timestamp(now))
            .values(recheck_at=None)
        )
        async with self.engine.begin() as sql:
            if rechecks:
                await sql.execute(later)
            if cleared:
                await sql.execute(done)

    async def enqueued(self) -> int:
        """Return how many users are enqueued and not finished."""
        c = self._users.c
        query = sa.select(sa.func.count()).where(c.enqueued_until > server_time())
        async with self.engine.connect() as sql:
            return int((await sql.execute(query)).scalar_one())


async def try_lead(sql: AsyncConnection, name: str) -> bool:
    """Try to become the leader for this transaction: the SQL counterpart of the lock in Redis."""
    query = sa.select(sa.func.pg_try_advisory_xact_lock(sa.func.hashtext(name)))
    return bool((await sql.execute(query)).scalar_one())
