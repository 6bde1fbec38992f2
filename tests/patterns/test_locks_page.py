"""The page on locks: its example runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "locks.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path: Path) -> None:
    """The page's program ends well, without a warning, and says that the lock is free again."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "example.py").write_text(program)
    command = [sys.executable, "-W", "error", "example.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("free again", "", 0)
