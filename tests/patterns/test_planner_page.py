"""The page on the planner: its program prints what the page says, and its tables name what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.patterns.planning import declare

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "planner.md").read_text(encoding="utf-8")


def test_the_program_prints_what_the_page_says(tmp_path: Path) -> None:
    """A reader who copies the program sees what the page shows, without a warning."""
    ((program, printed),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-W", "error", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)


def test_every_key_and_table_is_on_the_page() -> None:
    """What the planner declares, the page names; keys of locks are on the locks' page."""
    catalogue, metadata, _ = declare()
    for space in catalogue:
        if not space.pattern.startswith("lock:"):
            assert f"`{space.pattern}`" in PAGE
    for table in metadata.tables:
        assert f"`{table}`" in PAGE
