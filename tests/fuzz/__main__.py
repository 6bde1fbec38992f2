"""The command `python -m tests.fuzz`: generate hostile input, report failures and how to replay them."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tests.fuzz import failures, report
from tests.fuzz.areas import AREAS
from tests.fuzz.runner import Budget, Failure, Tally, fuzz_area, replay_cases

_EPILOGUE = """\
examples:
  python -m tests.fuzz                                  five minutes, a random seed
  python -m tests.fuzz --seconds 3600 --seed 7          an hour; the same seed draws the same cases
  python -m tests.fuzz --only resp headers              some areas, which share the time
  python -m tests.fuzz --replay build/fuzz/FILE.txt     replay a failed case
  python -m tests.fuzz --seconds 1800 --report          and write docs/proof/fuzz.md

exit code: 0 when every trial held, 1 when one failed, 2 for wrong usage.
"""


def main() -> int:
    """Run the command line; return the exit code."""
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
            began = time.monotonic()

            def show(tally: Tally, task: TaskID = task, began: float = began) -> None:
                text = f"{tally.area}: {tally.trial.name} ({tally.cases:,} cases)"
                progress.update(task, description=text, completed=time.monotonic() - began)

            tallies += fuzz_area(area, seed, Budget(seconds=share), Path(folder), show)
            progress.update(task, description=f"{area.name}: done", completed=share)
    report.show(screen, tallies)
    broken = [tally.failure for tally in tallies if tally.failure is not None]
    for failure in broken:
        _print_failure(screen, failure)
    if arguments.report:
        report.write(tallies, seed, arguments.seconds, arguments.only)
        screen.print(f"wrote {report.PAGE}")
    return 1 if broken else 0


def _print_failure(screen: Console, failure: Failure) -> None:
    path = failures.save(failure)
    last = failure.error.strip().splitlines()[-1][:300]
    screen.print(f"[red]{failure.area}: {failure.trial}[/red]: {escape(last)}")
    screen.print(f"  replay: {failures.replay_command(path)}", soft_wrap=True)


def _replay(screen: Console, path: Path) -> int:
    area, trial, case = failures.load(path)
    with tempfile.TemporaryDirectory(prefix="ephemera-fuzz-") as folder:
        try:
            replay_cases(AREAS[area], [(trial, case)], Path(folder))
        except Exception:
            screen.print_exception(show_locals=False)
            return 1
    screen.print(f"{area}: {trial}: it holds")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Fuzz keys, values, cookies, tokens, headers, replies and requests.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=_positive, default=300.0, metavar="N", help="the time budget (300)")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the cases (default: random)")
    parser.add_argument("--only", nargs="+", choices=list(AREAS), metavar="AREA", help=", ".join(AREAS))
    parser.add_argument("--replay", type=Path, metavar="FILE", help="replay a failed case")
    parser.add_argument("--report", action="store_true", help=f"write {report.PAGE}")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError("a number of seconds above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
