"""What the planner asks of PostgreSQL, a method a question; every one is bounded, and served by an index.

Novelty is counted here as everywhere: the sum of `current_seq - last_seq` over a user's subscriptions. A
subscription without a high-water mark, which `subscribe` never leaves, counts from the window's start.
Moments go in and out as milliseconds since 1970, 0 for never.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.planner._columns import among, interval, moment, ms
from ephemera.patterns.planner._columns import now as server_time
from ephemera.patterns.planner._plans import Facts, Plan

if TYPE_CHECKING:
    from ephemera.patterns.planner._declaration import Planner

_FETCHED = 5000  # users that one read of a cursor brings
_EXAMINED_ANEW = 10_000  # milliseconds by which a commit may be later than its insight's time


class UserRow(NamedTuple):
    """A user as SQL knows them."""

    facts: Facts
    cluster_version: int


class Truth:
    """The questions, on one engine."""

    def __init__(self, declared: Planner, engine: AsyncEngine) -> None:
        self.tables = tables = declared.tables
        self.engine = engine
        self._plans = declared.plans
        self._touch_every = declared.touch_every
        self._window = interval(declared.window)
        self._users = tables.user_stats
        # The high-water mark, or the seq before the window's first insight.
        self.high_water = sa.func.coalesce(
            tables.user_cluster_hwm.c.last_seq, self.window_start(tables.channels)
        )

    def window_start(self, channel: Any) -> Any:
        """The seq before the first insight of a channel that is in the window."""
        insights = self.tables.insights
        first = (
            sa.select(sa.func.min(insights.c.seq) - 1)
            .where(insights.c.channel_id == channel.c.channel_id)
            .where(insights.c.ts >= server_time() - self._window)
            .correlate(channel)
            .scalar_subquery()
        )
        return sa.func.coalesce(first, channel.c.current_seq)

    async def rechecks(self, now: int, most: int) -> list[str]:
        """Users who are to be looked at by now, first those who wait longest."""
        due = self._users.c.recheck_at
        query = sa.select(self._users.c.user_id).where(due <= moment(now)).order_by(due).limit(most)
        return await self._column(query)

    async def overdue(self, now: int, most: int) -> list[str]:
        """Users whose plan's time is over, who were active, and who wait for nothing."""
        users: list[str] = []
        async with self.engine.connect() as sql:
            for name, plan in self._plans.items():
                if most > len(users):
                    query = self._overdue(name, plan, now).limit(most - len(users))
                    users += (await sql.execute(query)).scalars()
        return users

    def _overdue(self, name: str, plan: Plan, now: int) -> sa.Select[str]:
        c = self._users.c
        clustered = c.last_clustered_at
        # Redis hears of every touch, SQL a little later.
        active = moment(now - plan.active_within - self._touch_every)
        return (
            sa.select(c.user_id)
            .where(c.plan == name, clustered.is_(None) | (clustered <= moment(now - plan.every)))
            .where(c.last_active_at >= active, *self._waits_for_nothing(now))
            .order_by(clustered.nulls_first())
        )

    def _waits_for_nothing(self, now: int) -> tuple[Any, ...]:
        c = self._users.c
        return (
            c.enqueued_until.is_(None) | (c.enqueued_until <= moment(now)),
            c.recheck_at.is_(None) | (c.recheck_at <= moment(now)),
        )

    async def seqs(self, channels: Sequence[str]) -> dict[str, int]:
        """The current seq of each of these channels that there is."""
        table = self.tables.channels
        query = sa.select(table.c.channel_id, table.c.current_seq).where(among(table.c.channel_id, channels))
        async with self.engine.connect() as sql:
            return dict((await sql.execute(query)).all())

    async def dirty_since(self, since: int, most: int) -> dict[str, int]:
        """Channels with an insight since a moment, oldest first, and when their last one came.

        A transaction may commit after a later one: the last seconds before the moment are looked at anew.
        """
        table = self.tables.channels
        when = table.c.last_insight_ts
        # Rounded up, so that going on after a channel's moment does not find the channel itself.
        query = sa.select(table.c.channel_id, ms(when, sa.func.ceil))
        overlap = query.where(when > moment(since - _EXAMINED_ANEW), when <= moment(since))
        newer = query.where(when > moment(since))
        async with self.engine.connect() as sql:
            late = await sql.execute(overlap.order_by(when.desc()).limit(most))
            found: dict[str, int] = dict(late.all())
            found.update((await sql.execute(newer.order_by(when, table.c.channel_id).limit(most))).all())
        return found

    async def changed_since(self, since: int) -> AsyncGenerator[list[tuple[str, int, int]], None]:
        """Channels with an insight since a moment: id, current seq, time of the last, in chunks."""
        table = self.tables.channels
        query = sa.select(table.c.channel_id, table.c.current_seq, ms(table.c.last_insight_ts)).where(
            table.c.last_insight_ts >= moment(since)
        )
        async with aclosing(self._streamed(query)) as parts:
            async for part in parts:
                yield [(channel, seq, at) for channel, seq, at in part]

    async def subscribers(self, channels: Sequence[str]) -> AsyncGenerator[dict[str, int], None]:
        """Users of these channels, each once with how many of them are theirs, in chunks."""
        table = self.tables.subscriptions
        query = (
            sa.select(table.c.user_id, sa.func.count())
            .where(among(table.c.channel_id, channels))
            .group_by(table.c.user_id)
        )
        async with aclosing(self._streamed(query)) as parts:
            async for part in parts:
                yield dict(part)

    async def users(self, users: Collection[str]) -> dict[str, UserRow]:
        """All that is known of these users."""
        theirs = among(self._users.c.user_id, users)
        return await self._facts(sa.select(self._users.c.user_id).where(theirs))

    async def due_subscribers(self, channels: Sequence[str], now: int, most: int) -> dict[str, UserRow]:
        """Subscribers of these channels who are active and due, and who wait for nothing, at most so many."""
        c = self._users.c
        theirs = self.tables.subscriptions
        subscribed = sa.select(theirs.c.user_id).where(among(theirs.c.channel_id, channels))
        active = sa.or_(
            *(
                (c.plan == name) & (c.last_active_at >= moment(now - plan.active_within))
                for name, plan in self._plans.items()
            )
        )
        wanted = (
            sa.select(c.user_id)
            .where(c.user_id.in_(subscribed), active, *self._waits_for_nothing(now))
        )  # fmt: skip
        return await self._facts(wanted, self._due(now), most)

    def _due(self, now: int) -> Any:
        """What `decide` says, for a row of `_facts`, but for the cooldown."""
        c = self._users.c
        pending = sa.literal_column("pending", sa.BigInteger)
        return sa.or_(
            *(
                (c.plan == name)
                & (
                    (pending >= plan.novelty)
                    | c.last_clustered_at.is_(None)
                    | (c.last_clustered_at <= moment(now - plan.every))
                )
                for name, plan in self._plans.items()
            )
        )

    async def _facts(
        self, wanted: sa.Select[str], only: Any = None, most: int | None = None
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
        moments = (c.last_clustered_at, c.last_active_at, c.last_enqueued_at)
        query = (
            sa.select(c.user_id, c.cluster_version, c.plan, pending, *map(ms, moments))
            .select_from(self._users.outerjoin(counted, counted.c.user_id == c.user_id))
            .where(c.user_id.in_(wanted))
            .limit(most)
        )
        if only is not None:
            query = query.where(only)
        async with self.engine.connect() as sql:
            rows = await sql.execute(query)
            return {user: UserRow(Facts(*facts), version) for user, version, *facts in rows}

    async def marks(self, users: Collection[str]) -> dict[str, dict[str, int]]:
        """The high-water marks of each of these users, by channel."""
        t = self.tables
        s, h = t.subscriptions, t.user_cluster_hwm
        # One row a user: a row a mark would be fifty times as many.
        query = (
            sa.select(s.c.user_id, sa.func.array_agg(s.c.channel_id), sa.func.array_agg(self.high_water))
            .select_from(
                s.join(t.channels, s.c.channel_id == t.channels.c.channel_id).outerjoin(
                    h, (h.c.user_id == s.c.user_id) & (h.c.channel_id == s.c.channel_id)
                )
            )
            .where(among(s.c.user_id, users))
            .group_by(s.c.user_id)
        )
        async with self.engine.connect() as sql:
            rows = await sql.execute(query)
            return {user: dict(zip(channels, seqs, strict=True)) for user, channels, seqs in rows}

    async def _streamed(self, query: Any) -> AsyncGenerator[Sequence[Any], None]:
        """The rows of a query in parts, however many there are; the cursor ends with its transaction."""
        compiled = query.compile(dialect=self.engine.dialect)
        async with self.engine.begin() as sql:
            await sql.exec_driver_sql(f"DECLARE planner NO SCROLL CURSOR FOR {compiled}", compiled.params)
            while part := (await sql.exec_driver_sql(f"FETCH {_FETCHED} FROM planner")).all():
                yield part

    async def _column(self, query: Any) -> list[str]:
        async with self.engine.connect() as sql:
            return list((await sql.execute(query)).scalars())
