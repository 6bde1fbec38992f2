"""Stock and ours compared: which tests are defects, and which declared differences are stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tests.certified.execution import Outcome
from tests.certified.suite import ROOT, Suite, pattern

PASSED = "passed"
Outcomes = Mapping[str, Outcome]


@dataclass(frozen=True)
class Verdict:
    """What a run of a suite has shown."""

    defects: Mapping[str, str]
    """Tests that should pass with ours and do not, and why not."""
    stale: tuple[str, ...]
    """Declared differences that no longer differ."""

    @property
    def holds(self) -> bool:
        """Whether there is nothing to fix."""
        return not self.defects and not self.stale


def compare(suite: Suite, stock: Outcomes, ours: Outcomes) -> Verdict:
    """Judge a whole run; what passes stock has to pass with ours."""
    expected = [test for test, outcome in stock.items() if outcome.result == PASSED]
    verdict = judge(suite, expected, ours)
    broken = {**_broken(stock), **_broken(ours)}
    return Verdict({**verdict.defects, **broken}, verdict.stale)


def judge_alone(suite: Suite, ours: Outcomes, excused: Collection[str]) -> Verdict:
    """Judge a run without a stock one beside it: all is expected to pass but skips and the excused."""
    expected = [
        test
        for test, outcome in ours.items()
        if outcome.result not in ("skipped", "xfailed") and test not in excused
    ]
    return Verdict({**judge(suite, expected, ours).defects, **_broken(ours)}, ())


def judge(suite: Suite, expected: Iterable[str], ours: Outcomes) -> Verdict:
    """Return the expected tests that do not pass, and the declarations that none of them needs."""
    missing = Outcome("missing", "it was not run")
    failing = {test: ours.get(test, missing) for test in expected}
    failing = {test: outcome for test, outcome in failing.items() if outcome.result != PASSED}
    needed = {declaration for test in failing if (declaration := matching(suite.differences, test))}
    defects = {
        test: f"{outcome.result}: {outcome.reason}"
        for test, outcome in failing.items()
        if not matching(suite.differences, test)
    }
    return Verdict(defects, tuple(each for each in suite.differences if each not in needed))


def matching(declarations: Iterable[str], test: str) -> str | None:
    """Return the declaration that names this test, in full or by its beginning."""
    return next((each for each in declarations if pattern(each).match(test)), None)


def _broken(outcomes: Outcomes) -> dict[str, str]:
    """What failed and is no test: a file that cannot be imported, a run that stopped or ran nothing."""
    if not any(outcome.result == PASSED for outcome in outcomes.values()):
        return {"(the run)": "no test passed"}
    return {
        test: outcome.reason
        for test, outcome in outcomes.items()
        if outcome.result == "failed" and "::" not in test
    }


def count(outcomes: Outcomes) -> dict[str, int]:
    """Return how many tests had each outcome."""
    return dict(sorted(Counter(outcome.result for outcome in outcomes.values()).items()))


def reasons(outcomes: Outcomes, *results: str) -> dict[str, int]:
    """Return the first lines of the reasons for these results, with how many tests have each.

    Paths are shown from the root of the project: a record is the same on every machine.
    """
    texts = [each.reason.replace(f"{ROOT}/", "") for each in outcomes.values() if each.result in results]
    found = [text.strip() or "no reason given" for text in texts]
    return dict(Counter(reason.splitlines()[0][:150] for reason in found).most_common())
