"""How a planner stands: where it reads from, what its last tick did, who is handed over, what is dirty.

Redis has the dirty channels, SQL all the rest: the last tick of whichever process, the users who were handed
over, and those to be looked at again. Each is read by an index and cut off, so a planner of millions costs no
more than a small one. Either side is None when it cannot be asked; neither stands for the other.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.keyspace import Store
from ephemera.patterns.planner import Planner, Tick

MOST = 10_000
"""Up to which users are counted."""


class HandedOver(msgspec.Struct, frozen=True):
    """A user whom a tick found due, and whom no worker is done with."""

    user: str
    plan: str
    pending: int
    """What was new when the user was clustered last."""
    since: datetime | None
    until: datetime
    """Looked at again then, if no worker ends before."""
    running: bool


class DirtyChannels(msgspec.Struct, frozen=True):
    """Channels that no tick has looked at since they were marked."""

    count: int
    oldest: tuple[tuple[str, float], ...]
    """Some of them, those marked longest ago first, with how many seconds ago that was."""


class PlannerTruth(msgspec.Struct, frozen=True):
    """What SQL knows of a planner."""

    now: datetime
    last_tick: Tick | None
    examined_at: datetime | None
    """Every insight that was committed before it has been looked at; None: none has."""
    handed_over: int
    """At most `MOST`, as are the others."""
    due_again: int
    """Users to be looked at by the next tick, whatever the channels do."""
    postponed: int
    """Users to be looked at later."""
    users: tuple[HandedOver, ...]
    """Some of those who are handed over, the last one first."""


async def dirty_channels(store: Store, planner: Planner, most: int = 50) -> DirtyChannels:
    """What Redis knows; one trip. `ConnectionFailed` when it is down."""
    client, key = store.client(planner.dirty.role), planner.dirty.key()
    clock, count, flat = await asyncio.gather(
        client.call("TIME"),
        client.call("ZCARD", key),
        store[planner.dirty].range(0, most - 1),
    )
    now = int(clock[0]) * 1_000_000 + int(clock[1])
    oldest = tuple((channel, max(0.0, (now - marked) / 1e6)) for channel, marked in flat)
    return DirtyChannels(count, oldest)


async def planner_truth(engine: AsyncEngine, planner: Planner, most: int = 100) -> PlannerTruth:
    """What SQL knows; five short statements."""
    tables, now = planner.tables, sa.func.clock_timestamp()
    c = tables.user_stats.c
    state = tables.planner_state.c
    own = sa.select(now, state.last_tick, state.examined_at).select_from(
        sa.select(sa.literal(1)).subquery().outerjoin(tables.planner_state, sa.true())
    )
    handed = (
        sa.select(
            c.user_id, c.plan, c.pending_insights_count, c.last_enqueued_at, c.enqueued_until,
            sa.func.coalesce(c.running_until > now, sa.false()),
        )
        .where(c.enqueued_until > now)
        .order_by(c.enqueued_until.desc(), c.user_id)
        .limit(most)
    )  # fmt: skip
    async with engine.connect() as sql:
        at, told, examined_at = (await sql.execute(own)).one()
        users = tuple(HandedOver(*row) for row in await sql.execute(handed))
        return PlannerTruth(
            now=at,
            last_tick=None if told is None else msgspec.convert(told, Tick, strict=False),
            examined_at=examined_at if examined_at and examined_at.timestamp() else None,
            handed_over=await _count(sql, c.enqueued_until > now),
            due_again=await _count(sql, c.recheck_at <= now),
            postponed=await _count(sql, c.recheck_at > now),
            users=users,
        )


async def _count(sql: AsyncConnection, where: sa.ColumnElement[bool]) -> int:
    some = sa.select(sa.literal(1)).where(where).limit(MOST).subquery()
    return int((await sql.execute(sa.select(sa.func.count()).select_from(some))).scalar_one())
