"""The soak's rule on made-up readings, and a short soak of the demonstration."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from tests.soak.verdict import Finding, Phase, Reading, as_csv, judge, table

HEALTHY: dict[Phase, tuple[float, int, int, int]] = {
    "before": (100, 20, 2, 3),
    "warm-up": (120, 40, 10, 5),
    "plateau": (130, 42, 10, 5),
    "traffic": (135, 42, 10, 5),
    "after": (133, 34, 2, 5),
}
"""Memory, descriptors, SQL connections and Redis clients in each phase."""


def findings_of(**after: Any) -> dict[str, Finding]:
    """The findings of a process that is healthy but for these readings after the traffic."""
    readings = [Reading("service", phase, *values) for phase, values in HEALTHY.items()]
    last = readings.pop()
    return {each.resource: each for each in judge([*readings, last._replace(**after)])}


def test_what_comes_back_passes() -> None:
    """Growth up to the plateau, and a little beyond it, is what caches and lazy connections are."""
    assert [each.holds for each in findings_of().values()] == [True] * 4


@pytest.mark.parametrize(
    ("resource", "value"), [("memory", 160), ("descriptors", 47), ("sql", 6), ("redis", 10)]
)
def test_what_does_not_come_back_fails(resource: str, value: float) -> None:
    """Each resource has its bound, and the table names the one that stayed above it."""
    findings = findings_of(**{resource: value})
    assert [name for name, each in findings.items() if not each.holds] == [resource]
    (line,) = [line for line in table(findings.values()).splitlines() if "did not come back" in line]
    assert resource in line


def test_one_reading_within_the_bound_is_enough() -> None:
    """A pool closes idle connections some time after the traffic: what counts is the lowest reading."""
    readings = [Reading("service", phase, *values) for phase, values in HEALTHY.items()]
    late = readings[-1]._replace(sql=10)
    assert all(each.holds for each in judge([*readings[:-1], late, readings[-1]]))
    assert not all(each.holds for each in judge([*readings[:-1], late]))


def test_readings_are_kept_for_each_process_over_time() -> None:
    """A line for each reading, with its process, its moment and every resource."""
    readings = [
        Reading("service", "plateau", 130.04, 42, 10, 5, 17.25),
        Reading("worker", "after", 90, 9, 2, 1),
    ]
    assert as_csv(readings).splitlines() == [
        "process,phase,memory,descriptors,sql,redis,at",
        "service,plateau,130.0,42,10,5,17.2",
        "worker,after,90,9,2,1,0.0",
    ]


@pytest.mark.campaign
@pytest.mark.timeout(400)
def test_a_short_soak_of_the_demonstration() -> None:
    """After half a minute of traffic every process gives back what it took."""
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0.4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    for service in ("identity", "slides", "scripture", "feed", "league"):
        assert re.search(rf"^{service} +sql +\d", done.stdout, re.MULTILINE)
    (line,) = re.findall(r"^(\d+) requests.* 0 of \d+ did not come back$", done.stdout, re.MULTILINE)
    assert int(line) > 20
