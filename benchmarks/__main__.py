"""The command `python -m benchmarks`: measure, show the table, write results.json and the plot."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import growth, growth_plot, machine, page, plot, report
from benchmarks.growth import Point
from benchmarks.measure import Plan, measure
from benchmarks.outcome import Outcome
from benchmarks.rows import Row
from benchmarks.suite import ROWS, chosen

_WIDTH = 120
"""Columns of the table where there is no terminal to ask."""
_EPILOGUE = """\
examples:
  python -m benchmarks                          everything; writes results, plots and docs/proof/bench.md
  python -m benchmarks --only "50 tasks"        rows whose name contains this; the other results stay
  python -m benchmarks --only wire --rounds 9   more rounds, where the machine is noisy
  python -m benchmarks --only growth            growth of cost with tasks, keys and nodes
  python -m benchmarks --quick                  a smoke test; writes nothing
  python -m benchmarks --list                   the rows and their targets

exit code: 0 when every target that could be judged is met, 1 when one is missed, 2 for wrong usage.
A target is not judged when the peer it names is not installed; the report then says so.
"""


def main() -> int:
    """Run the command line; return the exit code."""
    parser = _parser()
    arguments = parser.parse_args()
    rows, points = chosen(arguments.only), growth.chosen(arguments.only)
    if not rows and not points:
        parser.error(f"no row's name contains {' or '.join(map(repr, arguments.only))}; see --list")
    screen = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    if arguments.list:
        for row in (*rows, *(row for point in points for row in point.rows)):
            screen.print(f"{row.name}: {row.target}" if row.target else row.name, highlight=False)
        return 0
    plan = Plan(rounds=arguments.rounds)
    if arguments.quick:
        plan, rows = Plan(rounds=1, seconds=0.2), [replace(row, turns=1, turn=1.0) for row in rows]
    facts = machine.facts()
    outcomes = uvloop.run(_measure_all(rows, points, plan))
    report.show(screen, facts, outcomes)
    if not arguments.quick:
        entries = report.write(outcomes, (*ROWS, *growth.ROWS))
        plot.draw(entries)
        growth_plot.draw(entries)
        page.record_runs(outcomes, facts)
        page.write()
        screen.print(f"wrote {report.RESULTS}, {page.PAGE} and its plots", highlight=False)
    return 1 if any(outcome.met is False for outcome in outcomes) else 0


async def _measure_all(rows: list[Row], points: list[Point], plan: Plan) -> list[Outcome]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    outcomes = []
    # Drawn between turns only: a refreshing thread would compete with what is measured.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        slopes = _slopes(plan)
        turns = sum(plan.for_row(row).turns * (1 + len(row.peers)) for row in rows)
        turns += len(points) * slopes.turns
        task = progress.add_task("", total=turns)
        for row in rows:

            def show(doing: str, turns_done: int, row: Row = row) -> None:
                progress.update(task, advance=turns_done, description=f"{row.name} · {doing}", refresh=True)

            outcome = await measure(row, plan, show)
            outcomes.append(outcome)
            if not progress.console.is_terminal:  # a file shows no bar
                progress.console.print(report.line(outcome), highlight=False)

        def grow(doing: str, turns_done: int) -> None:
            progress.update(task, advance=turns_done, description=doing, refresh=True)

        outcomes += await growth.measure(points, slopes, grow)
    return outcomes


def _slopes(plan: Plan) -> Plan:
    """Return the plan of a growth point: a slope needs less precision than a target."""
    return Plan(rounds=min(plan.rounds, 3), seconds=min(plan.seconds, 0.5))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Ephemera and its peers in one process, in interleaved rounds.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="rows whose name contains one of these"
    )
    parser.add_argument("--rounds", type=_positive, default=5, metavar="N", help="rounds that count (5)")
    parser.add_argument("--quick", action="store_true", help="one short round each, nothing written")
    parser.add_argument("--list", action="store_true", help="show the rows and stop")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
