"""Every Python block of the documentation is executed, here or by the test that it names, or says why not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, blocks_of

_PATIENT = Path(__file__).parent / "patient"
_PYTHON = ("python", "py", "pycon")
_RUN_BY = re.compile(r"run by (?P<test>tests/\S+\.py)")
_NOT_RUN = re.compile(r"not run: \w.{10,}", re.DOTALL)
SHOWN = [block for block in blocks() if block.page == "README.md" or block.page.startswith("docs/")]
PROGRAMS = [block for block in SHOWN if block.language in _PYTHON and not block.note]


def not_executed(found: list[Block]) -> list[str]:
    """The Python blocks that have a note which is neither a test that knows their page, nor a reason."""
    wrong = []
    for block in found:
        if block.language not in _PYTHON or not block.note or _NOT_RUN.fullmatch(block.note):
            continue
        named = _RUN_BY.fullmatch(block.note)
        test = ROOT / named["test"] if named else None
        name = block.page.rpartition("/")[2].removesuffix(".md")
        if test is None or not test.exists() or name not in test.read_text(encoding="utf-8"):
            wrong.append(f"{block}: {block.note}")
    return wrong


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_prints_what_its_page_says(block: Block, tmp_path: Path) -> None:
    """A reader who copies the program sees what the page shows below it, without a warning."""
    (tmp_path / "program.py").write_text(block.text, encoding="utf-8")
    command = [sys.executable, "-W", "error", "program.py"]
    variables = {**os.environ, "PYTHONPATH": f"{_PATIENT}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=90, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (block.output, "", 0)


def test_what_is_not_executed_here_is_executed_elsewhere_or_says_why() -> None:
    """The notes of blocks name a test that reads their page, or give a reason."""
    assert not_executed(SHOWN) == []


def test_python_is_not_hidden_in_a_block_of_text() -> None:
    """What looks like Python is declared as Python, so that the rule above sees it."""
    hidden = re.compile(
        r"^(import \w|from \w+ import|async def |def \w+\(|@app\.|class \w+[(:])", re.MULTILINE
    )
    shown = [str(block) for block in SHOWN if block.language in ("", "text") and hidden.search(block.text)]
    assert shown == []


def test_the_rule_notices_what_breaks_it() -> None:
    """A block without a reason, with a test that is not there, or with one of another page, is found."""
    page = "\n\n".join(
        f"<!-- {note} -->\n```python\nimport this\n```"
        for note in (
            "not run:",
            "see below",
            "run by tests/docs/test_nothing.py",
            "run by tests/patterns/test_jobs_page.py",
            "not run: it would format the disk",
        )
    )
    found = blocks_of("docs/planted_page.md", page)
    assert [line.partition(": ")[0] for line in not_executed(found)] == [str(block) for block in found[:4]]
