"""The planner's queries to PostgreSQL, and its own state there; every one is bounded and served by an index.

Novelty is the sum of `current_seq - last_seq` over a user's subscriptions. A subscription without a
high-water mark, which `subscribe` never leaves, counts from the window's start. Times are milliseconds since
1970, 0 for never.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.planner._tables import (
    PlannerTables,
    interval,
    is_one_of,
    milliseconds_of,
    server_time,
    timestamp,
    to_timestamps,
    user_times,
)
from ephemera.patterns.planner._tick import ENQUEUED_MS, MAX_NOT_DUE, NotDueUser, Plan, Tick, UserFacts

_FETCHED = 5000  # users that one read of a cursor returns
_COMMIT_DELAY = 10_000  # milliseconds by which a commit may be later than its insight's time


class UserRow(NamedTuple):
    """A user as SQL has them."""

    facts: UserFacts
    cluster_version: int


class Queries:
    """The queries, on one engine; `window` and `touch_every` are in milliseconds.

    Where plans differ in priority, users of a higher one come first.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        tables: PlannerTables,
        plans: Mapping[str, Plan],
        *,
        window: int,
        touch_every: int,
        max_attempts: int,
    ) -> None:
        self.tables = tables
        self.engine = engine
        self.max_attempts = max_attempts
        self._plans = plans
        self._touch_every = touch_every
        self._window = interval(window)
        self._users = tables.user_stats
        priorities = {name: plan.priority for name, plan in plans.items()}
        self._by_priority: list[Any] = []  # ORDER BY terms, if plans differ in priority
        if len(set(priorities.values())) > 1:
            self._by_priority = [sa.case(priorities, value=self._users.c.plan, else_=0).desc()]
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
        query = sa.select(self._users.c.user_id).where(due <= timestamp(now), self._may_run(now))
        return await self._column(query.order_by(*self._by_priority, due).limit(limit))

    def _may_run(self, now: int) -> Any:
        return may_run(self._users, timestamp(now), self.max_attempts)

    async def overdue(self, now: int, limit: int) -> list[str]:
        """Return active users whose plan's time has passed and who are neither enqueued nor postponed."""
        users: list[str] = []
        plans = sorted(self._plans.items(), key=lambda item: -item[1].priority)
        async with self.engine.connect() as sql:
            for _, equal in groupby(plans, key=lambda item: item[1].priority):
                room = limit - len(users)
                found: list[tuple[int, str]] = []
                for name, plan in equal if room else ():
                    rows = await sql.execute(self._overdue(name, plan, now).limit(room))
                    found += ((clustered_at + plan.every, user) for user, clustered_at in rows)
                users += [user for _, user in sorted(found)[:room]]  # the longest overdue of all of them
        return users

    def _overdue(self, name: str, plan: Plan, now: int) -> sa.Select[str, int]:
        c = self._users.c
        clustered = c.last_clustered_at
        # Every touch is in Redis at once, and in SQL a little later.
        active = timestamp(now - plan.active_within - self._touch_every)
        return (
            sa.select(c.user_id, milliseconds_of(clustered))
            .where(c.plan == name, clustered.is_(None) | (clustered <= timestamp(now - plan.every)))
            .where(c.last_active_at >= active, *self._is_free(now))
            .order_by(clustered.nulls_first())
        )

    def _is_free(self, now: int) -> tuple[Any, ...]:
        c = self._users.c
        return (
            c.enqueued_until.is_(None) | (c.enqueued_until <= timestamp(now)),
            c.recheck_at.is_(None) | (c.recheck_at <= timestamp(now)),
            self._may_run(now),
        )

    async def seqs(self, channels: Sequence[str]) -> dict[str, int]:
        """Return the current seq of each of these channels that exists."""
        table = self.tables.channels
        query = sa.select(table.c.channel_id, table.c.current_seq).where(
            is_one_of(table.c.channel_id, channels)
        )
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

    async def last_marked(self, limit: int) -> dict[str, int]:
        """Return the channels with the latest insights, and the times of those."""
        table = self.tables.channels
        when = table.c.last_insight_ts
        query = sa.select(table.c.channel_id, milliseconds_of(when, sa.func.ceil)).where(when.is_not(None))
        async with self.engine.connect() as sql:
            return dict((await sql.execute(query.order_by(when.desc()).limit(limit))).all())

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
        user_id = self._users.c.user_id
        return await self._facts(sa.select(user_id).where(is_one_of(user_id, users)))

    async def due_subscribers(self, channels: Sequence[str], now: int, limit: int) -> dict[str, UserRow]:
        """Return subscribers of these channels who are active, due, and neither enqueued nor postponed."""
        c = self._users.c
        subscriptions = self.tables.subscriptions
        subscribed = sa.select(subscriptions.c.user_id).where(is_one_of(subscriptions.c.channel_id, channels))
        active = sa.or_(
            *(
                (c.plan == name) & (c.last_active_at >= timestamp(now - plan.active_within))
                for name, plan in self._plans.items()
            )
        )
        user_ids = (
            sa.select(c.user_id)
            .where(c.user_id.in_(subscribed), active, *self._is_free(now))
        )  # fmt: skip
        return await self._facts(user_ids, self._due(now), limit)

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
        self, user_ids: sa.Select[str], condition: Any = None, limit: int | None = None
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
            .where(s.c.user_id.in_(user_ids))
            .group_by(s.c.user_id)
            .subquery()
        )
        pending = sa.func.coalesce(counted.c.pending, 0).cast(sa.BigInteger)
        times = (c.last_clustered_at, c.last_active_at, c.last_enqueued_at)
        query = (
            sa.select(c.user_id, c.cluster_version, c.plan, pending, *map(milliseconds_of, times))
            .select_from(self._users.outerjoin(counted, counted.c.user_id == c.user_id))
            .where(c.user_id.in_(user_ids))
            .limit(limit)
        )
        if condition is not None:
            query = query.where(condition).order_by(*self._by_priority)
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


