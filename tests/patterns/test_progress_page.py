"""The pages on progress and fan-out: their examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "patterns"


@pytest.mark.parametrize(
    ("page", "last"),
    [
        ("progress.md", ["SlideDone(number=3)", "Done(slides=3)"]),
        ("fanout.md", ["1 your export is ready", "0"]),
    ],
)
def test_the_example_runs(tmp_path: Path, page: str, last: list[str]) -> None:
    """The page's program ends well, without a warning, and ends with what it is expected to print."""
    (program,) = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "example.py").write_text(program)
    command = [sys.executable, "-W", "error", "example.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines()[-2:] == last
