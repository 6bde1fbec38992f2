"""`python -m ephemera_services.league.load SCENARIO`: run it, print the figures and the advice.

Scenarios: `realistic`, `worst` (all users on the live match), and `prewarm`, which runs the worst case with
and without prewarming, and draws a chart of both with `--plot`. The exit code is 1 if there were errors, or
if p95 was above a second.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ephemera_services.league.load.runner import LoadOutcome, Scenario, run
from ephemera_services.league.monitor import MAX_P95


def main() -> int:
    """Run the scenario of the command line."""
    parser = argparse.ArgumentParser(prog="python -m ephemera_services.league.load", description=__doc__)
    parser.add_argument("scenario", choices=("realistic", "worst", "prewarm"))
    parser.add_argument("--users", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--arrive", type=int, default=30, help="seconds within which all users arrive")
    parser.add_argument("--no-prewarm", action="store_true", help="start with nothing loaded")
    parser.add_argument("--plot", type=Path, help="file for the chart of `prewarm`")
    arguments = parser.parse_args()
    ways = (True, False) if arguments.scenario == "prewarm" else (not arguments.no_prewarm,)
    scenario: Scenario = "realistic" if arguments.scenario == "realistic" else "worst"
    outcomes = [
        run(scenario, users=arguments.users, seconds=arguments.seconds, prewarm=way, arrive=arguments.arrive)
        for way in ways
    ]
    for outcome in outcomes:
        sys.stdout.write(summary(outcome) + "\n")
    if arguments.plot is not None:
        from ephemera_services.league.load.picture import draw

        draw(outcomes, arguments.plot)
    return int(any(not passed(outcome) for outcome in outcomes))


def passed(outcome: LoadOutcome) -> bool:
    """Whether a run had no errors and was fast enough."""
    return bool(outcome.figures["errors"] == 0 and outcome.figures["p95"] <= MAX_P95)


def summary(outcome: LoadOutcome) -> str:
    """Summarize a run."""
    seen, service = outcome.figures, outcome.service
    http, redis, pages = service["http"], service["redis"], service["pages"]
    lines = [
        f"{outcome.scenario}, {outcome.users:,} users, prewarm {'on' if outcome.prewarmed else 'off'}",
        f"  requests    {seen['requests']:,}, {seen['rate']:,.0f} per second",
        f"  users saw   p50 {seen['p50']:.0f} ms, p95 {seen['p95']:.0f} ms, p99 {seen['p99']:.0f} ms",
        f"  the service took p95 {http['p95']:.1f} ms, p99 {http['p99']:.1f} ms of that",
        f"  errors      {seen['errors']:,}{''.join(f'{chr(10)}    {each}' for each in seen['failures'])}",
        f"  304         {http['not_modified'] / max(1, http['requests']):.1%} of responses",
        f"  hit ratio   {pages['hit_ratio']:.2%} of page requests ({pages['misses']:,} loads)",
        f"  Redis       {redis['used_memory'] / 1e6:.1f} MB, {redis['evicted_keys']:,} evicted",
        "  advice      " + ("; ".join(outcome.advice) or "none"),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
