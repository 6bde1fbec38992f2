"""The planner's queries to PostgreSQL, one method each; every one is bounded and served by an index.

Novelty is the sum of `current_seq - last_seq` over a user's subscriptions. A subscription without a
high-water mark, which `subscribe` never leaves, counts from the window's start. Times are milliseconds since
1970, 0 for never.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.planner._plans import Plan, UserFacts
from ephemera.patterns.planner._tables import (
    PlannerTables,
    interval,
    is_one_of,
    milliseconds_of,
    server_time,
    timestamp,
)

_FETCHED = 5000  # users that one read of a cursor returns
_COMMIT_DELAY = 10_000  # milliseconds by which a commit may be later than its insight's time


class UserRow(NamedTuple):
    """A user as SQL has them."""

    facts: UserFacts
    cluster_version: int


class Queries:
    """The queries, on one engine; `window` and `touch_every` are in milliseconds."""

    def __init__(
        self,
        engine: AsyncEngine,
        tables: PlannerTables,
        plans: Mapping[str, Plan],
        *,
        window: int,
        touch_every: int,
    ) -> None:
        self.tables = tables
        self.engine = engine
        self._plans = plans
        self._touch_every = touch_every
        self._window = interval(window)
        self._users = tables.user_stats
        # The high-water mark, or the seq before the window's first insight.
        self.high_water = sa.func.coalesce(
            tables.user_cluster_hwm.c.last_seq, self.window_start(tables.channels)
        )

    def window_start(self, channel: Any) -> Any:
        """Return the seq before the first insight of a channel in the window."""
        insights = self.tables.insights
        first = (
            sa.select(sa.func.min(insights.c.seq) - 1)
            .where(insights.c.channel_id == channel.c.channel_id)
            .where(insights.c.ts >= server_time() - self._window)
            .correlate(channel)
            .scalar_subquery()
        )
        return sa.func.coalesce(first, channel.c.current_seq)

    async def rechecks(self, now: int, limit: int) -> list[str]:
        """Return users whose recheck is due, the longest overdue first."""
        due = self._users.c.recheck_at
        query = sa.select(self._users.c.user_id).where(due <= timestamp(now)).order_by(due).limit(limit)
        return await self._column(query)

    async def overdue(self, now: int, limit: int) -> list[str]:
        """Return active users whose plan's time has passed and who are neither enqueued nor postponed."""
        users: list[str] = []
        async with self.engine.connect() as sql:
            for name, plan in self._plans.items():
                if limit > len(users):
                    query = self._overdue(name, plan, now).limit(limit - len(users))
                    users += (await sql.execute(query)).scalars()
        return users

    def _overdue(self, name: str, plan: Plan, now: int) -> sa.Select[str]:
        c = self._users.c
        clustered = c.last_clustered_at
        # Every touch is in Redis at once, and in SQL a little later.
        active = timestamp(now - plan.active_within - self._touch_every)
        return (
            sa.select(c.user_id)
            .where(c.plan == name, clustered.is_(None) | (clustered <= timestamp(now - plan.every)))
            .where(c.last_active_at >= active, *self._is_free(now))
            .order_by(clustered.nulls_first())
        )

    def _is_free(self, now: int) -> tuple[Any, ...]:
        c = self._users.c
        return (
            c.enqueued_until.is_(None) | (c.enqueued_until <= timestamp(now)),
            c.recheck_at.is_(None) | (c.recheck_at <= timestamp(now)),
        )

    async def seqs(self, channels: Sequence[str]) -> dict[str, int]:
        """Return the current seq of each of these channels that exists."""
        table = self.tables.channels
        wanted = is_one_of(table.c.channel_id, channels)
        query = sa.select(table.c.channel_id, table.c.current_seq).where(wanted)
        async with self.engine.connect() as sql:
            return dict((await sql.execute(query)).all())

    async def dirty_since(self, since: int, limit: int) -> dict[str, int]:
        """Return channels with an insight since a time, oldest first, and the time of their last one.

        A transaction may commit after a later one, so the last seconds before that time are included again.
        """
        table = self.tables.channels
        when = table.c.last_insight_ts
        # Rounded up, so that continuing after a channel's time does not find the channel again.
        query = sa.select(table.c.channel_id, milliseconds_of(when, sa.func.ceil))
        overlap = query.where(when > timestamp(since - _COMMIT_DELAY), when <= timestamp(since))
        newer = query.where(when > timestamp(since))
        async with self.engine.connect() as sql:
            late = await sql.execute(overlap.order_by(when.desc()).limit(limit))
            found: dict[str, int] = dict(late.all())
            found.update((await sql.execute(newer.order_by(when, table.c.channel_id).limit(limit))).all())
        return found

    async def changed_since(self, since: int) -> AsyncGenerator[list[tuple[str, int, int]], None]:
        """Stream channels with an insight since a time: id, current seq, time of the last one."""
        table = self.tables.channels
        when = table.c.last_insight_ts
        query = sa.select(table.c.channel_id, table.c.current_seq, milliseconds_of(when)).where(
            when >= timestamp(since)
        )
        async with aclosing(self._streamed(query)) as parts:
            async for part in parts:
                yield [(channel, seq, at) for channel, seq, at in part]

    async def subscribers(self, channels: Sequence[str]) -> AsyncGenerator[dict[str, int], None]:
        """Stream the subscribers of these channels, each with the number of channels subscribed to."""
        table = self.tables.subscriptions
        query = (
            sa.select(table.c.user_id, sa.func.count())
            .where(is_one_of(table.c.channel_id, channels))
            .group_by(table.c.user_id)
        )
        async with aclosing(self._streamed(query)) as parts:
            async for part in parts:
                yield dict(part)

    async def users(self, users: Collection[str]) -> dict[str, UserRow]:
        """Return the facts of these users."""
        theirs = is_one_of(self._users.c.user_id, users)
        return await self._facts(sa.select(self._users.c.user_id).where(theirs))

    async def due_subscribers(self, channels: Sequence[str], now: int, limit: int) -> dict[str, UserRow]:
        """Return subscribers of these channels who are active, due, and neither enqueued nor postponed."""
        c = self._users.c
        theirs = self.tables.subscriptions
        subscribed = sa.select(theirs.c.user_id).where(is_one_of(theirs.c.channel_id, channels))
        active = sa.or_(
            *(
                (c.plan == name) & (c.last_active_at >= timestamp(now - plan.active_within))
                for name, plan in self._plans.items()
            )
        )
        wanted = (
            sa.select(c.user_id)
            .where(c.user_id.in_(subscribed), active, *self._is_free(now))
        )  # fmt: skip
        return await self._facts(wanted, self._due(now), limit)

    def _due(self, now: int) -> Any:
        """Return what `decide` says, for a row of `_facts`, except for the cooldown."""
        c = self._users.c
        pending = sa.literal_column("pending", sa.BigInteger)
        return sa.or_(
            *(
                (c.plan == name)
                & (
                    (pending >= plan.novelty)
                    | c.last_clustered_at.is_(None)
                    | (c.last_clustered_at <= timestamp(now - plan.every))
                )
                for name, plan in self._plans.items()
            )
        )

    async def _facts(
        self, wanted: sa.Select[str], only: Any = None, limit: int | None = None
    ) -> dict[str, UserRow]:
        c, t = self._users.c, self.tables
        s, h = t.subscriptions, t.user_cluster_hwm
        counted = (
            sa.select(
                s.c.user_id,
                sa.func.sum(sa.func.greatest(t.channels.c.current_seq - self.high_water, 0)).label("pending"),
            )
            .select_from(
                s.join(t.channels, s.c.channel_id == t.channels.c.channel_id).outerjoin(
                    h, (h.c.user_id == s.c.user_id) & (h.c.channel_id == s.c.channel_id)
                )
            )
            .where(s.c.user_id.in_(wanted))
            .group_by(s.c.user_id)
            .subquery()
        )
        pending = sa.func.coalesce(counted.c.pending, 0).cast(sa.BigInteger)
        times = (c.last_clustered_at, c.last_active_at, c.last_enqueued_at)
        query = (
            sa.select(c.user_id, c.cluster_version, c.plan, pending, *map(milliseconds_of, times))
            .select_from(self._users.outerjoin(counted, counted.c.user_id == c.user_id))
            .where(c.user_id.in_(wanted))
            .limit(limit)
        )
        if only is not None:
            query = query.where(only)
        async with self.engine.connect() as sql:
            rows = await sql.execute(query)
            return {user: UserRow(UserFacts(*facts), version) for user, version, *facts in rows}

    async def marks(self, users: Collection[str]) -> dict[str, dict[str, int]]:
        """Return the high-water marks of each of these users, by channel."""
        t = self.tables
        s, h = t.subscriptions, t.user_cluster_hwm
        # One row per user: one per mark would be fifty times as many.
        query = (
            sa.select(s.c.user_id, sa.func.array_agg(s.c.channel_id), sa.func.array_agg(self.high_water))
            .select_from(
                s.join(t.channels, s.c.channel_id == t.channels.c.channel_id).outerjoin(
                    h, (h.c.user_id == s.c.user_id) & (h.c.channel_id == s.c.channel_id)
                )
            )
            .where(is_one_of(s.c.user_id, users))
            .group_by(s.c.user_id)
        )
        async with self.engine.connect() as sql:
            rows = await sql.execute(query)
            return {user: dict(zip(channels, seqs, strict=True)) for user, channels, seqs in rows}

    async def _streamed(self, query: Any) -> AsyncGenerator[Sequence[Any], None]:
        """Stream the rows of a query in parts; the cursor ends with its transaction."""
        compiled = query.compile(dialect=self.engine.dialect)
        async with self.engine.begin() as sql:
            await sql.exec_driver_sql(f"DECLARE planner NO SCROLL CURSOR FOR {compiled}", compiled.params)
            while part := (await sql.exec_driver_sql(f"FETCH {_FETCHED} FROM planner")).all():
                yield part

    async def _column(self, query: Any) -> list[str]:
        async with self.engine.connect() as sql:
            return list((await sql.execute(query)).scalars())
