"""Who may be due: the candidates of a tick, and why one user is due or is not.

*From Redis.* A tick queries SQL once each for the time, the due rechecks, the overdue users, the seqs of the
dirty channels, and a stream of their subscribers. Then, for every few thousand users, it reads their states
(one round trip), the high-water marks of those who are active (one round trip), and the seqs of channels not
seen before in this tick (at most one). The number of round trips does not depend on how many channels a user
has. What is not cached, or is seen to be incomplete, is counted by SQL, for all such users of a chunk at
once. Some of it is then cached, a bounded number per tick, so that an emptied Redis is refilled gradually.

*From SQL alone, while Redis is down.* Channels come in the order of their last insight, from the planner's
progress on, a bounded number per tick. A channel that gets one insight after another is always the last in
that order, so a tick that cannot take them all takes some from the end, too. SQL counts novelty and returns
due users only, a bounded number per tick. Users who are enqueued or postponed are left out, so the next tick
continues with others. When more users are due than were returned, the progress does not advance.

*Explanations* are for operators: every condition of `decide` with its figures. They read SQL and write
nothing. Activity is in SQL up to `PlannerTiming.touch_every` later than in Redis, so a user who has just
returned may be shown as inactive until then.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Literal, NamedTuple, TypeAlias

import sqlalchemy as sa

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.planner._queries import PlannerProgress, PlannerRows, Queries, UserRow
from ephemera.patterns.planner._tables import is_one_of, milliseconds_of, server_time
from ephemera.patterns.planner._tick import Candidates, Mode, Plan, Reason, TickStart, UserFacts, trigger
from ephemera.patterns.planner._working_set import UserState, WorkingSet, facts_of

_NOTE_DELAY = 60_000  # milliseconds that a publisher may take from its commit to its mark in Redis
_MAX_CACHED = 10_000  # users that one tick adds to the cache
_FROM_THE_END = 10  # a full tick on SQL takes one channel from the end for every ten from the front

UserSituation: TypeAlias = Literal[
    "running", "enqueued", "parked", "resting", "inactive", "not due", "cooldown", "due"
]
"""The first of these that holds: a worker runs; a task waits; too many runs failed; the last one failed
recently; not active; nothing triggers a rebuild; enqueued too recently; the next tick enqueues the user."""


class RedisSource:
    """Reads the working set in Redis, with SQL behind it; `sweep_every` is in milliseconds."""

    mode: Mode = "redis"

    def __init__(
        self,
        plans: Mapping[str, Plan],
        sweep_every: int,
        working_set: WorkingSet,
        queries: Queries,
        state: PlannerRows,
    ) -> None:
        self._plans = plans
        self._sweep_every = sweep_every
        self._working_set = working_set
        self._queries = queries
        self._state = state
        self._seqs: dict[bytes, int] = {}
        self._may_cache = 0
        self._connection_count = 0
        self.is_stale = True
        """Whether the dirty set may lack channels: at first, and after every loss of Redis."""

    async def begin(self, limit: int) -> TickStart:
        """Return the time and the dirty channels, rebuilt from SQL when they may be incomplete."""
        progress = await self._state.progress()
        if self._connection_count != self._working_set.connection_count:
            # Between two ticks, too: a master that died may have lost the last marks.
            self.is_stale = True
        if self.is_stale or progress.now - progress.swept_at >= self._sweep_every:
            await self._sweep(progress)
        dirty = await self._working_set.dirty(limit)
        full = len(dirty) == limit
        if foreign := {name: mark for name, mark in dirty.items() if "\x00" in name}:
            await self._working_set.clear_dirty(foreign)  # SQL has no such channel, and would refuse the name
            dirty = {name: mark for name, mark in dirty.items() if name not in foreign}
        self._seqs = {name.encode(): seq for name, seq in (await self._queries.seqs(list(dirty))).items()}
        self._may_cache = _MAX_CACHED
        return TickStart(progress.now, dirty, full)

    async def _sweep(self, progress: PlannerProgress) -> None:
        """Mark every channel as dirty that has an insight which may not have been examined."""
        self._connection_count = self._working_set.connection_count
        since = min(progress.examined_at, progress.swept_at) - _NOTE_DELAY
        async with aclosing(self._queries.changed_since(since)) as chunks:
            async for channels in chunks:
                await self._working_set.mark_dirty(channels)
        await self._state.advance(swept_at=progress.now)
        self.is_stale = False

    async def candidates(self, start: TickStart, limit: int) -> AsyncGenerator[Candidates, None]:
        """Stream users due for a recheck, overdue users, and subscribers of dirty channels."""
        rechecked = await self._queries.rechecks(start.now, limit)
        users = dict.fromkeys([*rechecked, *await self._queries.overdue(start.now, limit)], 0)
        if users:
            yield Candidates(await self._facts(users, frozenset(), start.now), rechecked)
        if start.dirty:
            dirty = frozenset(name.encode() for name in start.dirty)
            async with aclosing(self._queries.subscribers(list(start.dirty))) as chunks:
                async for subscribers in chunks:
                    others = {user: count for user, count in subscribers.items() if user not in users}
                    yield Candidates(await self._facts(others, dirty, start.now))

    async def _facts(
        self, users: Mapping[str, int], dirty: frozenset[bytes], now: int
    ) -> dict[str, UserFacts]:
        """Return the facts of users, who are given with the number of dirty channels they subscribe to."""
        found: dict[str, UserFacts] = {}
        names = list(users)
        uncached: dict[str, UserState | None] = {}  # to be counted by SQL
        active: dict[str, UserState] = {}
        for user, state in zip(names, await self._working_set.users(names), strict=True):
            plan = None if state is None else self._plans.get(state.plan)
            if state is None or plan is None:
                uncached[user] = None
            elif now - state.last_active_at <= plan.active_within:
                active[user] = state
        marks = await self._working_set.high_water_marks(list(active))
        await self._load_seqs(marks)
        seq_of, subscribed = self._seqs.__getitem__, dirty.intersection
        for (user, state), seqs in zip(active.items(), marks, strict=True):
            if not seqs or len(subscribed(seqs)) < users[user]:
                uncached[user] = state  # a subscription is missing in the cache
                continue
            try:
                pending = sum(map(seq_of, seqs)) - sum(map(int, seqs.values()))
            except (ValueError, KeyError):  # not a number or a channel of ours
                uncached[user] = state
            else:
                found[user] = facts_of(state, pending)
        if uncached:
            found |= await self._facts_from_sql(uncached)
        return found

    async def _load_seqs(self, marks: Sequence[Mapping[bytes, bytes]]) -> None:
        """Load the seqs of all channels in these marks."""
        unknown = {name for name in set().union(*marks).difference(self._seqs) if _is_channel(name)}
        if unknown:
            self._seqs |= await self._working_set.seqs(unknown)
            missing = [name.decode() for name in unknown if name not in self._seqs]
            if missing:
                seqs = await self._queries.seqs(missing)
                await self._working_set.advance_channels(seqs)
                self._seqs |= {name.encode(): seqs.get(name, 0) for name in missing}

    async def _facts_from_sql(self, users: Mapping[str, UserState | None]) -> dict[str, UserFacts]:
        """Count by SQL, and cache some of it; a cached state is more recent than SQL's."""
        rows = await self._queries.users(users)
        to_cache = list(rows)[: self._may_cache]
        self._may_cache -= len(to_cache)
        if to_cache:
            marks = await self._queries.marks(to_cache)
            await self._working_set.cache_users(
                {user: rows[user] for user in to_cache if not users[user]}, marks
            )
        return {
            user: facts_of(state, row.facts.pending) if (state := users[user]) else row.facts
            for user, row in rows.items()
        }

    async def schedule_rechecks(
        self, rechecks: Mapping[str, int], cleared: Collection[str], now: int
    ) -> None:
        """Schedule rechecks in SQL."""
        await self._state.schedule_rechecks(rechecks, cleared, now)

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Mark users as enqueued: SQL decides, and Redis follows.

        A mark in Redis decides nothing. One that a dying master brought back, or that a worker could not
        remove, would delay its user until it expires.
        """
        claimed = await self._state.claim(users, now)
        with suppress(ConnectionFailed, ServerError):  # they are claimed, so they must be enqueued
            await self._working_set.mark_enqueued(claimed, now)
        return claimed

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Undo claims, in SQL first."""
        await self._state.release(enqueued_before, now)
        await self._working_set.clear_enqueued(enqueued_before)
        for user, before in enqueued_before.items():
            await self._working_set.update_users([user], last_enqueued_at=before)

    async def finish(self, start: TickStart) -> None:
        """Clear the channels that were not marked again, and advance the planner's progress."""
        await self._working_set.clear_dirty(start.dirty)
        if not start.full:
            await self._state.advance(examined_at=start.now)


