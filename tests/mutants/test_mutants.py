"""Mutation testing itself: which changes are made, which tests are run, and what the report says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import report
from tests.mutants.__main__ import draw
from tests.mutants.executions import Executions
from tests.mutants.known import ACCEPTED, EQUIVALENT
from tests.mutants.mutations import Mutation, mutations
from tests.mutants.runner import Copy, Outcome
from tests.mutants.targets import GROUPS, ROOT, files, of_services

PYTHON = '''
def first(items: list[int], limit: int = 1) -> int | None:
    """Docs."""
    if not items or len(items) > limit:
        raise ValueError(f"{limit + 1}")
    items.sort()
    return items[0]
'''
LUA = """\
-- KEYS[1] a > b
local n = redis.call('GET', KEYS[1])
if n >= 10 then redis.call('DEL', KEYS[1]) end
return 1
"""
DOUBLED = "def doubled(n):\n    return n * 2\n"
CHECKS = """
from doubled import doubled

def test_broken(): assert False

def test_doubled(): assert doubled(3) == 6
"""


def changes(path: str, text: str) -> set[tuple[str, str]]:
    """What is replaced by what."""
    return {(each.before, each.after) for each in mutations(path, text)}


def test_python_is_changed_where_it_decides() -> None:
    """Comparisons, conditions, numbers, calls and results are changed; texts and types are not."""
    assert changes("a.py", PYTHON) == {
        ("1", "2"), ("not items", "items"), ("or", "and"), (">", ">="), ("items.sort()", "pass"),
        ('raise ValueError(f"{limit + 1}")', "pass"), ("items[0]", "None"), ("0", "1"),
    }  # fmt: skip


def test_lua_is_changed_outside_of_comments_and_texts() -> None:
    """Comparisons, numbers, writes and results of a script are changed; indexes of KEYS are not."""
    found = changes("a.lua", LUA)
    assert found == {(">=", ">"), ("10", "100"), ("redis.call('DEL', KEYS[1])", "do end"),
                     ("return 1", "return nil"), ("1", "2")}  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
def test_every_mutant_has_a_name_of_its_own(group: str) -> None:
    """All mutants of a group change their file and have different names."""
    names = []
    for path in files(group):
        assert of_services(path) or group != "access", path
        text = (ROOT / path).read_text(encoding="utf-8")
        for each in mutations(path, text):
            names.append(each.name)
            assert each.apply(text) != text
    assert len(names) == len(set(names)) > 100


def test_all_code_of_a_group_is_mutated() -> None:
    """A package whose `__init__.py` has functions counts, and so do scripts that patterns share."""
    chosen = {path for group in GROUPS for path in files(group)}
    assert {f"src/ephemera/patterns/{name}/__init__.py" for name in ("tokens", "windows", "cache")} <= chosen
    assert "src/ephemera/patterns/events/__init__.py" not in chosen
    assert {"src/ephemera/keyspace/lua/write.lua", "src/ephemera/patterns/lua/json.lua"} <= chosen
    assert "src/ephemera/patterns/_stored_records.py" in chosen


def test_a_seed_draws_the_same_mutants() -> None:
    """A hundred of them, spread over all groups; equivalent ones are replaced."""
    chosen, equivalent = draw(7, 100, list(GROUPS))
    assert [each.name for _, each in chosen] == [each.name for _, each in draw(7, 100, list(GROUPS))[0]]
    assert len(chosen) == 100
    assert not {each.name for _, each in chosen} & {*equivalent, *EQUIVALENT}


def test_tests_that_execute_the_line_are_chosen() -> None:
    """The tests of the mutated line, cheap and specific ones first, those of a file together."""
    path = "src/ephemera/wire/_url.py"
    [mutant] = [
        each for each in mutations(path, (ROOT / path).read_text("utf-8")) if "database 0 alone" in each.name
    ]
    line = bytes(mutant.line // 8) + bytes([1 << mutant.line % 8])
    found = Executions(
        seconds={"a.py::far": 0.1, "b.py::slow": 9.0, "b.py::near": 0.1, "b.py::vast": 0.1},
        total=Counter({"a.py::far": 1, "b.py::slow": 1, "b.py::near": 1, "b.py::vast": 500}),
    )
    found.lines[path] = dict.fromkeys(found.seconds, line) | {"a.py::far": b"\x02"}
    assert found.concerning(mutant) == ["b.py::near", "b.py::slow", "b.py::vast"]


def test_a_mutant_is_killed_by_a_test_that_fails_again_and_passes_on_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that fails on the original, too, says nothing; a project around the copy changes nothing."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")
    tree = tmp_path / "original"
    (tree / "src").mkdir(parents=True)
    (tree / "src/doubled.py").write_text(DOUBLED)
    (tree / "test_it.py").write_text(CHECKS)
    [product] = [each for each in mutations("src/doubled.py", DOUBLED) if each.before == "*"]
    copy = Copy(tmp_path, 60, tree)
    assert copy.judge(product, ["test_it.py::test_broken", "test_it.py::test_doubled"]) == (
        "killed", "test_it.py::test_doubled",
    )  # fmt: skip
    assert copy.judge(product, []) == ("survived", "no test executes it")
    assert copy.judge(product, ["test_it.py::test_gone"])[0] == "unclear"
    assert (tmp_path / "tree/src/doubled.py").read_text() == DOUBLED


def test_the_report_lists_survivors_with_their_reasons() -> None:
    """A survivor without a reason is shown as such, and a mutant without a verdict is not killed."""
    made = Mutation("a.py", 3, "first", 0, 1, "<", "<=")
    outcomes = [
        Outcome(made.name, "wire", "", "survived", "", 1.0),
        Outcome("b", "wire", "", "killed", "tests/x.py::test_x", 1.0),
        Outcome("c", "web", "", "unclear", "`tests/x.py::test_x` is not reliable", 1.0),
    ]
    text = report.page(outcomes, [], 7, drawn=4, at_first=0)
    assert "**1 of 3 killed (33%)**" in text
    assert "**0 of 3\n  (0%)**" in text
    assert "stopped before 1 were run" in text
    assert "| a.py::first: `<` -> `<=` | not examined yet |" in text
    assert "| wire | 2 | 1 |" in text


def test_what_is_known_is_about_code_that_exists() -> None:
    """A mutant that was examined can still be made, or its entry is removed."""
    known = {*EQUIVALENT, *ACCEPTED}
    paths = {name.partition("::")[0] for name in known}
    there = {
        each.name
        for path in paths
        if Path(ROOT / path).exists()
        for each in mutations(path, (ROOT / path).read_text(encoding="utf-8"))
    }
    assert sorted(known - there) == []
    assert all(len(reason) > 20 for reason in (*EQUIVALENT.values(), *ACCEPTED.values()))
