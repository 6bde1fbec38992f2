"""The simulation: the decisions of production, a year in seconds, reproducible results."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import msgspec

from ephemera.patterns.planner import Plan, Scenario, SimulationReport, simulate
from ephemera.patterns.planner.__main__ import format_report

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def _plan(**changes: Any) -> Plan:
    return Plan(**{"novelty": 10, "every": DAY, "active_within": 7 * DAY, "cooldown": HOUR, **changes})


async def _simulated(plan: Plan, **scenario: Any) -> SimulationReport:
    return await simulate({"one": plan}, Scenario(**{"days": 20, "users": 30, **scenario}))


async def test_the_same_seed_gives_the_same_report() -> None:
    """A scenario can be repeated, and another seed gives another one."""
    first, second, other = [await _simulated(_plan(), seed=seed) for seed in (1, 1, 2)]
    assert msgspec.structs.replace(first, took=0.0) == msgspec.structs.replace(second, took=0.0)
    assert first.rebuilds != other.rebuilds


async def test_more_novelty_for_a_rebuild_means_fewer_and_staler() -> None:
    """A higher threshold saves rebuilds and costs freshness."""
    eager, lazy = await _simulated(_plan(novelty=5)), await _simulated(_plan(novelty=50))
    assert eager.rebuilds > 2 * lazy.rebuilds
    assert eager.plans["one"].stale_p50 < lazy.plans["one"].stale_p50


async def test_the_plans_bounds_hold() -> None:
    """No active user waits much longer than the plan's time, nor is rebuilt within the cooldown."""
    report = await _simulated(_plan(novelty=1000, every=DAY, active_within=60 * DAY))
    plan = report.plans["one"]
    assert plan.stale_max <= DAY.total_seconds() + HOUR.total_seconds()
    often = await _simulated(_plan(novelty=1, cooldown=2 * HOUR))
    assert often.plans["one"].per_user_and_day <= 12


async def test_an_inactive_user_is_never_rebuilt() -> None:
    """Without activity there is no load after the last active day."""
    report = await _simulated(_plan(active_within=HOUR), active_days=0.0, days=3)
    assert report.rebuilds == 0
    assert report.insights > 0


async def test_too_few_workers_show() -> None:
    """A growing queue shows in the report."""
    report = await _simulated(_plan(novelty=2, cooldown=timedelta(0)), workers=1, run_seconds=200.0)
    assert report.workers_busy > 0.8
    assert report.longest_queue > 10


def test_the_command_takes_a_year_in_seconds() -> None:
    """A year of a small scenario is one command, which prints a table or JSON."""
    command = [sys.executable, "-W", "error", "-m", "ephemera.patterns.planner"]
    command += ["--users", "10", "--channels", "5", "--insights-per-day", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "365 days" in done.stdout
    assert "free" in done.stdout
    done = subprocess.run([*command, "--days", "2", "--json"], capture_output=True, text=True, check=True)
    report = msgspec.json.decode(done.stdout, type=SimulationReport)
    assert (report.days, report.ticks) == (2, 2880)
    assert "2 days" in format_report(report)
