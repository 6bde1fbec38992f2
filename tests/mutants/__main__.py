"""The command `python -m tests.mutants`: draw mutants, run their tests, write docs/proof/mutants.md."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import report
from tests.mutants.executions import Executions, digest, record
from tests.mutants.known import EQUIVALENT
from tests.mutants.mutations import Mutation, mutations
from tests.mutants.runner import Copy, Outcome
from tests.mutants.targets import GROUPS, ROOT, files

VERDICTS = ROOT / "build/mutants/verdicts.jsonl"
"""Results so far: a run resumes where another was stopped, and judges survivors again."""


def main() -> int:
    """Run the command line; 0 when enough mutants were killed."""
    arguments = _parser().parse_args()
    if arguments.fresh:
        shutil.rmtree(VERDICTS.parent, ignore_errors=True)
    executions = record(arguments.processes) if arguments.minutes > 0 else Executions()
    chosen, equivalent = draw(arguments.seed, arguments.count, arguments.only or list(GROUPS))
    known = _known()
    found = [known.get((each.name, digest(each.path))) for _, each in chosen]
    outcomes = {each.name: each for each in found if each is not None}
    killed = {each.name for each in outcomes.values() if each.verdict == "killed"}
    waiting = [pair for pair in chosen if pair[1].name not in killed]
    with VERDICTS.open("a", encoding="utf-8") as verdicts:
        for outcome in _judge(waiting, executions, arguments):
            outcomes[outcome.name] = outcome
            verdicts.write(json.dumps(asdict(outcome)) + "\n")
            verdicts.flush()
            sys.stdout.write(f"{outcome.verdict:8} {outcome.seconds:6.1f} s  {outcome.name}  {outcome.by}\n")
            sys.stdout.flush()
    ordered = [outcomes[each.name] for _, each in chosen if each.name in outcomes]
    first = _first_verdicts()
    at_first = sum(first.get(each.name) == "killed" for each in ordered)
    report.write(ordered, equivalent, arguments.seed, len(chosen), at_first)
    share = report.share_killed(ordered)
    sys.stdout.write(f"{share:.0%} of {len(ordered)} killed; wrote {report.PAGE.relative_to(ROOT)}\n")
    return 0 if share >= report.FLOOR and len(ordered) == len(chosen) else 1


def draw(seed: int, total: int, groups: list[str]) -> tuple[list[tuple[str, Mutation]], list[str]]:
    """Return the mutants of a seed with their groups, and the equivalent ones that were drawn with them."""
    chosen: list[tuple[str, Mutation]] = []
    equivalent: list[str] = []
    for group in groups:
        wanted = round(total * GROUPS[group][0] / 100)
        for mutation in _shuffled(seed, group):
            if wanted == 0:
                break
            if mutation.name in EQUIVALENT:
                equivalent.append(mutation.name)
            else:
                chosen.append((group, mutation))
                wanted -= 1
    return sorted(chosen, key=lambda pair: _rank(seed, pair[1].name)), equivalent


def _shuffled(seed: int, group: str) -> list[Mutation]:
    """All mutants of a group that differ in name and can be compiled, in the order of the seed."""
    found = {
        each.name: each
        for path in files(group)
        for each in mutations(path, (ROOT / path).read_text(encoding="utf-8"))
    }
    return sorted(found.values(), key=lambda each: _rank(seed, each.name))


def _rank(seed: int, name: str) -> str:
    """A random order in which a mutant keeps its place when other code changes."""
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()


def _judge(
    waiting: list[tuple[str, Mutation]], executions: Executions, arguments: argparse.Namespace
) -> Iterator[Outcome]:
    deadline = time.monotonic() + arguments.minutes * 60
    with tempfile.TemporaryDirectory(prefix="ephemera-mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(arguments.processes):
            place = Path(folder) / str(number)
            place.mkdir()
            copies.put(Copy(place, arguments.seconds))

        def judge(group: str, mutation: Mutation) -> Outcome | None:
            began = time.monotonic()
            if began > deadline:
                return None
            copy = copies.get()
            try:
                verdict, by = copy.judge(mutation, executions.concerning(mutation))
            finally:
                copies.put(copy)
            seconds = round(time.monotonic() - began, 1)
            return Outcome(mutation.name, group, digest(mutation.path), verdict, by, seconds)

        with ThreadPoolExecutor(arguments.processes) as threads:
            for done in as_completed([threads.submit(judge, *pair) for pair in waiting]):
                outcome = done.result()
                if outcome is not None:
                    yield outcome


def _known() -> dict[tuple[str, str], Outcome]:
    """The last verdicts, by the mutant's name and the digest of the file as it was."""
    return {(each.name, each.digest): each for each in _verdicts()}


def _first_verdicts() -> dict[str, str]:
    """What came out when a mutant was first run, before anybody wrote a test for it."""
    return {each.name: each.verdict for each in reversed(_verdicts())}


def _verdicts() -> list[Outcome]:
    lines = VERDICTS.read_text(encoding="utf-8").splitlines() if VERDICTS.exists() else []
    return [Outcome(**json.loads(line)) for line in lines]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Mutate the code, and see whether the tests notice."
    )
    parser.add_argument("--count", type=int, default=100, metavar="N", help="how many mutants (100)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the draw (1)")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="mutants at a time (2)")
    parser.add_argument("--seconds", type=float, default=120, metavar="S", help="for the tests of one (120)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=240,
        metavar="N",
        help="start none after this (240); 0: write the page",
    )
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
