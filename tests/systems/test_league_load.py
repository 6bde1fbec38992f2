"""The load on a league: one command plays users, and prints figures and advice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.systems.services import environment

pytestmark = pytest.mark.skipif(
    not Path(sys.executable).with_name("locust").exists(), reason="locust is not installed"
)


@pytest.mark.parametrize("scenario", ["realistic", "prewarm"])
def test_a_scenario_prints_figures_and_advice(scenario: str, tmp_path: Path) -> None:
    """Hit ratio, p95 and p99, errors and the advice are there; nobody was refused; two runs can be drawn."""
    picture = tmp_path / "prewarm.svg"
    words = [sys.executable, "-m", "ephemera.systems.league.load", scenario, "--users", "40"]
    words += ["--seconds", "6", "--arrive", "2", "--plot", str(picture)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False, env=environment())
    assert "errors      0\n" in done.stdout, done.stdout + done.stderr
    for figure in ("hit ratio", "p95", "p99", "advice", "evicted", "of answers"):
        assert done.stdout.count(figure) >= (2 if scenario == "prewarm" else 1)
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    if scenario == "prewarm":
        assert "prewarm on\n" in done.stdout
        assert "prewarm off\n" in done.stdout
