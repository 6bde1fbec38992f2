"""The world of a simulation: synthetic traffic, and users and channels in memory.

The traffic is insights and signs of activity, hour by hour, the same for the same seed. Channels are unequal
(the k-th busiest has a share of 1/k). Users are active on some days and in some hours, and both follow the
day: quiet at night, busiest in the evening. Nothing here reads a clock.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping

import msgspec

from ephemera.patterns.planner._plans import Plan, UserFacts
from ephemera.patterns.planner._tick import ENQUEUED_MS, Candidates, Mode, TickStart

HOUR = 3_600_000
NEVER = 1 << 62


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic of a simulation, and the workers."""

    days: int = 365
    users: int = 100
    channels: int = 50
    subscriptions: int = 10  # per user
    insights_per_day: float = 300.0  # over all channels
    active_days: float = 0.6  # the share of days on which a user is active
    tick_every: float = 60.0  # seconds
    workers: int = 4
    run_seconds: float = 20.0  # per run
    shares: dict[str, float] = {}  # of users by plan; equal by default
    seed: int = 1


class Traffic:
    """The events of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._random = random.Random(scenario.seed)
        weights = [1 / (rank + 1) for rank in range(scenario.channels)]
        self._scenario = scenario
        self._rates = [scenario.insights_per_day * weight / sum(weights) / 24 for weight in weights]
        self.subscriptions = [
            self._random.sample(range(scenario.channels), min(scenario.subscriptions, scenario.channels))
            for _ in range(scenario.users)
        ]

    def hours(self, start: int) -> Iterator[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]]:
        """Yield for each hour its end, its insights (time, channel) and touches (time, user), in order."""
        today: list[int] = []
        for hour in range(self._scenario.days * 24):
            begin = start + hour * HOUR
            if hour % 24 == 0:
                share = self._scenario.active_days
                today = [u for u in range(self._scenario.users) if self._random.random() < share]
            busy = 1 - 0.9 * math.cos((hour % 24 - 7) / 24 * 2 * math.pi)
            insights = [
                (begin + self._random.randrange(HOUR), channel)
                for channel, rate in enumerate(self._rates)
                for _ in range(self._poisson(rate * busy))
            ]
            touches = [
                (begin + self._random.randrange(HOUR), user)
                for user in today
                if self._random.random() < busy / 8
            ]
            yield begin + HOUR, sorted(insights), sorted(touches)

    def _poisson(self, mean: float) -> int:
        """Draw from a Poisson distribution."""
        if mean > 50:
            return max(0, round(self._random.gauss(mean, math.sqrt(mean))))
        count, product, end = 0, self._random.random(), math.exp(-mean)
        while product > end:
            count += 1
            product *= self._random.random()
        return count


class SimulatedUser:
    """A simulated user; times are milliseconds since 1970."""

    __slots__ = (
        "active",
        "clustered",
        "enqueued",
        "enqueued_until",
        "oldest",
        "pending",
        "plan",
        "recheck_at",
        "returned_at",
    )

    def __init__(self, plan: str, start: int) -> None:
        self.plan = plan
        self.pending = 0
        self.oldest = 0  # when the first of `pending` was published
        self.clustered, self.active, self.enqueued = start, start, 0
        self.returned_at = start  # when they last returned after inactivity
        self.enqueued_until = 0
        self.recheck_at = NEVER

    def facts(self) -> UserFacts:
        """Return what the planner knows of them."""
        return UserFacts(self.plan, self.pending, self.clustered, self.active, self.enqueued)


class SimulatedSource:
    """The source of a simulation: its users and channels in a few dicts, and a clock that is set."""

    mode: Mode = "simulation"

    def __init__(self, plans: Mapping[str, Plan], start: int) -> None:
        self._plans = plans
        self.now = start
        self.users: dict[str, SimulatedUser] = {}
        self.dirty: dict[str, float] = {}
        self.subscribers: dict[str, list[str]] = {}
        self._rechecks: list[tuple[int, str]] = []  # a heap: scheduled, or the plan's time has passed

    def add(self, name: str, plan: str) -> None:
        """Add a user."""
        user = self.users[name] = SimulatedUser(plan, self.now)
        self._push(name, user.clustered + self._plans[plan].every)

    def finish_run(self, name: str, at: int) -> None:
        """End a run."""
        user = self.users[name]
        user.clustered, user.enqueued_until, user.recheck_at = at, 0, NEVER
        plan = self._plans[user.plan]
        self._push(name, at + plan.every)
        if user.pending >= plan.novelty:
            self._recheck(name, max(at, user.enqueued + plan.cooldown))

    def touch(self, name: str, at: int) -> None:
        """Record activity; a user who was inactive is rechecked."""
        user = self.users[name]
        if at - user.active > self._plans[user.plan].active_within:
            self._recheck(name, at)
            user.returned_at = at
        user.active = at

    @property
    def next_recheck(self) -> int:
        """When the next user is to be rechecked, if nothing is published."""
        while self._rechecks and self._is_outdated(*self._rechecks[0]):
            heapq.heappop(self._rechecks)
        return self._rechecks[0][0] if self._rechecks else NEVER

    def _is_outdated(self, at: int, name: str) -> bool:
        user = self.users[name]
        return at != user.recheck_at and at != user.clustered + self._plans[user.plan].every

    async def begin(self, limit: int) -> TickStart:
        """Return the dirty channels, the oldest marks first."""
        dirty = dict(sorted(self.dirty.items(), key=lambda item: item[1])[:limit])
        return TickStart(self.now, dirty, len(dirty) < len(self.dirty))

    async def candidates(self, start: TickStart, limit: int) -> AsyncGenerator[Candidates, None]:
        """Stream users due for a recheck, and subscribers of dirty channels."""
        rechecked: dict[str, UserFacts] = {}
        while self.next_recheck <= self.now and len(rechecked) < limit:
            name = heapq.heappop(self._rechecks)[1]
            rechecked[name] = self.users[name].facts()
        if rechecked:
            due = [name for name in rechecked if self.users[name].recheck_at <= self.now]
            yield Candidates(rechecked, due)
        names = {name for channel in start.dirty for name in self.subscribers[channel]}
        yield Candidates({name: self.users[name].facts() for name in names if name not in rechecked})

    async def schedule_rechecks(
        self, rechecks: Mapping[str, int], cleared: Collection[str], now: int
    ) -> None:
        """Recheck users at a time, or earlier if that was scheduled; cancel the rechecks of `cleared`."""
        for name in cleared:
            self.users[name].recheck_at = NEVER
        for name, at in rechecks.items():
            if not now < self.users[name].recheck_at <= at:
                self._recheck(name, at)

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Mark users as enqueued and return those that were not."""
        free = {name for name in users if self.users[name].enqueued_until <= now}
        for name in free:
            user = self.users[name]
            user.enqueued, user.enqueued_until = now, now + ENQUEUED_MS
            self._recheck(name, user.enqueued_until)
        return free

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Undo claims."""
        for name, before in enqueued_before.items():
            self.users[name].enqueued, self.users[name].enqueued_until = before, 0
            self._recheck(name, now)

    async def finish(self, start: TickStart) -> None:
        """Clear the channels; none is marked during a tick here."""
        for channel in start.dirty:
            del self.dirty[channel]

    def _recheck(self, name: str, at: int) -> None:
        self.users[name].recheck_at = at
        self._push(name, at)

    def _push(self, name: str, at: int) -> None:
        heapq.heappush(self._rechecks, (at, name))
