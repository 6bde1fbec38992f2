"""The page on tests of one's own: its suite passes in a project that has nothing but pytest-asyncio."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, READERS_PLUGINS, blocks_of


def test_the_suite_of_the_page_passes(tmp_path: Path) -> None:
    """A reader who copies the tests sees them pass, on a server that the plugin has started."""
    page = (DOCS / "testing.md").read_text(encoding="utf-8")
    (suite,) = [block.text for block in blocks_of("docs/testing.md", page) if block.language == "python"]
    (tmp_path / "test_shop.py").write_text(suite)
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto"]
    environment = {**os.environ, **READERS_PLUGINS}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
