"""The pages about who may come in: their programs run as they stand, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "patterns"
_PROGRAM = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
PROGRAMS = [
    pytest.param(*found, id=f"{page}-{number}")
    for page in ("sessions", "revocation", "preferences", "entitlements")
    for number, found in enumerate(_PROGRAM.findall((PAGES / f"{page}.md").read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_a_program_prints_what_its_page_says(program: str, printed: str, tmp_path: Path) -> None:
    """A reader who copies the program sees what the page shows, without a warning."""
    script = tmp_path / "program.py"
    script.write_text(program)
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)


def test_every_page_has_a_program() -> None:
    """Each of the pages shows a whole program, and the page on revocation one for tokens as well."""
    assert len(PROGRAMS) == 5
