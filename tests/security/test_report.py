"""The report of `make security` says what came out, and names tests that there are."""

from __future__ import annotations

from pathlib import Path

from tests.security.__main__ import CLAIMS, counted, outcomes_of, page

TESTS = Path(__file__).parents[1]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.security.test_reprs" name="test_a"/>
<testcase classname="tests.security.test_reprs" name="test_b"><failure message="x"/></testcase>
<testcase classname="tests.security.test_sharing" name="test_c"><skipped message="x"/></testcase>
</testsuite></testsuites>"""


def test_every_claim_names_tests_that_there_are() -> None:
    """A moved file is noticed, and each file of tests/security belongs to a claim."""
    named = {file for claim in CLAIMS for file in claim.files}
    assert [file for file in named if not (TESTS / f"{file}.py").exists()] == []
    ours = {f"security/{path.stem}" for path in (TESTS / "security").glob("test_*.py")}
    assert ours - named == {"security/test_report"}


def test_what_failed_or_was_not_run_stands_out() -> None:
    """A claim whose tests failed or did not run is emphasized, and so is a failed audit."""
    outcomes = outcomes_of(REPORT)
    assert outcomes == {"security/test_reprs": ["passed", "failed"], "security/test_sharing": ["skipped"]}
    assert counted(["passed", "failed", "passed"]) == "2 passed, **1 failed**"
    text = page(outcomes, "audit: NOT AUDITED\n", 3)
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("|")}
    assert rows["no service reaches another's keys"].endswith("| 1 skipped |")
    assert rows["no secret in logs, errors, metrics, Redis"].endswith("**1 failed**, **1 not run** |")
    assert "exit code 3" in text
    assert "NOT AUDITED" in text
