"""A pytest plugin that writes the outcome of each test, and why it was skipped, to a file of JSON lines.

It also leaves out the tests that a suite declares as left out.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

_FILE = Path(os.environ["CERTIFIED_OUTCOMES"])
_LEFT_OUT = [re.compile(each) for each in json.loads(os.environ["CERTIFIED_LEFT_OUT"])]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the suite declares."""
    left_out = [item for item in items if any(each.match(item.nodeid) for each in _LEFT_OUT)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write what a phase of a test adds to its outcome: its call, and failures around it."""
    if report.when == "call" or report.outcome != "passed":
        _write(report.nodeid, _outcome(report), _reason(report))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported is a failure, or a skip of all its tests."""
    if report.outcome != "passed":
        _write(report.nodeid, report.outcome, _reason(report))


def _outcome(report: pytest.TestReport) -> str:
    return "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        return str(getattr(crash, "message", report.longrepr))[-500:]
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""


def _write(test: str, outcome: str, reason: str) -> None:
    with _FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "reason": reason}) + "\n")
