"""What happens to channels and users, written to SQL and then to Redis, which may miss it.

The seq of an insight and the insight are one transaction (F6): the channel's row is locked until the commit,
so seqs are given and committed in order, and who reads `current_seq` can read every insight up to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.planner._columns import interval, ms, now
from ephemera.patterns.planner._plans import Plan
from ephemera.patterns.planner._queries import Truth
from ephemera.patterns.planner._working_set import Copies

if TYPE_CHECKING:
    from ephemera.patterns.planner._declaration import Planner


class Insight(NamedTuple):
    """An insight that was published."""

    insight_id: int
    channel_id: str
    seq: int
    ts: int  # milliseconds since 1970


class Writing:
    """The writes of one planner."""

    def __init__(self, declared: Planner, copies: Copies, truth: Truth) -> None:
        self._declared = declared
        self._tables = declared.tables
        self._plans: Mapping[str, Plan] = declared.plans
        self._copies = copies
        self._truth = truth
        self.missed = 0
        """Writes that Redis did not hear of; the next sweep or recount makes up for them."""

    async def publish(self, channel_id: str, columns: Mapping[str, Any]) -> Insight:
        """An insight in a transaction of its own, then the channel's mark."""
        async with self._truth.engine.begin() as sql:
            insight = await self.append(sql, channel_id, columns)
        await self.note(insight)
        return insight

    async def append(self, sql: AsyncConnection, channel_id: str, columns: Mapping[str, Any]) -> Insight:
        """An insight with the channel's next seq, in the caller's transaction."""
        channels, insights = self._tables.channels, self._tables.insights
        first = insert(channels).values(channel_id=channel_id, current_seq=1, last_insight_ts=now())
        counted = first.on_conflict_do_update(
            index_elements=[channels.c.channel_id],
            set_={"current_seq": channels.c.current_seq + 1, "last_insight_ts": now()},
        ).returning(channels.c.current_seq)
        seq = (await sql.execute(counted)).scalar_one()
        row = (
            sa.insert(insights)
            .values({**columns, "channel_id": channel_id, "seq": seq})
            .returning(insights.c.insight_id, ms(insights.c.ts))
        )
        insight_id, at = (await sql.execute(row)).one()
        return Insight(insight_id, channel_id, seq, at)

    async def note(self, *insights: Insight) -> None:
        """Mark the channels of committed insights as dirty."""
        await self._tell(self._copies.note([(each.channel_id, each.seq, each.ts) for each in insights]))

    async def subscribe(self, user_id: str, channel_id: str) -> bool:
        """Subscribe from the window's start on; False when the user was subscribed."""
        t = self._tables
        channels, marks = t.channels, t.user_cluster_hwm
        channel = insert(channels).values(channel_id=channel_id).on_conflict_do_nothing()
        subscription = insert(t.subscriptions).values(user_id=user_id, channel_id=channel_id)
        start = sa.select(self._truth.window_start(channels)).where(channels.c.channel_id == channel_id)
        async with self._truth.engine.begin() as sql:
            await sql.execute(channel)
            made = subscription.on_conflict_do_nothing().returning(t.subscriptions.c.user_id)
            if (await sql.execute(made)).first() is None:
                return False
            mark = insert(marks).values(
                user_id=user_id, channel_id=channel_id, last_seq=(await sql.execute(start)).scalar_one()
            )
            # One who comes back was clustered up to the old mark, if the window still has it.
            kept = mark.on_conflict_do_update(
                index_elements=[marks.c.user_id, marks.c.channel_id],
                set_={"last_seq": sa.func.greatest(marks.c.last_seq, mark.excluded.last_seq)},
            ).returning(marks.c.last_seq)
            seq = (await sql.execute(kept)).scalar_one()
            await sql.execute(self._look_at(user_id))
        await self._tell(self._copies.subscribed(user_id, channel_id, seq))
        return True

    async def unsubscribe(self, user_id: str, channel_id: str) -> bool:
        """End a subscription; False when there was none. The high-water mark stays in SQL."""
        table = self._tables.subscriptions
        async with self._truth.engine.begin() as sql:
            ended = await sql.execute(
                sa.delete(table).where(table.c.user_id == user_id, table.c.channel_id == channel_id)
            )
        await self._tell(self._copies.unsubscribed(user_id, channel_id))
        return bool(ended.rowcount)

    async def enroll(self, user_id: str, plan: str) -> None:
        """Make a user known, active from now, or change their plan."""
        self._declared.plan(plan)
        users = self._tables.user_stats
        row = insert(users).values(user_id=user_id, plan=plan, last_active_at=now())
        async with self._truth.engine.begin() as sql:
            await sql.execute(
                row.on_conflict_do_update(
                    index_elements=[users.c.user_id], set_={"plan": plan, "recheck_at": now()}
                )
            )
        await self._tell(self._copies.stamp([user_id], plan=plan))

    async def touch(self, user_id: str) -> None:
        """Note that a user is active: Redis each time, SQL now and then, and whenever they came back."""
        try:
            tell_sql = await self._copies.touch(user_id)
        except (ConnectionFailed, ServerError):
            tell_sql = True
        if tell_sql:
            async with self._truth.engine.begin() as sql:
                await sql.execute(self._touched(user_id))

    def _touched(self, user_id: str) -> Any:
        c = self._tables.user_stats.c
        away = sa.or_(
            *(
                (c.plan == name) & (c.last_active_at < now() - interval(plan.active_within))
                for name, plan in self._plans.items()
            )
        )
        # While Redis is away every touch comes here: most of them find nothing to write.
        seldom = c.last_active_at.is_(None) | (
            c.last_active_at < now() - interval(self._declared.touch_every)
        )
        return (
            sa.update(self._tables.user_stats)
            .where(c.user_id == user_id, seldom)
            .values(last_active_at=now(), recheck_at=sa.case((away, now()), else_=c.recheck_at))
        )

    def _look_at(self, user_id: str) -> Any:
        """A new channel's window is novelty that no insight announces."""
        users = self._tables.user_stats
        return (
            sa.update(users)
            .where(users.c.user_id == user_id)
            .values(recheck_at=sa.func.least(users.c.recheck_at, now()))
        )

    async def _tell(self, telling: Awaitable[None]) -> None:
        try:
            await telling
        except (ConnectionFailed, ServerError):
            self.missed += 1
