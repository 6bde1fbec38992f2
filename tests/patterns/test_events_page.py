"""The page on events: its example runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ephemera import Catalogue
from ephemera.patterns.events import Events
from tests.patterns.eventful import Removed

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "events.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    """A reader who copies the program sees what the page shows, without a warning."""
    ((program, printed),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "example.py").write_text(program)
    command = [sys.executable, "-W", "error", "example.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)


def test_the_dead_letters_key_is_as_the_page_says() -> None:
    """The key that the page names is the one that is used."""
    events = Events(Catalogue("page"), "gl:events:users", Removed, purpose="As on the page")
    assert f"`{events.keys({})[1]}`" in PAGE
