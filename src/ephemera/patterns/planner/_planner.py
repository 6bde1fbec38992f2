"""The declaration of a planner, and the planner of a store: writes, ticks and rebuilds.

Ticks read Redis while it is available, and SQL otherwise. The switch happens inside a tick: one that loses
Redis starts again from SQL at once, and what it had enqueued is marked in SQL. The first tick after Redis is
back rebuilds the dirty channels from SQL before it reads them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import ConnectionFailed, InvalidDeclaration, LockLost, ServerError
from ephemera.keyspace import Catalogue, Store, check_declaration, milliseconds
from ephemera.patterns.planner._candidates import RedisSource, SqlSource, UserExplanation, explain
from ephemera.patterns.planner._queries import ParkedUser, PlannerRows, Queries, UserRow, try_lead
from ephemera.patterns.planner._rebuild import Build, Dataset, Invalidate, OnSave, Rebuilder, RebuildRun
from ephemera.patterns.planner._tables import PlannerTables
from ephemera.patterns.planner._tick import (
    Enqueue,
    Mode,
    Plan,
    PlannerRetention,
    PlannerTiming,
    Tick,
    TickLimits,
    TickRunner,
)
from ephemera.patterns.planner._working_set import PlannerKeys, WorkingSet
from ephemera.patterns.planner._writer import Insight, Writer
from ephemera.sql import CheckedEngine, migrate

log = logging.getLogger("ephemera.planner")

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_DEFAULT_LIMITS = TickLimits()
_DEFAULT_TIMING = PlannerTiming()
_KEEP_ALL = PlannerRetention()
_MAX_DELETED = 1000  # insights that one tick deletes
_REDIS_LOST = (ConnectionFailed, ServerError, LockLost)


class Planner:
    """A planner. `store[PLANNER]` is a `BoundPlanner`, opened with `resources={PLANNER: engine}`.

    Args:
        catalogue: The catalogue that declares the planner's keys.
        metadata: Where the planner's tables are declared.
        plans: The thresholds of each plan, by name.
        name: The prefix of its tables and keys; give each of several planners its own.
        window: How far back a dataset and a new subscription reach.
        limits: The most that one tick takes.
        timing: How long runs may take, and how often state is saved.
        retention: When old insights and cluster versions are deleted; by default never.
        max_attempts: How often a user's run may fail in a row before the user is parked.
        insight_columns: Further columns of the table of insights.
        cluster_columns: Further columns of the table of clusters.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        metadata: sa.MetaData,
        *,
        plans: Mapping[str, Plan],
        name: str | None = None,
        window: timedelta = timedelta(days=30),
        limits: TickLimits = _DEFAULT_LIMITS,
        timing: PlannerTiming = _DEFAULT_TIMING,
        retention: PlannerRetention = _KEEP_ALL,
        max_attempts: int = 10,
        insight_columns: Sequence[sa.Column[Any]] = (),
        cluster_columns: Sequence[sa.Column[Any]] = (),
    ) -> None:
        check_declaration(catalogue, "planner", window=window)
        versions_kept, insights_kept = retention.versions, retention.insights
        if not plans or min(limits.max_dirty_channels, limits.max_enqueued) < 1 or window <= timedelta(0):
            raise InvalidDeclaration(
                catalogue.name,
                f"a planner with {len(plans)} plans, {limits!r} and a window of {window}",
                "give at least one plan, positive limits and a window",
            )
        if max_attempts < 1 or (versions_kept is not None and versions_kept < 1):
            raise InvalidDeclaration(
                catalogue.name,
                f"a planner with max_attempts={max_attempts}, {retention!r}",
                "give at least 1",
            )
        if insights_kept is not None and insights_kept < window:
            raise InvalidDeclaration(
                catalogue.name,
                f"it keeps insights for {insights_kept}, which is shorter than the window of {window}",
                "a dataset needs the whole window: keep insights for at least that long",
            )
        self.plans = dict(plans)
        if name is not None and not _NAME.fullmatch(name):
            raise InvalidDeclaration(name, "is not a plain name", "use lower-case letters, digits and _")
        self.tables = PlannerTables(
            metadata, name=name, insight_columns=insight_columns, cluster_columns=cluster_columns
        )
        self.sql_schema = self.tables.sql_schema
        self.keys = PlannerKeys(catalogue, timing.lease, name)
        self.limits = limits
        self.window = milliseconds(window)
        self.run_timeout = timing.run_timeout
        self.touch_every = milliseconds(timing.touch_every)
        self.sweep_every = milliseconds(timing.sweep_every)
        self.max_attempts = max_attempts
        self.insights_kept = None if insights_kept is None else milliseconds(insights_kept)
        self.versions_kept = versions_kept
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundPlanner:
        """Return the planner of a store; `store[PLANNER]` calls it."""
        store[self.keys.dirty]  # refuses a store without the catalogue
        return BoundPlanner(self, store, store.resource(self, "an AsyncEngine", AsyncEngine))

    def plan(self, name: str) -> Plan:
        """Return a plan by its name."""
        if name not in self.plans:
            known = ", ".join(self.plans)
            raise InvalidDeclaration(name, "no such plan is declared", f"plans are {known}")
        return self.plans[name]

    def __repr__(self) -> str:
        return f"<Planner of {self.keys.dirty.catalogue}: {', '.join(self.plans)}>"


