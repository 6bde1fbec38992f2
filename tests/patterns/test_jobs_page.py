"""The page on jobs: its programs run unchanged, with the worker that it starts."""

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
    block = re.findall(r"```console\n(.*?)\n```", PAGE, re.DOTALL)[0]
    printed = "".join(re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL))
    with embedded.valkey() as valkey:
        where = {"URL": valkey.url, "DATABASE_URL": postgres.database("test_jobs_page")}
        migrate, work = (
            [
                sys.executable,
                "-c",
                MAIN,
                *(where.get(word.removeprefix("$"), word) for word in shlex.split(line)[1:]),
            ]
            for line in block.splitlines()
        )
        environment = {**os.environ, **where, "PYTHONWARNINGS": "ignore"}
        subprocess.run(migrate, cwd=tmp_path, env=environment, check=True, timeout=60)
        worker = subprocess.Popen(work, cwd=tmp_path, env=environment)
        try:
            ran = [
                subprocess.run(
                    [sys.executable, "-W", "error", program],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                for program in ("ask.py", "options.py")
            ]
        finally:
            worker.terminate()
            worker.wait(30)
    assert "".join(done.stderr for done in ran) == ""
    assert "".join(done.stdout for done in ran) == printed
    assert [done.returncode for done in ran] == [0, 0]
    assert worker.returncode == 0
