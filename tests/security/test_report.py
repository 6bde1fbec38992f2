"""docs/security.md names an existing test for each claim; `make security` reports their outcomes."""

from __future__ import annotations

import ast
import re

import pytest

from tests.security.__main__ import (
    ALWAYS,
    CLAIMS_PAGE,
    ROOT,
    Claim,
    claims_of,
    counted,
    in_file_order,
    outcomes_of,
    page,
    verdict,
)

TEXT = CLAIMS_PAGE.read_text(encoding="utf-8")
CLAIMS = claims_of(TEXT)
REPORT = """<testsuites><testsuite>
<testcase classname="tests.security.test_reprs" name="test_a[1]"/>
<testcase classname="tests.security.test_reprs" name="test_a[2]"><failure message="x"/></testcase>
<testcase classname="tests.security.test_sharing" name="test_c"><skipped message="x"/></testcase>
</testsuite></testsuites>"""


def test_every_claim_names_a_test() -> None:
    """An item of the section Claims without a test is not allowed, and the section has nothing else."""
    assert len(CLAIMS) > 30
    assert [claim.what for claim in CLAIMS if not claim.tests] == []
    section = TEXT.partition("\n## Claims\n")[2].partition("\n## ")[0]
    assert "|---" not in section
    assert section.count("\n- ") == len(CLAIMS)


def test_every_named_test_exists() -> None:
    """A test that was moved or renamed is noticed; ids anywhere on the page count."""
    named = set(re.findall(r"`(tests/[^`]*::[^`]*)`", TEXT))
    assert named == {test for claim in CLAIMS for test in claim.tests}
    assert sorted(test for test in named if not _is_defined(test)) == []


def _is_defined(test: str) -> bool:
    file, _, name = test.partition("::")
    path = ROOT / file
    if not path.exists():
        return False
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(
        isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name for each in body
    )


def test_every_file_of_security_tests_belongs_to_a_claim() -> None:
    """What was tested is also said."""
    named = {test.partition("::")[0] for claim in CLAIMS for test in claim.tests}
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob(ALWAYS[0])}
    assert files - named == {"tests/security/test_report.py"}


def test_claims_are_read_from_the_page() -> None:
    """An item may span lines and name several tests; items of other sections are no claims."""
    items = "- One\n  thing. `tests/a.py::test_a`,\n  `tests/b.py::test_b`\n- Bare\n"
    text = f"# S\n- x\n## Claims\n### A\nWho.\n\n{items}\n## End\n- y\n"
    assert claims_of(text) == [
        Claim("One thing.", ("tests/a.py::test_a", "tests/b.py::test_b")),
        Claim("Bare", ()),
    ]


def test_named_tests_run_in_the_order_of_their_files() -> None:
    """Not by name: in some files an event loop of a browser is open from one test on."""
    names = (test_claims_are_read_from_the_page, test_every_claim_names_a_test, test_every_named_test_exists)
    tests = [f"tests/security/test_report.py::{each.__name__}" for each in names]
    assert in_file_order(tests) == [*tests[1:], tests[0]]


def test_what_failed_or_was_not_run_stands_out() -> None:
    """A claim whose tests failed or did not run is emphasized, and so is a failed audit."""
    outcomes = outcomes_of(REPORT)
    reprs, sharing = "tests/security/test_reprs.py::test_a", "tests/security/test_sharing.py::test_c"
    assert outcomes == {reprs: ["passed", "failed"], sharing: ["skipped"]}
    assert counted(["passed", "failed", "passed"]) == "2 passed, **1 failed**"
    claims = [Claim("separate", (sharing,)), Claim("silent", (reprs, "tests/x.py::test_x"))]
    text = page(claims, outcomes, 1, "audit: NOT AUDITED\n", 3)
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("|")}
    assert rows["separate"].endswith("| 1 skipped |")
    assert rows["silent"].endswith("| 1 passed, **1 failed**, **1 not run** |")
    assert "exit code 1 (0: every" in text
    assert "exit code 3" in text
    assert "NOT AUDITED" in text


@pytest.mark.parametrize(
    ("codes", "code", "said"),
    [
        ((0, 0, 0), 0, "no known vulnerability"),
        ((0, 0, 3), 0, "NOT AUDITED"),
        ((1, 0, 3), 1, "tests: FAILED"),
        ((0, 1, 0), 1, "fuzz run: FAILED"),
        ((0, 0, 1), 1, "dependencies: FAILED"),
        ((0, 0, -9), 1, "dependencies: FAILED"),
    ],
)
def test_failures_differ_from_an_audit_that_could_not_run(
    codes: tuple[int, int, int], code: int, said: str
) -> None:
    """Without a network only the last part is missing, and the line says so."""
    assert verdict(*codes)[0] == code
    assert said in verdict(*codes)[1]