class PlannerStatus(NamedTuple):
    """The state of a planner in this process, for `GET /planner` and metrics."""

    mode: Mode
    last_tick: Tick | None
    ticks: int
    failed_ticks: int  # neither Redis nor SQL could be read, or `enqueue` failed
    switches: int  # from Redis to SQL and back
    missed_by_redis: int  # writes of this process that Redis missed


class BoundPlanner:
    """A planner on a store and a database: what `store[PLANNER]` gives."""

    def __init__(self, declared: Planner, store: Store, engine: AsyncEngine) -> None:
        self.declared = declared
        self.tables = declared.tables
        engine = CheckedEngine(engine, declared.sql_schema)
        self._engine = engine
        plans, keys = declared.plans, declared.keys
        queries = Queries(
            engine,
            declared.tables,
            plans,
            window=declared.window,
            touch_every=declared.touch_every,
            max_attempts=declared.max_attempts,
        )
        working_set = WorkingSet(keys, declared.touch_every, store)
        self._queries = queries
        self._working_set = working_set
        self._state = PlannerRows(engine, declared.tables, declared.max_attempts)
        self._writer = Writer(plans, declared.touch_every, working_set, queries)
        self._tick_lock = store[keys.tick_lock]
        self._rebuilder = Rebuilder(
            declared.plan,
            declared.run_timeout,
            store[keys.user_lock],
            working_set,
            queries,
            declared.versions_kept,
        )
        self._redis = RedisSource(plans, declared.sweep_every, working_set, queries, self._state)
        self._sql = SqlSource(queries, self._state)
        self._status = PlannerStatus("redis", None, 0, 0, 0, 0)

    async def create_tables(self) -> None:
        """Create or upgrade the tables, as `ephemera migrate up` does; safe in many processes at once."""
        await migrate(self._engine, self.declared)

    # Writes

    async def publish(self, channel_id: str, **columns: Any) -> Insight:
        """Publish an insight with the channel's next seq and the application's columns."""
        return await self._writer.publish(channel_id, columns)

    async def publish_in(self, sql: AsyncConnection, channel_id: str, **columns: Any) -> Insight:
        """Publish in your own transaction; pass the result to `mark_dirty` after the commit."""
        return await self._writer.publish_in(sql, channel_id, columns)

    async def mark_dirty(self, *insights: Insight) -> None:
        """Have the next tick examine the channels of insights that were committed."""
        await self._writer.mark_dirty(*insights)

    async def enroll(self, user_id: str, *, plan: str) -> None:
        """Add a user, or change their plan."""
        self.declared.plan(plan)  # refuses an unknown one
        await self._writer.enroll(user_id, plan)

    async def subscribe(self, user_id: str, channel_id: str) -> bool:
        """Subscribe a user, whose novelty begins at the window's start; False when subscribed already."""
        return await self._writer.subscribe(user_id, channel_id)

    async def unsubscribe(self, user_id: str, channel_id: str) -> bool:
        """End a subscription; False when there was none."""
        return await self._writer.unsubscribe(user_id, channel_id)

    async def touch(self, user_id: str) -> None:
        """Record that a user is active: one round trip, and SQL now and then."""
        await self._writer.touch(user_id)

    # Ticks

    async def tick(self, enqueue: Enqueue) -> Tick:
        """Enqueue the users who are due, from Redis, or from SQL while Redis is unavailable.

        One process ticks at a time. Errors of SQL and of `enqueue` are raised; no user is lost by them.
        """
        began = time.perf_counter()
        try:
            runner = TickRunner(self.declared.plans, self.declared.limits, enqueue)
            tick = await self._tick(runner)
            tick.seconds = time.perf_counter() - began
            if not tick.not_leader:
                await self._state.save_tick(tick, runner.not_due)
                await self._delete_insights()
        except Exception:
            self._status = self._status._replace(failed_ticks=self._status.failed_ticks + 1)
            raise
        before = self._status
        self._status = before._replace(
            mode=tick.mode,
            last_tick=before.last_tick if tick.not_leader else tick,
            ticks=before.ticks + 1,
            switches=before.switches + (tick.mode != before.mode),
        )
        return tick

    async def _delete_insights(self) -> None:
        """Delete some insights that are too old; if SQL refuses that, the planner continues."""
        if self.declared.insights_kept is not None:
            try:
                await self._state.delete_insights(self.declared.insights_kept, _MAX_DELETED)
            except sa.exc.DBAPIError as problem:
                log.warning("insights beyond their retention were not deleted: %s", problem.orig)

    async def run(self, enqueue: Enqueue, *, every: timedelta = timedelta(seconds=30)) -> None:
        """Tick forever, about once per interval; a failure is logged and retried.

        `every` is that interval.
        """
        while True:
            try:
                await self.tick(enqueue)
            except Exception:
                log.exception("a tick failed; the next one examines the same channels and users")
            await asyncio.sleep(every.total_seconds() * random.uniform(0.9, 1.1))

    async def _tick(self, runner: TickRunner) -> Tick:
        problem = "Redis is not connected"
        if self._working_set.is_up:
            try:
                async with self._tick_lock.try_hold() as lock:
                    if lock is None:
                        return Tick(self._redis.mode, not_leader=True)
                    return await runner.run(self._redis)
            except _REDIS_LOST as lost:
                problem = str(lost)
        self._redis.is_stale = True
        if self._status.mode == "redis":
            log.warning("the planner reads from SQL: %s", problem)
        async with self._engine.begin() as sql:
            if not await try_lead(sql, self.declared.keys.tick_lock.keyspace.pattern):
                return Tick(self._sql.mode, not_leader=True, problem=problem)
            tick = await runner.run(self._sql)
        tick.problem = problem
        return tick

    @property
    def status(self) -> PlannerStatus:
        """Mode, last tick and counts of this process, without I/O."""
        return self._status._replace(missed_by_redis=self._writer.missed)

    async def queue_length(self) -> int:
        """Return how many users are enqueued and not finished."""
        return await self._state.enqueued()

    async def parked(self, limit: int = 100) -> list[ParkedUser]:
        """Return users who are not enqueued any more: `max_attempts` of their runs failed in a row."""
        return await self._state.parked(limit)

    async def retry(self, *user_ids: str) -> int:
        """Have users enqueued again whose runs have failed; return how many there were."""
        return await self._state.retry(user_ids)

    async def explain(self, user_id: str) -> UserExplanation | None:
        """Return why a user is due or is not, by SQL; None for an unknown user. It writes nothing."""
        return (await self.explain_all([user_id])).get(user_id)

    async def explain_all(self, user_ids: Collection[str]) -> dict[str, UserExplanation]:
        """Return why some users are due or are not, those who exist; two queries for all of them."""
        return await explain(self._queries, self.declared.plans, user_ids)

    # Rebuilds

    async def rebuild(
        self,
        user_id: str,
        build: Build,
        *,
        invalidate: Invalidate | None = None,
        on_save: OnSave | None = None,
        force: bool = False,
    ) -> RebuildRun:
        """Rebuild a user's clusters with `await build(dataset)`, if there is novelty and it is still due.

        An error of `build` is raised. The user is rechecked after five minutes, twice as long after each
        further failure, and parked after `max_attempts`.

        Args:
            user_id: The user.
            build: Makes the clusters of a dataset.
            invalidate: Awaited after the commit, with the user and the new version.
            on_save: `on_save(connection, dataset)` writes in the transaction that saves the clusters.
            force: Rebuild below the plan's thresholds, for a reader who wants what little is new.

        """
        return await self._rebuilder.rebuild(
            user_id, build, invalidate=invalidate, on_save=on_save, force=force
        )

    async def insights(self, dataset: Dataset, *, newest: int | None = None) -> Sequence[sa.Row[Any]]:
        """Return the insights of a dataset by channel and seq, or only the `newest` ones of them."""
        table = self.tables.insights
        spans = [span for span in dataset.spans if span.upto > span.after]
        bounds = _spans(
            [span.channel_id for span in spans], *zip(*((s.after, s.upto) for s in spans), strict=True)
        )
        insights = (
            sa.select(table)
            .join(bounds, table.c.channel_id == bounds.c.channel_id)
            .where(table.c.seq > bounds.c.after, table.c.seq <= bounds.c.upto)
        )
        if newest is not None:
            latest = insights.order_by(table.c.ts.desc(), table.c.insight_id.desc()).limit(newest).subquery()
            query = sa.select(latest).order_by(latest.c.channel_id, latest.c.seq)
        else:
            query = insights.order_by(table.c.channel_id, table.c.seq)
        async with self._engine.connect() as sql:
            return (await sql.execute(query)).all()

    async def user(self, user_id: str) -> UserRow | None:
        """Return a user as SQL has them: their facts, and the version of their clusters."""
        return (await self._queries.users([user_id])).get(user_id)


def _spans(channels: list[str], after: Sequence[int] = (), upto: Sequence[int] = ()) -> Any:
    numbers = sa.ARRAY(sa.BigInteger)
    columns = (
        sa.bindparam(None, channels, sa.ARRAY(sa.Text)),
        sa.bindparam(None, list(after), numbers),
        sa.bindparam(None, list(upto), numbers),
    )
    number = (sa.column(name, sa.BigInteger) for name in ("after", "upto"))
    return sa.func.unnest(*columns).table_valued("channel_id", *number).render_derived()
