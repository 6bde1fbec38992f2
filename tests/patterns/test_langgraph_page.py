"""The page on LangGraph: its program prints what it says, and its job runs."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ephemera import connect
from ephemera.patterns.jobs.engines import sql_engine
from tests.patterns.job_store import attempt_by

if TYPE_CHECKING:
    import pytest

    from ephemera.embedded import Postgres, Valkey

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "langgraph.md").read_text(encoding="utf-8")
PROGRAM, JOB = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_program_prints_what_the_page_says(tmp_path: Path) -> None:
    """A reader who copies the program sees what the page shows, without a warning."""
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-W", "error", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)


async def test_the_job_runs(
    server: Valkey, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's job ends with its slides."""
    (tmp_path / "deck_job.py").write_text(JOB)
    monkeypatch.syspath_prepend(str(tmp_path))
    written = import_module("deck_job")
    engine = sql_engine(postgres.database("test_langgraph_page"))
    async with connect(server.url, written.catalogue) as store:
        jobs = written.JOBS.on(store, engine)
        await jobs.create_tables()
        job_id = await jobs.enqueue(written.generate, topic="whales")
        assert await attempt_by(jobs).run(job_id) == "done"
        assert (await jobs.get(job_id)).result == ["whales, part 1", "whales, part 2", "whales, part 3"]
    await engine.dispose()
