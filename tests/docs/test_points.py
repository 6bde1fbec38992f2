"""docs/systems has every point of a service's source description, each with a test that exists."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ROOT

POINTS = {"identity": 30, "slides": 46, "scripture": 27, "feed": 44, "league": 62}
"""How many points each description has."""
_MISSING = "| **Not there yet**"
"""Begins the last column of a point that no code and no test is for."""
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def page(service: str) -> str:
    """The page of a service."""
    return (ROOT / "docs" / "systems" / f"{service}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("service", POINTS)
def test_the_table_has_all_points(service: str) -> None:
    """They are numbered, and each has a test, or says that it is not there yet."""
    rows = [line for line in page(service).splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(line.split("|")[1]) for line in rows] == list(range(1, POINTS[service] + 1))
    assert [line for line in rows if bool(_TEST.search(line)) == (_MISSING in line)] == []


@pytest.mark.parametrize("service", POINTS)
def test_its_tests_exist(service: str) -> None:
    """Each is a function of the module that the table names."""
    named = _TEST.findall(page(service))
    assert [(module, name) for module, name in named if name not in _functions(module)] == []


@pytest.mark.parametrize("service", POINTS)
def test_its_places_exist(service: str) -> None:
    """Each module of the service that the page names is there, and has the name."""
    folder = ROOT / "services" / "src" / "ephemera_services" / service
    places = re.findall(r"`(\w+)\.(\w+)(?:\.\w+)?`", page(service))
    assert places
    for module, name in ((module, name) for module, name in places if name != "py"):
        assert re.search(rf"\b{name}\b", (folder / f"{module}.py").read_text(encoding="utf-8")), (
            module,
            name,
        )


def _functions(module: str) -> set[str]:
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
