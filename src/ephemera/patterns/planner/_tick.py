"""One tick: due users are enqueued, and only then are the channels cleared.

The order is what makes it safe to die at any point. A user is claimed (marked in SQL with a time for a
recheck, and in Redis), then enqueued, then the channels are cleared. A tick that dies leaves its channels
dirty, or its users due for a recheck. Users who are due and cannot be enqueued now (cooldown, enqueued
already, more than a tick takes) are scheduled for a recheck in SQL.

When a user is due is one pure function, `decide`, that both sources, the worker and the simulation share:

    due = active and (pending >= plan.novelty or clustered longer ago than plan.every)

A user who is due but was enqueued less than `plan.cooldown` ago gets a time for a recheck, so that no user
has to wait for another insight. All times are milliseconds since 1970; 0 means never.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import check_durations, milliseconds

Reason: TypeAlias = Literal["novelty", "time"]

ENQUEUED_MS = 300_000
"""How long a user is not enqueued again, in milliseconds, unless a worker finishes earlier."""

Mode: TypeAlias = Literal["redis", "sql", "simulation"]


class Plan:
    """The thresholds of a plan: how much novelty or how much time triggers a rebuild, and for whom.

    Args:
        novelty: The number of new insights that triggers a rebuild.
        every: The time after which any new insight triggers one.
        active_within: How recently a user must have been active.
        cooldown: The least time between two enqueuings of a user.
        priority: Where more users are due than a tick takes, those of a plan with a higher one come first.

    """

    __slots__ = ("active_within", "cooldown", "every", "novelty", "priority")

    def __init__(
        self,
        *,
        novelty: int,
        every: timedelta,
        active_within: timedelta,
        cooldown: timedelta,
        priority: int = 0,
    ) -> None:
        check_durations("Plan", every=every, active_within=active_within, cooldown=cooldown)
        self.novelty = novelty
        self.every = milliseconds(every)
        self.active_within = milliseconds(active_within)
        self.cooldown = milliseconds(cooldown)
        self.priority = priority
        if novelty < 1 or min(self.every, self.active_within) < 1 or self.cooldown < 0:
            raise InvalidDeclaration(
                repr(self),
                "a threshold is too small",
                "give novelty=1 or more, and positive durations (the cooldown may be zero)",
            )
        if type(priority) is not int:
            raise InvalidDeclaration(repr(self), "its priority is not a whole number", "give 0, 1, 2 ...")

    def __repr__(self) -> str:
        return (
            f"Plan(novelty={self.novelty}, every={timedelta(milliseconds=self.every)}, "
            f"active_within={timedelta(milliseconds=self.active_within)}, "
            f"cooldown={timedelta(milliseconds=self.cooldown)}, priority={self.priority})"
        )


class UserFacts(NamedTuple):
    """What is known of a user at one time."""

    plan: str
    pending: int  # insights of the user's channels that were never clustered for this user
    last_clustered_at: int = 0
    last_active_at: int = 0
    last_enqueued_at: int = 0


class Task(NamedTuple):
    """A user whose clusters are due: what `enqueue` gets."""

    user_id: str
    reason: Reason
    pending: int


Enqueue: TypeAlias = Callable[[Sequence[Task]], Awaitable[None]]
"""Takes tasks, one per user, and returns when a queue has them."""


class Verdict(NamedTuple):
    """Due for a reason; or, without one, to be rechecked at a time, or (0) not at all."""

    reason: Reason | None
    recheck_at: int = 0


NOT_DUE = Verdict(None)


def trigger(plan: Plan, facts: UserFacts, now: int) -> Reason | None:
    """Return why the user's clusters are due for a rebuild; None while they are recent enough."""
    if facts.pending >= plan.novelty:
        return "novelty"
    return "time" if now - facts.last_clustered_at >= plan.every else None


def decide(plan: Plan, facts: UserFacts, now: int) -> Verdict:
    """Decide whether to enqueue a user now."""
    if now - facts.last_active_at > plan.active_within:
        return NOT_DUE
    reason = trigger(plan, facts, now)
    if reason is None:
        return NOT_DUE
    free_at = facts.last_enqueued_at + plan.cooldown if facts.last_enqueued_at else 0
    return Verdict(None, free_at) if free_at > now else Verdict(reason)


class TickLimits(msgspec.Struct, frozen=True):
    """The most that one tick takes; the next one continues."""

    max_dirty_channels: int = 10_000
    max_enqueued: int = 5_000


class PlannerTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The option `timing=PlannerTiming(...)`: how long runs may take, and how often state is saved."""

    run_timeout: timedelta = timedelta(minutes=15)
    """The longest time a worker's run may take."""
    lease: timedelta = timedelta(seconds=60)
    """How long the lock of a dead worker lasts."""
    touch_every: timedelta = timedelta(minutes=5)
    """How often a user's activity is written to SQL."""
    sweep_every: timedelta = timedelta(minutes=5)
    """How often dirty channels that Redis may have missed are read from SQL."""

    def __post_init__(self) -> None:
        check_durations("PlannerTiming", **msgspec.structs.asdict(self))


class PlannerRetention(msgspec.Struct, frozen=True, kw_only=True):
    """The option `retention=PlannerRetention(...)`: when old rows are deleted; by default all are kept."""

    insights: timedelta | None = None
    """The age at which insights are deleted, some with each tick."""
    versions: int | None = None
    """How many versions of a user's clusters are kept."""


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


MAX_NOT_DUE = 50
"""How many users who were not due one tick lists, and the stored list has."""


class NotDueUser(msgspec.Struct, frozen=True):
    """A user whose novelty a tick counted, and who was not due."""

    user_id: str
    plan: str
    why: Literal["inactive", "not due", "cooldown"]
    pending: int
    at: int  # milliseconds since 1970, by the server: the tick


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
        self.not_due: list[NotDueUser] = []
        """Some users that were not due, for operators to see why."""

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
        """Return the due users, by priority, the times of rechecks, and the users who need none."""
        due: dict[str, Task] = {}
        rechecks: dict[str, int] = {}
        priorities: dict[str, int] = {}
        for user, facts in chunk.facts.items():
            plan = self._plans.get(facts.plan)
            reason, recheck_at = decide(plan, facts, now) if plan else (None, 0)
            if plan and reason:
                due[user] = Task(user, reason, facts.pending)
                priorities[user] = plan.priority
            else:
                if recheck_at:
                    rechecks[user] = recheck_at
                if plan and len(self.not_due) < MAX_NOT_DUE:
                    self.not_due.append(_not_due(user, plan, facts, now, bool(recheck_at)))
        due = dict(sorted(due.items(), key=lambda item: -priorities[item[0]]))
        cleared = [user for user in chunk.rechecked if user not in due and user not in rechecks]
        return due, rechecks, cleared


def _not_due(user: str, plan: Plan, facts: UserFacts, now: int, is_cooldown: bool) -> NotDueUser:
    is_inactive = now - facts.last_active_at > plan.active_within
    why: Literal["inactive", "not due", "cooldown"] = (
        "cooldown" if is_cooldown else "inactive" if is_inactive else "not due"
    )
    return NotDueUser(user, facts.plan, why, facts.pending, now)
