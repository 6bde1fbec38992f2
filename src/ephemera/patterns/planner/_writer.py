"""Writes of channels and users: to SQL, and then to Redis, which may miss them.

An insight and its seq are one transaction (F6). The channel's row is locked until the commit, so seqs are
issued and committed in order, and a reader of `current_seq` can read every insight up to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.planner._queries import Queries
from ephemera.patterns.planner._tables import interval, milliseconds_of, server_time
from ephemera.patterns.planner._tick import Plan
from ephemera.patterns.planner._working_set import WorkingSet


class Insight(NamedTuple):
    """A published insight."""

    insight_id: int
    channel_id: str
    seq: int
    ts: int  # milliseconds since 1970


class Writer:
    """The writes of one planner; `touch_every` is in milliseconds."""

    def __init__(
        self, plans: Mapping[str, Plan], touch_every: int, working_set: WorkingSet, queries: Queries
    ) -> None:
        self._plans = plans
        self._touch_every = touch_every
        self._working_set = working_set
        self._queries = queries
        self._tables = queries.tables
        self.missed = 0
        """Writes that Redis missed; the next sweep or recount makes up for them."""

    async def publish(self, channel_id: str, columns: Mapping[str, Any]) -> Insight:
        """Insert an insight in its own transaction, then mark the channel as dirty."""
        async with self._queries.engine.begin() as sql:
            insight = await self.publish_in(sql, channel_id, columns)
        await self.mark_dirty(insight)
        return insight

    async def publish_in(self, sql: AsyncConnection, channel_id: str, columns: Mapping[str, Any]) -> Insight:
        """Insert an insight with the channel's next seq, in the caller's transaction."""
        channels, insights = self._tables.channels, self._tables.insights
        first = insert(channels).values(channel_id=channel_id, current_seq=1, last_insight_ts=server_time())
        next_seq = first.on_conflict_do_update(
            index_elements=[channels.c.channel_id],
            set_={"current_seq": channels.c.current_seq + 1, "last_insight_ts": server_time()},
        ).returning(channels.c.current_seq)
        seq = (await sql.execute(next_seq)).scalar_one()
        row = (
            sa.insert(insights)
            .values({**columns, "channel_id": channel_id, "seq": seq})
            .returning(insights.c.insight_id, milliseconds_of(insights.c.ts))
        )
        insight_id, at = (await sql.execute(row)).one()
        return Insight(insight_id, channel_id, seq, at)

    async def mark_dirty(self, *insights: Insight) -> None:
        """Mark the channels of committed insights as dirty."""
        channels = [(insight.channel_id, insight.seq, insight.ts) for insight in insights]
        await self._follow(self._working_set.mark_dirty(channels))

    async def subscribe(self, user_id: str, channel_id: str) -> bool:
        """Subscribe from the window's start on; False when the user was subscribed already."""
        t = self._tables
        channels, marks = t.channels, t.user_cluster_hwm
        channel = insert(channels).values(channel_id=channel_id).on_conflict_do_nothing()
        subscription = insert(t.subscriptions).values(user_id=user_id, channel_id=channel_id)
        start = sa.select(self._queries.window_start(channels)).where(channels.c.channel_id == channel_id)
        async with self._queries.engine.begin() as sql:
            await sql.execute(channel)
            made = subscription.on_conflict_do_nothing().returning(t.subscriptions.c.user_id)
            if (await sql.execute(made)).first() is None:
                return False
            mark = insert(marks).values(
                user_id=user_id, channel_id=channel_id, last_seq=(await sql.execute(start)).scalar_one()
            )
            # A returning subscriber was clustered up to the old mark, if the window still has it.
            kept = mark.on_conflict_do_update(
                index_elements=[marks.c.user_id, marks.c.channel_id],
                set_={"last_seq": sa.func.greatest(marks.c.last_seq, mark.excluded.last_seq)},
            ).returning(marks.c.last_seq)
            seq = (await sql.execute(kept)).scalar_one()
            await sql.execute(self._recheck(user_id))
        await self._follow(self._working_set.add_subscription(user_id, channel_id, seq))
        return True

    async def unsubscribe(self, user_id: str, channel_id: str) -> bool:
        """End a subscription; False when there was none. The high-water mark stays in SQL."""
        table = self._tables.subscriptions
        async with self._queries.engine.begin() as sql:
            ended = await sql.execute(
                sa.delete(table).where(table.c.user_id == user_id, table.c.channel_id == channel_id)
            )
        await self._follow(self._working_set.remove_subscription(user_id, channel_id))
        return bool(ended.rowcount)

    async def enroll(self, user_id: str, plan: str) -> None:
        """Add a user, active from now, or change their plan."""
        users = self._tables.user_stats
        row = insert(users).values(user_id=user_id, plan=plan, last_active_at=server_time())
        async with self._queries.engine.begin() as sql:
            await sql.execute(
                row.on_conflict_do_update(
                    index_elements=[users.c.user_id], set_={"plan": plan, "recheck_at": server_time()}
                )
            )
        await self._follow(self._working_set.update_users([user_id], plan=plan))

    async def touch(self, user_id: str) -> None:
        """Record that a user is active: in Redis each time, in SQL now and then, and when they return."""
        try:
            update_sql = await self._working_set.touch(user_id)
        except (ConnectionFailed, ServerError):
            update_sql = True
        if update_sql:
            async with self._queries.engine.begin() as sql:
                await sql.execute(self._touch(user_id))

    def _touch(self, user_id: str) -> Any:
        c = self._tables.user_stats.c
        was_inactive = sa.or_(
            *(
                (c.plan == name) & (c.last_active_at < server_time() - interval(plan.active_within))
                for name, plan in self._plans.items()
            )
        )
        # While Redis is down every touch comes here: most of them find nothing to write.
        is_due = c.last_active_at.is_(None) | (c.last_active_at < server_time() - interval(self._touch_every))
        return (
            sa.update(self._tables.user_stats)
            .where(c.user_id == user_id, is_due)
            .values(
                last_active_at=server_time(),
                recheck_at=sa.case((was_inactive, server_time()), else_=c.recheck_at),
            )
        )

    def _recheck(self, user_id: str) -> Any:
        """Schedule a recheck: a new channel's window is novelty that no insight announces."""
        users = self._tables.user_stats
        return (
            sa.update(users)
            .where(users.c.user_id == user_id)
            .values(recheck_at=sa.func.least(users.c.recheck_at, server_time()))
        )

    async def _follow(self, update: Awaitable[None]) -> None:
        """Update the working set after SQL, or count that Redis missed it."""
        try:
            await update
        except (ConnectionFailed, ServerError):
            self.missed += 1
