"""The state of a planner: its last tick, the users enqueued for a worker, and the dirty channels.

Redis has the dirty channels, SQL everything else: the last tick of any process, enqueued users, and users to
be checked again. Each query uses an index and a limit, so a planner with millions of users costs no more than
a small one.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.keyspace import Store
from ephemera.patterns.planner import NotDueUser, Planner, Tick

MAX_COUNTED_USERS = 10_000
"""Users are counted up to this number."""


class EnqueuedUser(msgspec.Struct, frozen=True):
    """A user that a tick found due, and that no worker has finished."""

    user: str
    plan: str
    since: datetime | None
    until: datetime
    """Checked again then, if no worker finishes before."""
    running: bool


class DirtyChannels(msgspec.Struct, frozen=True):
    """Channels that no tick has processed since they were marked."""

    count: int
    oldest: tuple[tuple[str, float], ...]
    """The channels marked longest ago, each with its age in seconds."""


class PlannerState(msgspec.Struct, frozen=True):
    """The state of a planner in SQL."""

    now: datetime
    last_tick: Tick | None
    examined_at: datetime | None
    """Every insight committed before it was processed; None: none was."""
    enqueued: int
    """At most `MAX_COUNTED_USERS`, like the next two."""
    due: int
    """Users to be checked by the next tick, whatever the channels do."""
    postponed: int
    """Users to be checked later, without those that are enqueued now."""
    users: tuple[EnqueuedUser, ...]
    """The users enqueued most recently."""
    not_due: tuple[NotDueUser, ...]
    """Users that the last ticks found not due, the latest first, without those in `users`."""


async def dirty_channels(store: Store, planner: Planner, limit: int = 50) -> DirtyChannels:
    """The dirty channels in Redis, in one round trip; `ConnectionFailed` when it is down."""
    client, key = store.client(planner.keys.dirty.role), planner.keys.dirty.key()
    clock, count, flat = await asyncio.gather(
        client.call("TIME"),
        client.call("ZCARD", key),
        store[planner.keys.dirty].range(0, limit - 1),
    )
    now = int(clock[0]) * 1_000_000 + int(clock[1])
    oldest = tuple((channel, max(0.0, (now - marked) / 1e6)) for channel, marked in flat)
    return DirtyChannels(count, oldest)


async def planner_state(engine: AsyncEngine, planner: Planner, limit: int = 100) -> PlannerState:
    """Read a planner's state from SQL, in five short statements."""
    tables, now = planner.tables, sa.func.clock_timestamp()
    c = tables.user_stats.c
    state = tables.planner_state.c
    own = sa.select(now, state.last_tick, state.examined_at).select_from(
        sa.select(sa.literal(1)).subquery().outerjoin(tables.planner_state, sa.true())
    )
    # An enqueued user's row has a recheck, too, in case that no worker finishes.
    waiting = c.enqueued_until.is_(None) | (c.enqueued_until <= now)
    enqueued = (
        sa.select(
            c.user_id, c.plan, c.last_enqueued_at, c.enqueued_until,
            sa.func.coalesce(c.running_until > now, sa.false()),
        )
        .where(c.enqueued_until > now)
        .order_by(c.enqueued_until.desc(), c.user_id)
        .limit(limit)
    )  # fmt: skip
    async with engine.connect() as sql:
        at, last_tick, examined_at = (await sql.execute(own)).one()
        users = tuple(EnqueuedUser(*row) for row in await sql.execute(enqueued))
        return PlannerState(
            now=at,
            last_tick=None if last_tick is None else msgspec.convert(last_tick, Tick, strict=False),
            examined_at=examined_at if examined_at and examined_at.timestamp() else None,
            enqueued=await _count(sql, c.enqueued_until > now),
            due=await _count(sql, c.recheck_at <= now),
            postponed=await _count(sql, (c.recheck_at > now) & waiting),
            users=users,
            not_due=_not_due(last_tick or {}, {each.user for each in users}),
        )


def _not_due(last_tick: dict[str, Any], enqueued: set[str]) -> tuple[NotDueUser, ...]:
    found = msgspec.convert(last_tick.get("not_due", ()), list[NotDueUser])
    return tuple(each for each in found if each.user_id not in enqueued)


async def _count(sql: AsyncConnection, where: sa.ColumnElement[bool]) -> int:
    some = sa.select(sa.literal(1)).where(where).limit(MAX_COUNTED_USERS).subquery()
    return int((await sql.execute(sa.select(sa.func.count()).select_from(some))).scalar_one())
