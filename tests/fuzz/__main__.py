"""The command `python -m tests.fuzz`: try hostile input, report what broke and how to repeat it."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.fuzz import failures, report
from tests.fuzz.areas import AREAS
from tests.fuzz.running import Budget, Failure, Tally, try_again, try_area

_EPILOGUE = """\
examples:
  python -m tests.fuzz                                  five minutes, a seed of its own
  python -m tests.fuzz --seconds 3600 --seed 7          an hour; the same seed draws the same cases
  python -m tests.fuzz --only resp headers              some areas, which share the time
  python -m tests.fuzz --replay build/fuzz/FILE.txt     a case that failed, once more
  python -m tests.fuzz --seconds 1800 --report          and write docs/proof/fuzz.md

exit code: 0 when everything held, 1 when something did not, 2 for wrong usage.
"""


def main() -> int:
    """Run what the command line asks for; the result is the exit code."""
    parser = _parser()
    arguments = parser.parse_args()
    screen = Console() if sys.stdout.isatty() else Console(width=120)
    if arguments.replay is not None:
        return _replay(screen, arguments.replay)
    chosen = [AREAS[name] for name in AREAS if not arguments.only or name in arguments.only]
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    screen.print(f"seed {seed}, {arguments.seconds:g} s for {', '.join(area.name for area in chosen)}")
    tallies: list[Tally] = []
    with (
        Progress(
            TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True)
        ) as progress,
        tempfile.TemporaryDirectory(prefix="ephemera-fuzz-") as folder,
    ):
        share = arguments.seconds / len(chosen)
        for area in chosen:
            task = progress.add_task(f"{area.name}: starting", total=share)
            begun = time.monotonic()

            def tell(tally: Tally, task=task, begun: float = begun) -> None:  # type: ignore[no-untyped-def]
                told = f"{tally.area}: {tally.trial.name} ({tally.cases:,} cases)"
                progress.update(task, description=told, completed=time.monotonic() - begun)

            tallies += try_area(area, seed, Budget(seconds=share), Path(folder), tell)
            progress.update(task, description=f"{area.name}: done", completed=share)
    report.show(screen, tallies)
    broken = [tally.failure for tally in tallies if tally.failure is not None]
    for failure in broken:
        _tell(screen, failure)
    if arguments.report:
        report.write(tallies, seed, arguments.seconds, arguments.only)
        screen.print(f"wrote {report.PAGE}")
    return 1 if broken else 0


def _tell(screen: Console, failure: Failure) -> None:
    place = failures.save(failure)
    last = failure.error.strip().splitlines()[-1][:300]
    screen.print(f"[red]{failure.area}: {failure.trial}[/red]: {escape(last)}")
    screen.print(f"  again: {failures.replay_command(place)}", soft_wrap=True)


def _replay(screen: Console, place: Path) -> int:
    area, trial, case = failures.load(place)
    with tempfile.TemporaryDirectory(prefix="ephemera-fuzz-") as folder:
        try:
            try_again(AREAS[area], [(trial, case)], Path(folder))
        except Exception:
            screen.print_exception(show_locals=False)
            return 1
    screen.print(f"{area}: {trial}: it holds")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Hostile keys, values, cookies, tokens, headers, replies and requests, for a time.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=_positive, default=300.0, metavar="N", help="the time budget (300)")
    parser.add_argument("--seed", type=int, metavar="N", help="what to draw cases from (a new one each time)")
    parser.add_argument("--only", nargs="+", choices=list(AREAS), metavar="AREA", help=", ".join(AREAS))
    parser.add_argument("--replay", type=Path, metavar="FILE", help="try a case again that failed")
    parser.add_argument("--report", action="store_true", help=f"write {report.PAGE}")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError("a number of seconds above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
