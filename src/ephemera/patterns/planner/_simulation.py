"""Simulates a year of traffic in seconds: how many rebuilds, how stale, how much load.

    report = await simulate(plans, Scenario(days=365, users=200))

The clock, the traffic, the workers and the storage are simulated. The decisions are not: every tick runs the
same `TickRunner` and `decide` as production, with its limits, cooldowns and enqueued marks. The clock jumps
from event to event: a tick without dirty channels, due rechecks or overdue users would do nothing, so it is
counted and not run.

Staleness is the age of the oldest insight that a run clustered; for a user who was inactive it counts from
their return.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from ephemera.patterns.planner._plans import Plan, Task
from ephemera.patterns.planner._simulated_users import HOUR, NEVER, Scenario, SimulatedSource, Traffic
from ephemera.patterns.planner._tick import TickLimits, TickRunner

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
            wanted = self._tick_at if source.dirty else source.next_recheck
            tick = self._tick_at + max(0, -(-(wanted - self._tick_at) // step)) * step
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
