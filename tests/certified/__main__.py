"""`python -m tests.certified [--suite NAME ...] [--short]`: run the suites, and write what came of them.

Four runs go on at the same time, since most of them sleep; in the short version, which repeats no test, two.
Exit code 1: a test that passes stock does not pass with ours, or a declared difference no longer differs. The
output of each run is in build/certified/outcomes.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from time import monotonic

from tests.certified.comparison import Verdict, compare, count, judge_alone
from tests.certified.execution import OURS, STOCK, Execution, execute
from tests.certified.report import record, record_whole, recorded, write_page
from tests.certified.suite import Suite, chosen

RUNS_AT_ONCE, SHORT_RUNS_AT_ONCE = 4, 2


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = ArgumentParser(prog="make certify", description=__doc__)
    parser.add_argument("--suite", action="append", default=[], metavar="NAME", help="this one; repeatable")
    parser.add_argument("--page", action="store_true", help="only render the page from the records")
    parser.add_argument("--short", action="store_true", help="ours alone, on a part of each, and no page")
    options = parser.parse_args()
    if options.page:
        write_page()
        return 0
    suites, started = chosen(options.suite), monotonic()
    with ThreadPoolExecutor(SHORT_RUNS_AT_ONCE if options.short else RUNS_AT_ONCE) as pool:
        verdicts = _short(pool, suites) if options.short else _whole(pool, suites)
    if not options.short:
        if not options.suite:
            record_whole(monotonic() - started)
        write_page()
    failed = [name for name, verdict in verdicts.items() if not verdict.holds]
    say(f"{len(suites)} suites in {monotonic() - started:.0f} s; {', '.join(failed) or 'none'} failed")
    return int(bool(failed))


def _short(pool: ThreadPoolExecutor, suites: list[Suite]) -> dict[str, Verdict]:
    runs = {pool.submit(execute, suite, OURS, suite.short, label="-short"): suite for suite in suites}
    verdicts = {}
    for run in as_completed(runs):
        suite, execution = runs[run], run.result()
        _progress(suite, OURS, execution)
        excused = recorded(suite).get("not_passing_stock", ())
        verdicts[suite.name] = judge_alone(suite, execution.outcomes, excused)
        _explain(suite, verdicts[suite.name])
    return verdicts


def _whole(pool: ThreadPoolExecutor, suites: list[Suite]) -> dict[str, Verdict]:
    runs: dict[Future[Execution], tuple[Suite, str]] = {
        pool.submit(execute, suite, mode): (suite, mode)
        for suite in sorted(
            suites, key=_seconds, reverse=True
        )  # a long one at the end would leave a core idle
        for mode in ((STOCK, OURS) if suite.stock else (OURS,))
    }
    done: dict[str, dict[str, Execution]] = {suite.name: {} for suite in suites}
    verdicts = {}
    for run in as_completed(runs):
        suite, mode = runs[run]
        done[suite.name][mode] = run.result()
        _progress(suite, mode, run.result())
        if len(done[suite.name]) == 1 + suite.stock:
            verdicts[suite.name] = _conclude(suite, done[suite.name].get(STOCK), done[suite.name][OURS])
    return verdicts


def _seconds(suite: Suite) -> int:
    """How long the suite took when it was recorded."""
    return sum(recorded(suite).get("seconds", {}).values())


def _conclude(suite: Suite, stock: Execution | None, ours: Execution) -> Verdict:
    """Judge both runs; tests that differ run once more, alone, since others' tests may depend on timing."""
    verdict = _judge(suite, stock, ours)
    again = [test for test in verdict.defects if "::" in test]
    if again:
        say(f"{suite.name}: {len(again)} tests differ and run again")
        stock = stock and _replaced(suite, STOCK, stock, again)
        ours = _replaced(suite, OURS, ours, again)
        verdict = _judge(suite, stock, ours)
    _explain(suite, verdict)
    record(suite, stock, ours, len(again))
    return verdict


def _judge(suite: Suite, stock: Execution | None, ours: Execution) -> Verdict:
    if stock is None:
        return judge_alone(suite, ours.outcomes, ())
    return compare(suite, stock.outcomes, ours.outcomes)


def _replaced(suite: Suite, mode: str, before: Execution, tests: Iterable[str]) -> Execution:
    """Return the run with the outcomes that these tests have when they run by themselves."""
    after = execute(suite, mode, tests, label="-again")
    return Execution({**before.outcomes, **after.outcomes}, before.seconds + after.seconds)


def _progress(suite: Suite, mode: str, execution: Execution) -> None:
    counts = ", ".join(f"{many} {result}" for result, many in count(execution.outcomes).items())
    say(f"{suite.name} {mode}: {counts or 'nothing ran'} in {execution.seconds:.0f} s")


def _explain(suite: Suite, verdict: Verdict) -> None:
    for test, why in verdict.defects.items():
        say(f"  DEFECT {suite.name} {test}: {why[:300]}")
    for declaration in verdict.stale:
        say(f"  STALE {suite.name} {declaration}: declared as a difference, and does not differ")


def say(line: str) -> None:
    """Print a line at once: a run takes minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