class PlannerProgress(NamedTuple):
    """The planner's row, and the server's time."""

    now: int
    examined_at: int
    swept_at: int


class PlannerRows:
    """The planner's row, and its columns of the users' rows."""

    def __init__(self, engine: AsyncEngine, tables: PlannerTables, max_attempts: int) -> None:
        self.engine = engine
        self._state = tables.planner_state
        self._users = tables.user_stats
        self._insights = tables.insights
        self._max_attempts = max_attempts

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

    async def save_tick(self, tick: Tick, not_due: Sequence[NotDueUser] = ()) -> None:
        """Store what a tick did, in SQL because Redis may be down.

        Most ticks check few users, so those that were not due are kept beside those of earlier ticks.
        """
        latest = {each.user_id: msgspec.to_builtins(each) for each in not_due}
        async with self.engine.begin() as sql:
            stored = sa.select(self._state.c.last_tick["not_due"])
            for each in (await sql.execute(stored)).scalar_one_or_none() or ():
                latest.setdefault(each["user_id"], each)
            kept = {**msgspec.to_builtins(tick), "not_due": list(latest.values())[:MAX_NOT_DUE]}
            await sql.execute(sa.update(self._state).values(last_tick=kept))

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Mark users as enqueued and return those that were not."""
        c = self._users.c
        # In order, so that two planners wait for each other and never deadlock.
        free = (
            sa.select(c.user_id)
            .where(is_one_of(c.user_id, users))
            .where(c.enqueued_until.is_(None) | (c.enqueued_until <= timestamp(now)))
            .where(may_run(self._users, timestamp(now), self._max_attempts))
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
        times = user_times(enqueued_before)
        before = sa.case((times.c.at > 0, to_timestamps(times.c.at)), else_=None)
        free = (
            sa.update(self._users)
            .where(self._users.c.user_id == times.c.user_id)
            .values(last_enqueued_at=before, enqueued_until=None, recheck_at=timestamp(now))
        )
        async with self.engine.begin() as sql:
            await sql.execute(free)

    async def schedule_rechecks(
        self, rechecks: Mapping[str, int], cleared: Collection[str], now: int
    ) -> None:
        """Recheck users at a time, or earlier if that was scheduled; cancel the rechecks of `cleared`."""
        c = self._users.c
        times = user_times(rechecks)
        later = (
            sa.update(self._users)
            .where(c.user_id == times.c.user_id)
            .where(
                c.recheck_at.is_(None)
                | (c.recheck_at > to_timestamps(times.c.at))
                | (c.recheck_at <= timestamp(now))
            )
            .values(recheck_at=to_timestamps(times.c.at))
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

    async def parked(self, limit: int) -> list[ParkedUser]:
        """Return users whose runs have failed too often, the longest parked first."""
        c = self._users.c
        idle = c.running_until.is_(None) | (c.running_until <= server_time())
        query = sa.select(c.user_id, c.attempts, c.last_error).where(c.attempts >= self._max_attempts, idle)
        async with self.engine.connect() as sql:
            return [ParkedUser(*row) for row in await sql.execute(query.order_by(c.retry_at).limit(limit))]

    async def retry(self, users: Collection[str]) -> int:
        """Have users enqueued again whose runs have failed; return how many there were."""
        c = self._users.c
        again = (
            sa.update(self._users)
            .where(is_one_of(c.user_id, users), c.attempts > 0)
            .values(attempts=0, retry_at=None, recheck_at=server_time())
        )
        async with self.engine.begin() as sql:
            return (await sql.execute(again)).rowcount

    async def delete_insights(self, older_than: int, limit: int) -> int:
        """Delete insights older than this many milliseconds, examining the first `limit` by their ids."""
        table = self._insights
        first = sa.select(table.c.insight_id, table.c.ts).order_by(table.c.insight_id).limit(limit).subquery()
        old = sa.select(first.c.insight_id).where(first.c.ts < server_time() - interval(older_than))
        async with self.engine.begin() as sql:
            return (await sql.execute(sa.delete(table).where(table.c.insight_id.in_(old)))).rowcount


class ParkedUser(NamedTuple):
    """A user who is not enqueued any more, because every run failed; `retry` brings them back."""

    user_id: str
    attempts: int
    last_error: str | None  # None when the workers died


def may_run(users: sa.Table, now: Any, max_attempts: int) -> Any:
    """Exclude users whose runs failed too often, or a short time ago."""
    return sa.and_(users.c.attempts < max_attempts, users.c.retry_at.is_(None) | (users.c.retry_at <= now))


async def try_lead(sql: AsyncConnection, name: str) -> bool:
    """Try to become the leader for this transaction: the SQL counterpart of the lock in Redis."""
    query = sa.select(sa.func.pg_try_advisory_xact_lock(sa.func.hashtext(name)))
    return bool((await sql.execute(query)).scalar_one())
