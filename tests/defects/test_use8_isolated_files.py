"""USE8: a test saw a key that another file had left in another database of the shared server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_WRITER = """
def test_writes(server):
    server.ask("SET", "left-behind", "x")
    server.ask("EVAL", "redis.call('SELECT', 8); return redis.call('SET', 'left-behind', 'x')", 0)
    assert "db8" in server.ask("INFO", "keyspace")
"""
_READER = """
def test_sees_no_keys_of_another_file(server):
    assert "db" not in server.ask("INFO", "keyspace")
"""


def test_use8_a_file_does_not_see_keys_of_another_file(tmp_path: Path) -> None:
    """Keys that one file leaves in any database of the shared server are gone when the next file starts."""
    (tmp_path / "test_1_writer.py").write_text(_WRITER, encoding="utf-8")
    (tmp_path / "test_2_reader.py").write_text(_READER, encoding="utf-8")
    plugins = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=_ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr
