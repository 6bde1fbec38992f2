"""The SQL side of a run: it begins with a fence, and ends in a transaction that no older fence can make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.errors import StaleFencingToken
from ephemera.patterns.planner._columns import interval, ms, now
from ephemera.patterns.planner._plans import Plan
from ephemera.patterns.planner._queries import Truth
from ephemera.patterns.planner._rebuild import AlsoSave, Dataset, Span

if TYPE_CHECKING:
    from ephemera.patterns.planner._declaration import Planner


class Began(NamedTuple):
    """A run that began, when the user was clustered last, and the time."""

    dataset: Dataset
    clustered_at: int
    now: int


class Saved(NamedTuple):
    """What was left when the clusters were saved, and when that was."""

    left: int
    at: int


class Runs:
    """The statements of runs, on one engine."""

    def __init__(self, declared: Planner, truth: Truth) -> None:
        self._truth = truth
        self._tables = declared.tables
        self._users = declared.tables.user_stats
        self._longest = declared.longest_run

    async def begin(self, user: str, fence: int) -> Began | Literal["busy", "unknown user"]:
        """Begin a run: later than all before it, or refused. A fence of 0 is one that SQL is to give."""
        c = self._users.c
        given = sa.func.greatest(c.fence + 1, sa.func.floor(sa.extract("epoch", now()) * 1_000_000))
        may = c.fence < fence if fence else c.running_until.is_(None) | (c.running_until <= now())
        beginning = (
            sa.update(self._users)
            .where(c.user_id == user, may)
            .values(fence=fence or given, running_until=now() + self._longest)
            .returning(c.plan, c.cluster_version, c.fence, ms(c.last_clustered_at), ms(now()))
        )
        async with self._truth.engine.begin() as sql:
            row = (await sql.execute(beginning)).first()
            if row is None:
                return await self._why_not(sql, user, fence)
            spans = await self._spans(sql, user)
        plan, version, known, clustered_at, at = row
        pending = sum(span.upto - span.seen for span in spans)
        return Began(Dataset(user, plan, pending, version + 1, known, spans), clustered_at, at)

    async def _why_not(self, sql: AsyncConnection, user: str, fence: int) -> Literal["busy", "unknown user"]:
        there = sa.select(self._users.c.user_id).where(self._users.c.user_id == user)
        if (await sql.execute(there)).first() is None:
            return "unknown user"
        if fence:
            raise StaleFencingToken(user, fence)
        return "busy"

    async def _spans(self, sql: AsyncConnection, user: str) -> tuple[Span, ...]:
        t, high_water = self._tables, self._truth.high_water
        s, h, c = t.subscriptions, t.user_cluster_hwm, t.channels
        query = (
            sa.select(c.c.channel_id, high_water, c.c.current_seq, self._truth.window_start(c))
            .select_from(
                s.join(c, s.c.channel_id == c.c.channel_id).outerjoin(
                    h, (h.c.user_id == s.c.user_id) & (h.c.channel_id == s.c.channel_id)
                )
            )
            .where(s.c.user_id == user)
            .order_by(c.c.channel_id)
        )
        return tuple(
            Span(channel, min(seen, window), max(seen, upto), seen)
            for channel, seen, upto, window in await sql.execute(query)
        )

    async def save(self, dataset: Dataset, plan: Plan, clusters: Any, also: AlsoSave | None) -> Saved:
        """Save clusters and everything that follows from them; `StaleFencingToken` when a later run began."""
        async with self._truth.engine.begin() as sql:
            await self._admit(sql, dataset, cluster_version=dataset.version)
            await sql.execute(
                sa.insert(self._tables.clusters).values(
                    user_id=dataset.user_id, cluster_version=dataset.version, clusters=clusters
                )
            )
            await self._advance(sql, dataset)
            if also is not None:
                await also(sql, dataset)
            return await self._end(sql, dataset, plan, last_clustered_at=now())

    async def leave(self, dataset: Dataset, plan: Plan, *, nothing_new: bool) -> Saved:
        """End a run that had nothing to save; one without any novelty is as good as clustered now."""
        stamp = {"last_clustered_at": now()} if nothing_new else {}
        async with self._truth.engine.begin() as sql:
            await self._admit(sql, dataset, cluster_version=dataset.version - 1)
            return await self._end(sql, dataset, plan, **stamp)

    async def give_up(self, dataset: Dataset) -> None:
        """Free the user without having saved anything, unless a later run began."""
        c = self._users.c
        mine = sa.update(self._users).where(c.user_id == dataset.user_id, c.fence == dataset.fence)
        async with self._truth.engine.begin() as sql:
            await sql.execute(mine.values(running_until=None))

    async def _end(self, sql: AsyncConnection, dataset: Dataset, plan: Plan, **stamp: Any) -> Saved:
        """Free the user, whose row this transaction has, and count what came meanwhile.

        Where it is enough for another run, the tick that saw it may have found the user marked, and be done
        with the channels: so the user is looked at again.
        """
        c = self._users.c
        left = sum(span.upto - span.seen for span in await self._spans(sql, dataset.user_id))
        cooldown = interval(plan.cooldown)
        free_at = sa.func.greatest(now(), c.last_enqueued_at + cooldown)
        ended = (
            sa.update(self._users)
            .where(c.user_id == dataset.user_id)
            .values(
                pending_insights_count=left,
                enqueued_until=None,
                running_until=None,
                recheck_at=free_at if left >= plan.novelty else None,
                **stamp,
            )
            .returning(ms(c.last_clustered_at))
        )
        return Saved(left, (await sql.execute(ended)).scalar_one())

    async def _admit(self, sql: AsyncConnection, dataset: Dataset, **values: Any) -> None:
        """Change the user's row if no later run began, and none saved."""
        c = self._users.c
        changed = await sql.execute(
            sa.update(self._users)
            .where(c.user_id == dataset.user_id, c.fence == dataset.fence)
            .where(c.cluster_version == dataset.version - 1)
            .values(**values)
        )
        if changed.rowcount == 0:
            raise StaleFencingToken(dataset.user_id, dataset.fence)

    async def _advance(self, sql: AsyncConnection, dataset: Dataset) -> None:
        """Move the high-water marks to what the run has read."""
        table = self._tables.user_cluster_hwm
        rows = [
            {"user_id": dataset.user_id, "channel_id": span.channel_id, "last_seq": span.upto}
            for span in dataset.spans
        ]
        upsert = insert(table).values(rows)
        await sql.execute(
            upsert.on_conflict_do_update(
                index_elements=[table.c.user_id, table.c.channel_id],
                set_={"last_seq": sa.func.greatest(table.c.last_seq, upsert.excluded.last_seq)},
            )
        )
