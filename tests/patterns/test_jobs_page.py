"""The page on jobs: its two programs run unchanged, with the worker that it starts."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from ephemera import embedded
from ephemera.embedded import Postgres

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "jobs.md").read_text(encoding="utf-8")
MAIN = "from ephemera.cli import main; main()"


def test_the_programs_run(tmp_path: Path, postgres: Postgres) -> None:
    """The page's files and command print what the page shows."""
    for program in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / program.partition("\n")[0].removeprefix("# ")).write_text(program)
    (line,) = re.findall(r"```console\n(.*?)\n```", PAGE)
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    with embedded.valkey() as valkey:
        where = {"URL": valkey.url, "DATABASE_URL": postgres.database("test_jobs_page")}
        words = [where.get(word.removeprefix("$"), word) for word in shlex.split(line)[1:]]
        environment = {**os.environ, **where, "PYTHONWARNINGS": "ignore"}
        worker = subprocess.Popen([sys.executable, "-c", MAIN, *words], cwd=tmp_path, env=environment)
        try:
            done = subprocess.run(
                [sys.executable, "-W", "error", "ask.py"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            worker.terminate()
            worker.wait(30)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)
    assert worker.returncode == 0
