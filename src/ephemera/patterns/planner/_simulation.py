"""A year of traffic through the planner in seconds: how many rebuilds, how stale, how much load.

    report = await simulate(plans, Scenario(days=365, users=200))
    python -m ephemera.patterns.planner._simulation --days 365 --users 200

Simulated: the clock, the traffic (`traffic`), the workers (so many, each run so long) and the place of the
data (`simulated_source`). Not simulated: the decisions. Every tick goes through the `Ticking` and `decide`
that production runs, with its limits, cooldowns and marks. The clock jumps from event to event: a tick at
which no channel is dirty, nobody is to be looked at again and nobody is overdue would do nothing, so it is
counted and not run.

Staleness is the age of the oldest insight that a run brought, for one who was away since they came back.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from ephemera.patterns.planner._plans import Plan, Task
from ephemera.patterns.planner._simulated_source import NOBODY_WAITS, Memory
from ephemera.patterns.planner._tick import Limits, Ticking
from ephemera.patterns.planner._traffic import HOUR, Scenario, Traffic

_START = 1_767_225_600_000  # the first of January 2026; any moment would do

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
    """What users of one plan got."""

    users: int = 0
    rebuilds: int = 0
    runs_for_nothing: int = 0  # by time, with nothing new
    stale_p50: float = 0.0  # seconds
    stale_p95: float = 0.0
    stale_most: float = 0.0
    per_user_and_day: float = 0.0


class Report(msgspec.Struct):
    """What a scenario came to."""

    days: int
    insights: int
    ticks: int
    ticks_run: int  # the others had nothing to look at
    users_examined: int
    rebuilds: int
    busiest_hour: int  # rebuilds in it
    longest_queue: int
    workers_busy: float  # the share of their time
    took: float  # seconds of ours
    plans: dict[str, PlanReport]


class Simulation:
    """A scenario on its way."""

    def __init__(self, plans: Mapping[str, Plan], scenario: Scenario, limits: Limits) -> None:
        self._scenario = scenario
        self._traffic = Traffic(scenario)
        self._memory = memory = Memory(plans, limits.mark, _START)
        self._ticking = Ticking(plans, limits, self._enqueue)
        self._queue: deque[str] = deque()
        self._running: list[tuple[int, str, int, int]] = []  # when it ends, who, what it read, since when
        self._stale: dict[str, list[int]] = {name: [] for name in plans}
        self._report = Report(scenario.days, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, {n: PlanReport() for n in plans})
        self._hourly = 0
        self._busy = 0  # milliseconds of work
        self._tick_at = _START
        names = _shared_out(plans, scenario)
        for number, channels in enumerate(self._traffic.subscriptions):
            memory.add(f"u{number}", names[number])
            self._report.plans[names[number]].users += 1
            for channel in channels:
                memory.subscribers.setdefault(f"c{channel}", []).append(f"u{number}")

    async def run(self) -> Report:
        """Take all of it through the planner."""
        began = time.perf_counter()
        step = round(self._scenario.tick_every * 1000)
        for hour_ends, insights, touches in self._traffic.hours(_START):
            happenings = [(at, True, f"c{channel}") for at, channel in insights]
            happenings += [(at, False, f"u{user}") for at, user in touches]
            happenings.sort()
            for at, is_insight, name in happenings:
                await self._until(at, step)
                if is_insight:
                    self._published(name, at)
                else:
                    self._memory.touched(name, at)
            await self._until(hour_ends, step)
            self._report.busiest_hour = max(self._report.busiest_hour, self._hourly)
            self._hourly = 0
        return self._summed(time.perf_counter() - began, step)

    async def _until(self, end: int, step: int) -> None:
        """Tick, and let workers end, until a moment; ticks without anything to look at are jumped over."""
        memory = self._memory
        while True:
            wanted = self._tick_at if memory.dirty else memory.next_look
            tick = self._tick_at + max(0, -(-(wanted - self._tick_at) // step)) * step
            ends = self._running[0][0] if self._running else NOBODY_WAITS
            if min(tick, ends) > end:
                self._tick_at += max(0, -(-(end - self._tick_at) // step)) * step
                return
            if ends <= tick:
                self._finish(ends)
            else:
                memory.now, self._tick_at = tick, tick + step
                done = await self._ticking.run(memory)
                self._report.ticks_run += 1
                self._report.users_examined += done.examined
                self._start(tick)

    def _published(self, channel: str, at: int) -> None:
        self._report.insights += 1
        self._memory.dirty[channel] = at
        for name in self._memory.subscribers.get(channel, ()):
            user = self._memory.users[name]
            user.oldest = user.oldest if user.pending else at
            user.pending += 1
        if channel not in self._memory.subscribers:
            del self._memory.dirty[channel]

    async def _enqueue(self, tasks: Sequence[Task]) -> None:
        self._queue.extend(task.user_id for task in tasks)
        self._report.longest_queue = max(self._report.longest_queue, len(self._queue))

    def _start(self, now: int) -> None:
        """Idle workers take what is queued; a run reads what there is at its start."""
        while self._queue and len(self._running) < self._scenario.workers:
            name = self._queue.popleft()
            user = self._memory.users[name]
            takes = round(self._scenario.run_seconds * 1000) if user.pending else 0
            self._busy += takes
            heapq.heappush(self._running, (now + takes, name, user.pending, user.oldest))

    def _finish(self, now: int) -> None:
        """A run ends: what it read is seen, what came meanwhile is not."""
        _, name, read, since = heapq.heappop(self._running)
        user = self._memory.users[name]
        plan = self._report.plans[user.plan]
        user.pending -= read
        # The first of what came meanwhile came after the run began: a little too old is good enough.
        user.oldest = now - round(self._scenario.run_seconds * 1000) if user.pending else 0
        if read:
            plan.rebuilds += 1
            self._hourly += 1
            self._stale[user.plan].append(now - max(since, user.back_at))
        else:
            plan.runs_for_nothing += 1
        self._memory.clustered(name, now)
        self._start(now)

    def _summed(self, took: float, step: int) -> Report:
        report = self._report
        report.took = took
        report.ticks = self._scenario.days * 24 * HOUR // step
        report.rebuilds = sum(plan.rebuilds for plan in report.plans.values())
        report.workers_busy = self._busy / (self._scenario.days * 24 * HOUR * self._scenario.workers)
        for name, plan in report.plans.items():
            ages = sorted(self._stale[name])
            if ages:
                at = (len(ages) // 2, len(ages) * 95 // 100, -1)
                plan.stale_p50, plan.stale_p95, plan.stale_most = (ages[place] / 1000 for place in at)
            plan.per_user_and_day = plan.rebuilds / max(1, plan.users) / self._scenario.days
        return report


async def simulate(
    plans: Mapping[str, Plan] = PLANS, scenario: Scenario | None = None, *, limits: Limits | None = None
) -> Report:
    """What a scenario comes to with these plans; the limits are a planner's usual ones."""
    limits = limits or Limits(dirty_channels=10_000, enqueued=5_000, mark=300_000)
    return await Simulation(plans, scenario or Scenario(), limits).run()


