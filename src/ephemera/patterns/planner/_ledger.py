"""What the planner itself writes to SQL: how far it came, whom it handed over, whom to look at again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.planner._columns import among, at, moment, ms, pairs
from ephemera.patterns.planner._tick import Tick

if TYPE_CHECKING:
    from ephemera.patterns.planner._declaration import Planner


class State(NamedTuple):
    """The planner's own row, and the server's time."""

    now: int
    examined_at: int
    swept_at: int


class Ledger:
    """The planner's own row, and its columns of the users' rows."""

    def __init__(self, declared: Planner, engine: AsyncEngine) -> None:
        self.engine = engine
        self._state = declared.tables.planner_state
        self._users = declared.tables.user_stats
        self._mark = declared.limits.mark

    async def state(self) -> State:
        """The planner's row, made when it is not there: everything is to be looked at then."""
        table = self._state
        never = moment(0)
        made = insert(table).values(one=True, examined_at=never, swept_at=never).on_conflict_do_nothing()
        read = sa.select(
            ms(sa.func.clock_timestamp()), ms(table.c.examined_at), ms(table.c.swept_at)
        ).select_from(table)
        async with self.engine.begin() as sql:
            row = (await sql.execute(read)).first()
            if row is None:
                await sql.execute(made)
                row = (await sql.execute(read)).one()
        return State(*row)

    async def move_state(self, *, examined_at: int = 0, swept_at: int = 0) -> None:
        """Move the planner's row forward, never back."""
        table = self._state
        forward = sa.update(table).values(
            examined_at=sa.func.greatest(table.c.examined_at, moment(examined_at)),
            swept_at=sa.func.greatest(table.c.swept_at, moment(swept_at)),
        )
        async with self.engine.begin() as sql:
            await sql.execute(forward)

    async def note(self, tick: Tick) -> None:
        """Keep what a tick did, for whoever looks at the planner: in SQL, as Redis may be what it lacks."""
        async with self.engine.begin() as sql:
            await sql.execute(sa.update(self._state).values(last_tick=msgspec.to_builtins(tick)))

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Mark users as handed over until the mark's end; those whom nobody had marked."""
        c = self._users.c
        # In order, so that two planners wait for each other instead of stopping each other.
        free = (
            sa.select(c.user_id)
            .where(among(c.user_id, users))
            .where(c.enqueued_until.is_(None) | (c.enqueued_until <= moment(now)))
            .order_by(c.user_id)
            .with_for_update()
        )
        until = moment(now + self._mark)
        async with self.engine.begin() as sql:
            claimed = set((await sql.execute(free)).scalars())
            await sql.execute(
                sa.update(self._users)
                .where(among(c.user_id, claimed))
                .values(last_enqueued_at=moment(now), enqueued_until=until, recheck_at=until)
            )
        return claimed

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Take claims back: the users are free at once, and to be looked at."""
        given = pairs(enqueued_before)
        before = sa.case((given.c.at > 0, at(given.c.at)), else_=None)
        free = (
            sa.update(self._users)
            .where(self._users.c.user_id == given.c.user_id)
            .values(last_enqueued_at=before, enqueued_until=None, recheck_at=moment(now))
        )
        async with self.engine.begin() as sql:
            await sql.execute(free)

    async def postpone(self, waits: Mapping[str, int], quiet: Collection[str], now: int) -> None:
        """Look at users again at a moment, unless sooner; and no more at the quiet."""
        c = self._users.c
        given = pairs(waits)
        later = (
            sa.update(self._users)
            .where(c.user_id == given.c.user_id)
            .where(c.recheck_at.is_(None) | (c.recheck_at > at(given.c.at)) | (c.recheck_at <= moment(now)))
            .values(recheck_at=at(given.c.at))
        )
        # One who came back meanwhile has a later moment than this tick's, and keeps it.
        done = (
            sa.update(self._users)
            .where(among(c.user_id, quiet), c.recheck_at <= moment(now))
            .values(recheck_at=None)
        )
        async with self.engine.begin() as sql:
            if waits:
                await sql.execute(later)
            if quiet:
                await sql.execute(done)

    async def handed_over(self) -> int:
        """How many users are handed over and not done with."""
        c = self._users.c
        query = sa.select(sa.func.count()).where(c.enqueued_until > sa.func.clock_timestamp())
        async with self.engine.connect() as sql:
            return int((await sql.execute(query)).scalar_one())


async def leads(sql: AsyncConnection, name: str) -> bool:
    """Whether this connection's transaction is the one that leads, as the leader's lock says in Redis."""
    query = sa.select(sa.func.pg_try_advisory_xact_lock(sa.func.hashtext(name)))
    return bool((await sql.execute(query)).scalar_one())
