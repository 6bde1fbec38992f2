"""One tick: due users are enqueued, and only then are the channels cleared.

The order is what makes it safe to die at any point. A user is claimed (marked in SQL with a time for a
recheck, and in Redis), then enqueued, then the channels are cleared. A tick that dies leaves its channels
dirty, or its users due for a recheck. Users who are due and cannot be enqueued now (cooldown, enqueued
already, more than a tick takes) are scheduled for a recheck in SQL.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from ephemera.patterns.planner._plans import Plan, Task, UserFacts, decide

ENQUEUED_MS = 300_000
"""How long a user is not enqueued again, in milliseconds, unless a worker finishes earlier."""

Mode: TypeAlias = Literal["redis", "sql", "simulation"]
Enqueue: TypeAlias = Callable[[Sequence[Task]], Awaitable[None]]
"""Takes tasks, one per user, and returns when a queue has them."""


class TickLimits(msgspec.Struct, frozen=True):
    """The most that one tick takes; the next one continues."""

    max_dirty_channels: int = 10_000
    max_enqueued: int = 5_000


class Tick(msgspec.Struct):
    """What a tick did."""

    mode: Mode
    at: int = 0  # milliseconds since 1970, by the server
    seconds: float = 0.0
    dirty: int = 0  # channels examined
    examined: int = 0  # users examined
    candidates: int = 0  # users found due
    enqueued: int = 0
    postponed: int = 0
    full: bool = False  # a limit was reached; the next tick continues
    not_leader: bool = False  # nothing was done: another process is the leader
    problem: str = ""  # why Redis was not used


class TickStart(NamedTuple):
    """The start of a tick: its time, and the channels to examine, each with its mark at that time."""

    now: int  # milliseconds since 1970, by the SQL server
    dirty: Mapping[str, float]
    full: bool  # there are more dirty channels than a tick takes


class Candidates(NamedTuple):
    """Some users who may be due, and what is known of them."""

    facts: Mapping[str, UserFacts]
    rechecked: Collection[str] = ()  # those whose recheck was due


class TickSource(Protocol):
    """Where a tick reads candidates and writes decisions: Redis and SQL, SQL alone, or a simulation."""

    mode: Mode

    async def begin(self, limit: int) -> TickStart:
        """Return the time, and at most `limit` dirty channels, the oldest first."""

    def candidates(self, start: TickStart, limit: int) -> AsyncGenerator[Candidates, None]:
        """Stream users who may be due: for a recheck, overdue by time (`limit` each), and subscribers."""

    async def schedule_rechecks(
        self, rechecks: Mapping[str, int], cleared: Collection[str], now: int
    ) -> None:
        """Recheck users at a time; cancel the rechecks of `cleared`."""

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Mark users as enqueued and return those that were not."""

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Undo claims, because nothing was enqueued."""

    async def finish(self, start: TickStart) -> None:
        """Clear the channels, except those that became dirty again."""


class TickRunner:
    """Runs the ticks of one planner, by its plans and limits."""

    def __init__(self, plans: Mapping[str, Plan], limits: TickLimits, enqueue: Enqueue) -> None:
        self._plans = plans
        self._limits = limits
        self._enqueue = enqueue

    async def run(self, source: TickSource) -> Tick:
        """Run one tick on a source."""
        start = await source.begin(self._limits.max_dirty_channels)
        tick = Tick(source.mode, start.now, dirty=len(start.dirty), full=start.full)
        async with aclosing(source.candidates(start, self._limits.max_enqueued)) as chunks:
            async for chunk in chunks:
                await self._process(source, start.now, chunk, tick)
        await source.finish(start)
        return tick

    async def _process(self, source: TickSource, now: int, chunk: Candidates, tick: Tick) -> None:
        due, rechecks, cleared = self._decide(chunk, now)
        tick.examined += len(chunk.facts)
        tick.candidates += len(due)
        room = self._limits.max_enqueued - tick.enqueued
        while len(due) > room:
            rechecks[due.popitem()[0]] = now
            tick.full = True
        claimed = await source.claim(due, now) if due else set()
        rechecks.update((user, now + ENQUEUED_MS) for user in due if user not in claimed)
        if rechecks or cleared:
            await source.schedule_rechecks(rechecks, cleared, now)
        tick.postponed += len(rechecks)
        if claimed:
            try:
                await self._enqueue([task for user, task in due.items() if user in claimed])
            except BaseException:
                await source.release({u: chunk.facts[u].last_enqueued_at for u in claimed}, now)
                raise
            tick.enqueued += len(claimed)

    def _decide(self, chunk: Candidates, now: int) -> tuple[dict[str, Task], dict[str, int], list[str]]:
        """Return the due users, the times of rechecks, and the users who need no further recheck."""
        due: dict[str, Task] = {}
        rechecks: dict[str, int] = {}
        for user, facts in chunk.facts.items():
            plan = self._plans.get(facts.plan)
            reason, recheck_at = decide(plan, facts, now) if plan else (None, 0)
            if reason:
                due[user] = Task(user, reason, facts.pending)
            elif recheck_at:
                rechecks[user] = recheck_at
        cleared = [user for user in chunk.rechecked if user not in due and user not in rechecks]
        return due, rechecks, cleared
