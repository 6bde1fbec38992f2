"""The dependency audit: its offline part passes, and it does not take silence for safety."""

from __future__ import annotations

import json
from typing import Any

from tools.dependency_audit import at_odds, brought, is_same, normal, pins, unpinned, vulnerabilities

REPORT: dict[str, Any] = json.loads("""
{"dependencies": [
  {"name": "jinja2", "version": "2.4.1", "vulns": [
    {"id": "PYSEC-2014-8", "fix_versions": ["2.7.2"], "aliases": ["CVE-2014-1402"], "description": "x"},
    {"id": "PYSEC-2019-217", "fix_versions": [], "aliases": [], "description": "x"}]},
  {"name": "msgspec", "version": "0.20.0", "vulns": []},
  {"name": "ours", "skip_reason": "Dependency not found on PyPI and could not be audited: ours (1)"}],
 "fixes": []}
""")


def test_everything_that_we_bring_is_pinned() -> None:
    """Each package that one of our extras installs has its version in constraints.txt, and all agree."""
    assert {"hiredis", "msgspec", "fastapi", "celery", "starlette"} <= brought("ephemera-services")
    assert unpinned() == []
    assert at_odds() == []


def test_pins_are_of_one_version_each() -> None:
    """A name has one pin, however it is spelt."""
    assert len(pins()) > 100
    assert all(name == normal(name) for name in pins())


def test_a_build_of_the_pinned_version_is_that_version() -> None:
    """PyTorch for processors calls itself 2.0+cpu; another version is another."""
    assert is_same("2.13.0+cpu", "2.13.0")
    assert not is_same("2.13.1", "2.13.0")


def test_a_report_is_read_and_silence_is_no_answer() -> None:
    """What pip-audit found is listed; who was skipped is not: so services are tried first."""
    found = vulnerabilities(REPORT)
    assert [each.split(";")[0] for each in found] == [
        "jinja2 2.4.1: PYSEC-2014-8",
        "jinja2 2.4.1: PYSEC-2019-217",
    ]
    assert vulnerabilities({}) == []
