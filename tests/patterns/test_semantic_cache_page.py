"""The page about the semantic cache: its program runs as it stands, and prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "patterns" / "semantic_cache.md"
_PROGRAM = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def test_the_program_prints_what_its_page_says(tmp_path: Path) -> None:
    """A reader who copies the program sees what the page shows, without a warning."""
    ((program, printed),) = _PROGRAM.findall(PAGE.read_text(encoding="utf-8"))
    script = tmp_path / "program.py"
    script.write_text(program)
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)
