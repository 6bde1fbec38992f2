"""The pages on write-behind and usage: their programs run as they stand, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "patterns"


@pytest.mark.parametrize("page", ["write_behind", "usage"])
def test_the_program_prints_what_its_page_says(page: str, tmp_path: Path) -> None:
    """A reader who copies the program sees what the page shows, without a warning."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    ((program, printed),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-W", "error", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)