def _is_channel(name: bytes) -> bool:
    """Whether SQL could have a channel of this name."""
    try:
        return "\x00" not in name.decode()
    except UnicodeDecodeError:
        return False


class SqlSource:
    """Reads SQL alone."""

    mode: Mode = "sql"

    def __init__(self, queries: Queries, state: PlannerRows) -> None:
        self._queries = queries
        self._state = state
        self._more = False
        self._last_taken = 0

    async def begin(self, limit: int) -> TickStart:
        """Return the time, and the channels with insights since the last one that was examined."""
        progress = await self._state.progress()
        dirty = await self._queries.dirty_since(progress.examined_at, limit)
        full = sum(at > progress.examined_at for at in dirty.values()) == limit
        self._more = False
        if full:
            self._last_taken = max(dirty.values())
            dirty = await self._queries.last_marked(limit // _FROM_THE_END) | dirty
        return TickStart(progress.now, dirty, full)

    async def candidates(self, start: TickStart, limit: int) -> AsyncGenerator[Candidates, None]:
        """Stream users due for a recheck, overdue users, and due subscribers."""
        rechecked = await self._queries.rechecks(start.now, limit)
        users = {*rechecked, *await self._queries.overdue(start.now, limit)}
        if users:
            rows = await self._queries.users(users)
            yield Candidates({user: row.facts for user, row in rows.items()}, rechecked)
        if start.dirty:
            rows = await self._queries.due_subscribers(list(start.dirty), start.now, limit)
            self._more = len(rows) == limit
            yield Candidates({user: row.facts for user, row in rows.items()})

    async def schedule_rechecks(
        self, rechecks: Mapping[str, int], cleared: Collection[str], now: int
    ) -> None:
        """Schedule rechecks."""
        await self._state.schedule_rechecks(rechecks, cleared, now)

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Mark users as enqueued."""
        return await self._state.claim(users, now)

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Undo claims."""
        await self._state.release(enqueued_before, now)

    async def finish(self, start: TickStart) -> None:
        """Advance the progress past the last channel, or to this tick's time."""
        if not self._more:
            await self._state.advance(examined_at=self._last_taken if start.full else start.now)


class PlannerCondition(NamedTuple):
    """One condition, and the figures that decide it: milliseconds, except for `novelty` and `attempts`."""

    name: Literal["active", "novelty", "time", "cooldown", "attempts"]
    is_met: bool
    value: int | None
    """How long ago, how many; None for never."""
    limit: int


class UserExplanation(NamedTuple):
    """Why a user is due, or is not."""

    user_id: str
    plan: str
    situation: UserSituation
    reason: Reason | None
    """What triggers a rebuild, whether or not another condition prevents it."""
    cluster_version: int
    conditions: tuple[PlannerCondition, ...]
    """`active`, `novelty` or `time`, `cooldown` and `attempts` must be met."""
    until: int
    """When the situation ends by itself, in milliseconds since 1970; 0 if it does not."""
    last_error: str | None


async def explain(
    queries: Queries, plans: Mapping[str, Plan], user_ids: Collection[str]
) -> dict[str, UserExplanation]:
    """Explain the situations of users, those who exist."""
    known = await queries.users(user_ids)
    c = queries.tables.user_stats.c
    times = (server_time(), c.running_until, c.enqueued_until, c.retry_at)
    columns: list[Any] = [c.user_id, *map(milliseconds_of, times), c.attempts, c.last_error]
    async with queries.engine.connect() as sql:
        rows = (await sql.execute(sa.select(*columns).where(is_one_of(c.user_id, known)))).all()
    return {
        row.user_id: _explained(plans.get(known[row.user_id].facts.plan), known[row.user_id], row, queries)
        for row in rows
    }


def _explained(plan: Plan | None, known: UserRow, row: sa.Row[Any], queries: Queries) -> UserExplanation:
    facts, version, max_attempts = known.facts, known.cluster_version, queries.max_attempts
    user_id, now, running_until, enqueued_until, retry_at, attempts, last_error = tuple(row)
    if plan is None:  # a plan of another release
        return UserExplanation(user_id, facts.plan, "not due", None, version, (), 0, last_error)
    free_at = facts.last_enqueued_at + plan.cooldown if facts.last_enqueued_at else 0

    def ago(at: int) -> int | None:
        return max(now - at, 0) if at else None

    active, clustered, enqueued = map(
        ago, (facts.last_active_at, facts.last_clustered_at, facts.last_enqueued_at)
    )
    is_active = now - facts.last_active_at <= plan.active_within
    is_old = now - facts.last_clustered_at >= plan.every
    conditions = (
        PlannerCondition("active", is_active, active, plan.active_within),
        PlannerCondition("novelty", facts.pending >= plan.novelty, facts.pending, plan.novelty),
        PlannerCondition("time", is_old, clustered, plan.every),
        PlannerCondition("cooldown", free_at <= now, enqueued, plan.cooldown),
        PlannerCondition("attempts", attempts < max_attempts and retry_at <= now, attempts, max_attempts),
    )
    reason = trigger(plan, facts, now)
    situations: tuple[tuple[UserSituation, bool, int], ...] = (
        ("running", running_until > now, running_until),
        ("enqueued", enqueued_until > now, enqueued_until),
        ("parked", attempts >= max_attempts, 0),
        ("resting", retry_at > now, retry_at),
        ("inactive", not is_active, 0),
        ("not due", reason is None, facts.last_clustered_at + plan.every),
        ("cooldown", free_at > now, free_at),
        ("due", True, 0),
    )
    situation, _, until = next(each for each in situations if each[1])
    return UserExplanation(user_id, facts.plan, situation, reason, version, conditions, until, last_error)
