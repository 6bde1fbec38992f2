"""The harness notices what it is for: defects, stale declarations, runs without tests, and old pages."""

from __future__ import annotations

import pytest

from tests.certified.comparison import Verdict, compare, count, judge_alone, reasons
from tests.certified.execution import Outcome
from tests.certified.report import PAGE, page, recorded
from tests.certified.suite import FOLDER, ROOT, Suite, chosen, declared, fill, pattern

PASSED, FAILED, SKIPPED = Outcome("passed"), Outcome("failed", "no"), Outcome("skipped", "no server")


def suite(**differences: str) -> Suite:
    """A suite whose declared differences are these tests."""
    return Suite(
        name="shop",
        distribution="shop",
        version="1",
        tests=("tests",),
        what="a shop",
        ours="",
        differences={f"t.py::{test}": why for test, why in differences.items()},
    )


@pytest.mark.parametrize("ours", [FAILED, SKIPPED, None])
def test_what_passes_stock_and_not_with_ours_is_a_defect(ours: Outcome | None) -> None:
    """Failing, being skipped and not being there are all worse than passing."""
    outcomes = {"t.py::a": PASSED, **({"t.py::b": ours} if ours else {})}
    verdict = compare(suite(), {"t.py::a": PASSED, "t.py::b": PASSED}, outcomes)
    assert [*verdict.defects] == ["t.py::b"]


def test_what_fails_stock_is_not_asked_of_ours() -> None:
    """A test that stock fails or skips may do either with ours."""
    stock = {"t.py::a": PASSED, "t.py::b": FAILED, "t.py::c": SKIPPED}
    assert compare(suite(), stock, {**stock, "t.py::c": FAILED}).holds


def test_a_declared_difference_is_none_once_it_passes() -> None:
    """A declaration excuses its test, with its parameters, and is stale as soon as none of them fails."""
    stock = {"t.py::a": PASSED, "t.py::b[1]": PASSED}
    declaring = suite(b="equality would be wrong")
    assert compare(declaring, stock, {**stock, "t.py::b[1]": FAILED}).holds
    assert compare(declaring, stock, stock) == Verdict({}, ("t.py::b",))


@pytest.mark.parametrize("broken", [{}, {"t.py::a": SKIPPED}, {"t.py::a": PASSED, "other.py": FAILED}])
def test_a_run_that_did_not_run_its_tests_is_a_defect(broken: dict[str, Outcome]) -> None:
    """Nothing that passed, or a file that cannot be imported, on either side."""
    whole = {"t.py::a": PASSED}
    assert not compare(suite(), broken, whole).holds
    assert not judge_alone(suite(), broken, ()).holds


def test_the_short_run_excuses_what_the_record_names() -> None:
    """Without a stock run beside it, a failure counts unless stock is known to fail there too."""
    ours = {"t.py::a": PASSED, "t.py::b": FAILED, "t.py::c": SKIPPED}
    assert not judge_alone(suite(), ours, ()).holds
    assert judge_alone(suite(), ours, ["t.py::b"]).holds
    assert judge_alone(suite(b="why"), ours, ()).holds


def test_counts_and_reasons() -> None:
    """The record has the number of each outcome, and of each reason for a skip."""
    outcomes = {"a": PASSED, "b": SKIPPED, "c": SKIPPED, "d": Outcome("xfailed", "later")}
    assert count(outcomes) == {"passed": 1, "skipped": 2, "xfailed": 1}
    assert reasons(outcomes, "skipped", "xfailed") == {"no server": 2, "later": 1}


def test_a_record_names_no_path_of_a_machine() -> None:
    """Reasons have paths from the root of the project on; no record has one of another kind."""
    there = {"a": Outcome("failed", f"nothing in {ROOT}/build/certified/tls")}
    assert reasons(there, "failed") == {"nothing in build/certified/tls": 1}
    for record in (FOLDER / "recorded").glob("*.json"):
        assert "/build/" not in record.read_text(encoding="utf-8"), record.name


def test_placeholders_leave_other_braces() -> None:
    """Only the names that servers give are replaced."""
    assert fill("{'a': {port}}", {"port": "7"}) == "{'a': 7}"


def test_a_declaration_names_tests_by_their_beginning() -> None:
    """In full, by a file or class, or with `*` for any text; brackets mean themselves."""
    for named in ("t.py::a[x-tls]", "t.py::a", "t.py", "*[*tls"):
        assert pattern(named).match("t.py::a[x-tls]"), named
    assert not pattern("t.py::b").match("t.py::a[x-tls]")
    assert not pattern("*[*tls").match("t.py::tls")


def test_an_unknown_suite_is_named() -> None:
    """The error says what there is."""
    with pytest.raises(SystemExit, match="no suite shop; there are"):
        chosen(["shop"])


@pytest.mark.parametrize("each", declared(), ids=lambda each: each.name)
def test_each_suite_is_recorded_and_has_its_plugin(each: Suite) -> None:
    """A record of the declared version, nothing in it that fails with ours alone, and the plugin it names."""
    assert recorded(each), f"run: make certify ARGS='--suite {each.name}'"
    assert not each.ours or (FOLDER / "plugins" / f"{each.ours}.py").exists()
    assert all(reason for reason in (*each.differences.values(), *each.left_out.values()))


def test_the_page_is_what_the_records_say() -> None:
    """After a change of a declaration, render the page: `python -m tests.certified --page`."""
    assert PAGE.read_text(encoding="utf-8") == page([(each, recorded(each)) for each in declared()])
