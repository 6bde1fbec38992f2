"""Simulates a year of traffic in seconds: how many rebuilds, how stale, how much load.

    report = await simulate(plans, Scenario(days=365, users=200))

The clock, the traffic, the workers and the storage are simulated. The decisions are not: every tick runs the
same `TickRunner` and `decide` as production, with its limits, cooldowns and enqueued marks. The clock jumps
from event to event: a tick without dirty channels, due rechecks or overdue users would do nothing, so it is
counted and not run.

The traffic is insights and signs of activity, hour by hour, the same for the same seed. Channels are unequal
(the k-th busiest has a share of 1/k). Users are active on some days and in some hours, and both follow the
day: quiet at night, busiest in the evening.

Staleness is the age of the oldest insight that a run clustered; for a user who was inactive it counts from
their return.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from datetime import timedelta

import msgspec

from ephemera.patterns.planner._tick import (
    ENQUEUED_MS,
    Candidates,
    Mode,
    Plan,
    Task,
    TickLimits,
    TickRunner,
    TickStart,
    UserFacts,
)

HOUR = 3_600_000
NEVER = 1 << 62

_START = 1_767_225_600_000  # the first of January 2026; any time would do

PLANS: Mapping[str, Plan] = {
    "free": Plan(
        novelty=30,
        every=timedelta(days=2),
        active_within=timedelta(days=7),
        cooldown=timedelta(hours=6),
    ),
    "paid": Plan(
        novelty=10,
        every=timedelta(hours=12),
        active_within=timedelta(days=30),
        cooldown=timedelta(hours=1),
    ),
}


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


class PlanReport(msgspec.Struct):
    """The results for the users of one plan."""

    users: int = 0
    rebuilds: int = 0
    empty_runs: int = 0  # triggered by time, with nothing new
    stale_p50: float = 0.0  # seconds
    stale_p95: float = 0.0
    stale_max: float = 0.0
    per_user_and_day: float = 0.0


class SimulationReport(msgspec.Struct):
    """The results of a simulation."""

    days: int
    insights: int
    ticks: int
    ticks_run: int  # the others had nothing to examine
    users_examined: int
    rebuilds: int
    busiest_hour: int  # rebuilds in that hour
    longest_queue: int
    workers_busy: float  # share of their time
    took: float  # seconds of real time
    plans: dict[str, PlanReport]


class Simulation:
    """A scenario that is being simulated."""

    def __init__(self, plans: Mapping[str, Plan], scenario: Scenario, limits: TickLimits) -> None:
        self._scenario = scenario
        self._traffic = Traffic(scenario)
        self._source = source = SimulatedSource(plans, _START)
        self._runner = TickRunner(plans, limits, self._enqueue)
        self._queue: deque[str] = deque()
        self._running: list[tuple[int, str, int, int]] = []  # its end, the user, what it read, since when
        self._stale: dict[str, list[int]] = {name: [] for name in plans}
        self._report = SimulationReport(
            scenario.days, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, {name: PlanReport() for name in plans}
        )
        self._hourly = 0
        self._busy = 0  # milliseconds of work
        self._tick_at = _START
        names = _assign_plans(plans, scenario)
        for number, channels in enumerate(self._traffic.subscriptions):
            source.add(f"u{number}", names[number])
            self._report.plans[names[number]].users += 1
            for channel in channels:
                source.subscribers.setdefault(f"c{channel}", []).append(f"u{number}")

    async def run(self) -> SimulationReport:
        """Run the scenario."""
        began = time.perf_counter()
        step = round(self._scenario.tick_every * 1000)
        for hour_ends, insights, touches in self._traffic.hours(_START):
            events = [(at, True, f"c{channel}") for at, channel in insights]
            events += [(at, False, f"u{user}") for at, user in touches]
            events.sort()
            for at, is_insight, name in events:
                await self._run_until(at, step)
                if is_insight:
                    self._publish(name, at)
                else:
                    self._source.touch(name, at)
            await self._run_until(hour_ends, step)
            self._report.busiest_hour = max(self._report.busiest_hour, self._hourly)
            self._hourly = 0
        return self._summarize(time.perf_counter() - began, step)

    async def _run_until(self, end: int, step: int) -> None:
        """Tick and finish runs until a time; ticks with nothing to examine are skipped."""
        source = self._source
        while True:
            due = self._tick_at if source.dirty else source.next_recheck
            tick = self._tick_at + max(0, -(-(due - self._tick_at) // step)) * step
            ends = self._running[0][0] if self._running else NEVER
            if min(tick, ends) > end:
                self._tick_at += max(0, -(-(end - self._tick_at) // step)) * step
                return
            if ends <= tick:
                self._finish(ends)
            else:
                source.now, self._tick_at = tick, tick + step
                done = await self._runner.run(source)
                self._report.ticks_run += 1
                self._report.users_examined += done.examined
                self._start(tick)

    def _publish(self, channel: str, at: int) -> None:
        self._report.insights += 1
        self._source.dirty[channel] = at
        for name in self._source.subscribers.get(channel, ()):
            user = self._source.users[name]
            user.oldest = user.oldest if user.pending else at
            user.pending += 1
        if channel not in self._source.subscribers:
            del self._source.dirty[channel]

    async def _enqueue(self, tasks: Sequence[Task]) -> None:
        self._queue.extend(task.user_id for task in tasks)
        self._report.longest_queue = max(self._report.longest_queue, len(self._queue))

    def _start(self, now: int) -> None:
        """Start queued runs on idle workers; a run reads what is pending at its start."""
        while self._queue and len(self._running) < self._scenario.workers:
            name = self._queue.popleft()
            user = self._source.users[name]
            duration = round(self._scenario.run_seconds * 1000) if user.pending else 0
            self._busy += duration
            heapq.heappush(self._running, (now + duration, name, user.pending, user.oldest))

    def _finish(self, now: int) -> None:
        """Finish a run: what it read is seen, what arrived since is not."""
        _, name, read, since = heapq.heappop(self._running)
        user = self._source.users[name]
        plan = self._report.plans[user.plan]
        user.pending -= read
        # What arrived since is not older than the run: its start is close enough.
        user.oldest = now - round(self._scenario.run_seconds * 1000) if user.pending else 0
        if read:
            plan.rebuilds += 1
            self._hourly += 1
            self._stale[user.plan].append(now - max(since, user.returned_at))
        else:
            plan.empty_runs += 1
        self._source.finish_run(name, now)
        self._start(now)

    def _summarize(self, took: float, step: int) -> SimulationReport:
        report = self._report
        report.took = took
        report.ticks = self._scenario.days * 24 * HOUR // step
        report.rebuilds = sum(plan.rebuilds for plan in report.plans.values())
        report.workers_busy = self._busy / (self._scenario.days * 24 * HOUR * self._scenario.workers)
        for name, plan in report.plans.items():
            ages = sorted(self._stale[name])
            if ages:
                at = (len(ages) // 2, len(ages) * 95 // 100, -1)
                plan.stale_p50, plan.stale_p95, plan.stale_max = (ages[position] / 1000 for position in at)
            plan.per_user_and_day = plan.rebuilds / max(1, plan.users) / self._scenario.days
        return report


async def simulate(
    plans: Mapping[str, Plan] = PLANS, scenario: Scenario | None = None, *, limits: TickLimits | None = None
) -> SimulationReport:
    """Simulate a scenario with these plans and, by default, a planner's default limits."""
    return await Simulation(plans, scenario or Scenario(), limits or TickLimits()).run()


def _assign_plans(plans: Mapping[str, Plan], scenario: Scenario) -> list[str]:
    """Return the plan of each user, by the scenario's shares, the same every time."""
    shares = scenario.shares or dict.fromkeys(plans, 1.0)
    total, names = sum(shares.values()), []
    for name, share in shares.items():
        names += [name] * round(scenario.users * share / total)
    return (names + [next(iter(shares))] * scenario.users)[: scenario.users]
