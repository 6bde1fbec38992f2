"""The command line of the simulation: `python -m ephemera.patterns.planner --days 365 --users 200`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from ephemera.patterns.planner._simulation import Scenario, SimulationReport, simulate


def format_report(report: SimulationReport) -> str:
    """Format a report as a table."""
    load = (
        f"{report.rebuilds:,} rebuilds, {report.busiest_hour} in the busiest hour; longest queue "
        f"{report.longest_queue}; workers busy {report.workers_busy:.1%} of the time"
    )
    traffic = (
        f"{report.days} days, {report.insights:,} insights, {report.ticks:,} ticks "
        f"({report.ticks_run:,} with something to examine), {report.users_examined:,} users examined"
    )
    columns = ("plan", "users", "rebuilds", "empty", "/user/day", "stale p50", "p95", "max")
    lines = [traffic, load, _line(*columns)]
    for name, plan in report.plans.items():
        ages = (timedelta(seconds=round(age)) for age in (plan.stale_p50, plan.stale_p95, plan.stale_max))
        per_day = f"{plan.per_user_and_day:.2f}"
        lines.append(_line(name, plan.users, plan.rebuilds, plan.empty_runs, per_day, *ages))
    return "\n".join([*lines, f"simulated in {report.took:.1f} s"])


def _line(plan: str, users: object, *columns: object) -> str:
    return f"{plan:<10}{users:>7}" + "".join(f"{column!s:>17}" for column in columns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; its options are a scenario's fields."""
    parser = argparse.ArgumentParser(prog="python -m ephemera.patterns.planner")
    defaults = Scenario()
    for field in msgspec.structs.fields(Scenario):
        if field.name != "shares":
            value = getattr(defaults, field.name)
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = vars(parser.parse_args(arguments))
    as_json = options.pop("json")
    report = asyncio.run(simulate(scenario=Scenario(**options)))
    text = msgspec.json.encode(report).decode() if as_json else format_report(report)
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
