"""The page on rate limits: its example runs, and its names exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "rate_limits.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path: Path) -> None:
    """The page's program runs without a warning, and prints what the page shows."""
    program, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "example.py").write_text(program)
    command = [sys.executable, "-W", "error", "example.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    first, second, third = done.stdout.splitlines()
    assert first == "True {'api': 59, 'login': 4}"
    assert second == "False ['login'] 1"
    assert 18_270 <= int(third) <= 18_400  # some units come back while the program runs


def test_the_page_documents_every_public_name() -> None:
    """Every public name of the package is on the page, or is the type of a result."""
    import ephemera.patterns.rate_limits as module

    given = {
        "Claim",
        "Decision",
        "Limit",
        "BoundRateLimits",
        "LocalShare",
        "Outcome",
        "CostReservation",
        "Rule",
        "RuleCounts",
        "DeniedClaim",
        "MAX_LOGGED",
        "WhenDown",
    }
    assert [name for name in set(module.__all__) - given if name not in PAGE] == []
