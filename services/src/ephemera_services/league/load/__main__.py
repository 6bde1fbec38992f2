"""`python -m ephemera_services.league.load SCENARIO`: run it, print the figures and the advice.

Scenarios: `realistic`, `worst` (everybody on the live match), and `prewarm`, which is the worst case twice,
with pages prewarmed and without, and draws a picture of both with `--plot`.
The exit code is 1 when there were errors, or p95 was above a second.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ephemera_services.league.load.runner import Outcome, Scenario, run
from ephemera_services.league.monitoring import LONGEST_P95


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m ephemera_services.league.load", description=__doc__)
    parser.add_argument("scenario", choices=("realistic", "worst", "prewarm"))
    parser.add_argument("--users", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--arrive", type=int, default=30, help="seconds within which all users come")
    parser.add_argument("--no-prewarm", action="store_true", help="begin with nothing loaded")
    parser.add_argument("--plot", type=Path, help="where to draw the picture of `prewarm`")
    given = parser.parse_args()
    ways = (True, False) if given.scenario == "prewarm" else (not given.no_prewarm,)
    scenario: Scenario = "realistic" if given.scenario == "realistic" else "worst"
    outcomes = [
        run(scenario, users=given.users, seconds=given.seconds, prewarm=way, arrive=given.arrive)
        for way in ways
    ]
    for outcome in outcomes:
        sys.stdout.write(told(outcome) + "\n")
    if given.plot is not None:
        from ephemera_services.league.load.picture import draw

        draw(outcomes, given.plot)
    return int(any(not holds(outcome) for outcome in outcomes))


def holds(outcome: Outcome) -> bool:
    """Whether a run was without errors, and fast enough."""
    return bool(outcome.figures["errors"] == 0 and outcome.figures["p95"] <= LONGEST_P95)


def told(outcome: Outcome) -> str:
    """A run in words."""
    seen, service = outcome.figures, outcome.service
    http, redis, pages = service["http"], service["redis"], service["pages"]
    lines = [
        f"{outcome.scenario}, {outcome.users:,} users, prewarm {'on' if outcome.prewarmed else 'off'}",
        f"  requests    {seen['requests']:,}, {seen['rate']:,.0f} a second",
        f"  users saw   p50 {seen['p50']:.0f} ms, p95 {seen['p95']:.0f} ms, p99 {seen['p99']:.0f} ms",
        f"  the service took p95 {http['p95']:.1f} ms, p99 {http['p99']:.1f} ms of that",
        f"  errors      {seen['errors']:,}{''.join(f'{chr(10)}    {each}' for each in seen['failures'])}",
        f"  304         {http['not_modified'] / max(1, http['requests']):.1%} of answers",
        f"  hit ratio   {pages['hit_ratio']:.2%} of page requests ({pages['misses']:,} loads)",
        f"  Redis       {redis['used_memory'] / 1e6:.1f} MB, {redis['evicted_keys']:,} evicted",
        "  advice      " + ("; ".join(outcome.advice) or "none: it is large enough"),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