def _shared_out(plans: Mapping[str, Plan], scenario: Scenario) -> list[str]:
    """The plan of each user: by the scenario's shares, the same ones every time."""
    shares = scenario.shares or dict.fromkeys(plans, 1.0)
    total, names = sum(shares.values()), []
    for name, share in shares.items():
        names += [name] * round(scenario.users * share / total)
    return (names + [next(iter(shares))] * scenario.users)[: scenario.users]


def in_words(report: Report) -> str:
    """A report as a table."""
    load = (
        f"{report.rebuilds:,} rebuilds, {report.busiest_hour} in the busiest hour; longest queue "
        f"{report.longest_queue}; workers busy {report.workers_busy:.1%} of the time"
    )
    traffic = (
        f"{report.days} days, {report.insights:,} insights, {report.ticks:,} ticks "
        f"({report.ticks_run:,} with something to look at), {report.users_examined:,} users examined"
    )
    columns = ("plan", "users", "rebuilds", "for nothing", "/user/day", "stale p50", "p95", "most")
    lines = [traffic, load, _line(*columns)]
    for name, plan in report.plans.items():
        ages = (timedelta(seconds=round(age)) for age in (plan.stale_p50, plan.stale_p95, plan.stale_most))
        a_day = f"{plan.per_user_and_day:.2f}"
        lines.append(_line(name, plan.users, plan.rebuilds, plan.runs_for_nothing, a_day, *ages))
    return "\n".join([*lines, f"simulated in {report.took:.1f} s"])


def _line(plan: str, users: object, *columns: object) -> str:
    return f"{plan:<10}{users:>7}" + "".join(f"{column!s:>17}" for column in columns)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: options are a scenario's fields."""
    parser = argparse.ArgumentParser(prog="python -m ephemera.patterns.planner._simulation")
    usual = Scenario()
    for field in msgspec.structs.fields(Scenario):
        if field.name != "shares":
            value = getattr(usual, field.name)
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    report = asyncio.run(simulate(scenario=Scenario(**given)))
    said = msgspec.json.encode(report).decode() if as_json else in_words(report)
    sys.stdout.write(f"{said}\n")


if __name__ == "__main__":
    main()
