"""A planner at work: what happens is written, ticks hand users over, workers rebuild their clusters.

Ticks read Redis while it can be asked, and SQL otherwise. The change is made inside a tick: one that loses
Redis begins anew from SQL at once, and what it had handed over is marked in SQL. The first tick after Redis
is back rebuilds the dirty channels from SQL before it reads them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import ConnectionFailed, LockLost, ServerError
from ephemera.keyspace import Store
from ephemera.patterns.planner._ledger import Ledger, leads
from ephemera.patterns.planner._queries import Truth, UserRow
from ephemera.patterns.planner._rebuild import AlsoSave, Build, Dataset, Invalidate, Run, Working
from ephemera.patterns.planner._redis_source import RedisSource
from ephemera.patterns.planner._runs import Runs
from ephemera.patterns.planner._source import Mode
from ephemera.patterns.planner._sql_source import SqlSource
from ephemera.patterns.planner._tick import Enqueue, Tick, Ticking
from ephemera.patterns.planner._working_set import Copies
from ephemera.patterns.planner._writer import Insight, Writing

if TYPE_CHECKING:
    from ephemera.patterns.planner._declaration import Planner

log = logging.getLogger("ephemera.planner")

_GONE = (ConnectionFailed, ServerError, LockLost)


class Status(NamedTuple):
    """How a planner is; `GET /planner` and metrics are made of it."""

    mode: Mode
    last_tick: Tick | None
    ticks: int
    failed_ticks: int  # neither Redis nor SQL could be read, or the port failed
    switches: int  # from Redis to SQL and back
    missed_by_redis: int  # writes of this process that Redis did not hear of


class Bound:
    """A planner on a store; it works with a database: `store[PLANNER].using(engine)`."""

    def __init__(self, declared: Planner, store: Store) -> None:
        self._declared = declared
        self._store = store
        for space in (declared.channels, declared.marks, declared.users, declared.dirty, declared.enqueued):
            store[space]  # refuses a store without it

    def using(self, engine: AsyncEngine) -> BoundPlanner:
        """The planner on this database; make it once for a process."""
        return BoundPlanner(self._declared, self._store, engine)


class BoundPlanner:
    """A planner on a store and a database."""

    def __init__(self, declared: Planner, store: Store, engine: AsyncEngine) -> None:
        self.declared = declared
        self._engine = engine
        self._truth = Truth(declared, engine)
        self._ledger = Ledger(declared, engine)
        self._copies = Copies(declared, store)
        self._writing = Writing(declared, self._copies, self._truth)
        self._leading = store[declared.tick_lock]
        runs = Runs(declared, self._truth)
        self._working = Working(declared, store[declared.user_lock], self._copies, runs)
        self._redis = RedisSource(declared, self._copies, self._truth, self._ledger)
        self._sql = SqlSource(self._truth, self._ledger)
        self._status = Status("redis", None, 0, 0, 0, 0)
        self.tables = declared.tables
        store.adopt(self)

    # What happens

    async def publish(self, channel_id: str, **columns: Any) -> Insight:
        """An insight with the channel's next seq, and the columns of the application."""
        return await self._writing.publish(channel_id, columns)

    async def append(self, sql: AsyncConnection, channel_id: str, **columns: Any) -> Insight:
        """The same in your transaction; give what it returns to `note` after the commit."""
        return await self._writing.append(sql, channel_id, columns)

    async def note(self, *insights: Insight) -> None:
        """Have the next tick look at the channels of insights that were appended and committed."""
        await self._writing.note(*insights)

    async def enroll(self, user_id: str, *, plan: str) -> None:
        """Make a user known, or change their plan."""
        await self._writing.enroll(user_id, plan)

    async def subscribe(self, user_id: str, channel_id: str) -> bool:
        """Subscribe a user, whose novelty begins at the window's start; False when they were."""
        return await self._writing.subscribe(user_id, channel_id)

    async def unsubscribe(self, user_id: str, channel_id: str) -> bool:
        """End a subscription; False when there was none."""
        return await self._writing.unsubscribe(user_id, channel_id)

    async def touch(self, user_id: str) -> None:
        """Note that a user is active; one trip, and SQL now and then."""
        await self._writing.touch(user_id)

    # The planner

    async def tick(self, enqueue: Enqueue) -> Tick:
        """Hand over who is due, from Redis, or from SQL while Redis cannot be asked.

        One process ticks at a time. An error of SQL's or of the port's is raised; nobody is lost by it.
        """
        began = time.perf_counter()
        try:
            tick = await self._tick(enqueue)
            tick.seconds = time.perf_counter() - began
            if not tick.led_by_another:
                await self._ledger.note(tick)
        except Exception:
            self._status = self._status._replace(failed_ticks=self._status.failed_ticks + 1)
            raise
        before = self._status
        self._status = before._replace(
            mode=tick.mode,
            last_tick=before.last_tick if tick.led_by_another else tick,
            ticks=before.ticks + 1,
            switches=before.switches + (tick.mode != before.mode),
        )
        return tick

    async def run(self, enqueue: Enqueue, *, every: timedelta = timedelta(seconds=30)) -> None:
        """Tick for ever, about every so often; what fails is logged, and tried again."""
        while True:
            try:
                await self.tick(enqueue)
            except Exception:
                log.exception("a tick failed; the next one looks at the same channels and users")
            await asyncio.sleep(every.total_seconds() * random.uniform(0.9, 1.1))

    async def _tick(self, enqueue: Enqueue) -> Tick:
        ticking = Ticking(self.declared.plans, self.declared.limits, enqueue)
        problem = "Redis is not connected"
        if self._copies.up:
            try:
                async with self._leading.try_hold() as led:
                    if led is None:
                        return Tick(self._redis.mode, led_by_another=True)
                    return await ticking.run(self._redis)
            except _GONE as gone:
                problem = str(gone)
        self._redis.distrusted = True
        if self._status.mode == "redis":
            log.warning("the planner reads from SQL: %s", problem)
        async with self._engine.begin() as sql:
            if not await leads(sql, self.declared.tick_lock.keyspace.pattern):
                return Tick(self._sql.mode, led_by_another=True, problem=problem)
            tick = await ticking.run(self._sql)
        tick.problem = problem
        return tick

    @property
    def status(self) -> Status:
        """Mode, last tick and counts, at once; see `queue_length` for what is handed over."""
        return self._status._replace(missed_by_redis=self._writing.missed)

    async def queue_length(self) -> int:
        """How many users are handed over and not done with."""
        return await self._ledger.handed_over()

    # The worker

    async def rebuild(
        self,
        user_id: str,
        build: Build,
        *,
        invalidate: Invalidate | None = None,
        also_save: AlsoSave | None = None,
        even_if_not_due: bool = False,
    ) -> Run:
        """Rebuild a user's clusters with `await build(dataset)`, if there is novelty and it is still due.

        `also_save(connection, dataset)` writes in the transaction that saves the clusters. `invalidate(user,
        version)` is awaited after it. `even_if_not_due` is for a reader who wants what little there is.
        An error of `build` is raised, and the user is looked at again when the mark ends.
        """
        return await self._working.rebuild(
            user_id,
            build,
            invalidate=invalidate,
            also_save=also_save,
            even_if_not_due=even_if_not_due,
        )

    async def insights(self, dataset: Dataset, *, newest: int | None = None) -> Sequence[sa.Row[Any]]:
        """The insights of a dataset, all columns, by channel and seq; only so many of the `newest`."""
        table = self.tables.insights
        spans = [span for span in dataset.spans if span.upto > span.after]
        of = _spans(
            [span.channel_id for span in spans], *zip(*((s.after, s.upto) for s in spans), strict=True)
        )
        chosen = (
            sa.select(table)
            .join(of, table.c.channel_id == of.c.channel_id)
            .where(table.c.seq > of.c.after, table.c.seq <= of.c.upto)
        )
        if newest is not None:
            latest = chosen.order_by(table.c.ts.desc(), table.c.insight_id.desc()).limit(newest).subquery()
            query = sa.select(latest).order_by(latest.c.channel_id, latest.c.seq)
        else:
            query = chosen.order_by(table.c.channel_id, table.c.seq)
        async with self._engine.connect() as sql:
            return (await sql.execute(query)).all()

    # Looking at it

    async def user(self, user_id: str) -> UserRow | None:
        """What SQL knows of a user now: their facts, novelty counted, and the version of their clusters."""
        return (await self._truth.users([user_id])).get(user_id)


def _spans(channels: list[str], after: Sequence[int] = (), upto: Sequence[int] = ()) -> Any:
    numbers = sa.ARRAY(sa.BigInteger)
    columns = (
        sa.bindparam(None, channels, sa.ARRAY(sa.Text)),
        sa.bindparam(None, list(after), numbers),
        sa.bindparam(None, list(upto), numbers),
    )
    number = (sa.column(name, sa.BigInteger) for name in ("after", "upto"))
    return sa.func.unnest(*columns).table_valued("channel_id", *number).render_derived()
