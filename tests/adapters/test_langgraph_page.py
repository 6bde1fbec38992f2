"""The page on LangGraph: its job runs; `tests/docs` runs its program."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from ephemera import connect
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import sql_engine
from tests.patterns.job_store import attempt_by

PAGE = (Path(__file__).parents[2] / "docs" / "adapters" / "langgraph.md").read_text(encoding="utf-8")
_, _, JOB = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.standalone("Celery's queues cannot be on a cluster")
async def test_the_job_runs(
    server: Valkey, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's job ends with its slides."""
    (tmp_path / "deck_job.py").write_text(JOB)
    monkeypatch.syspath_prepend(str(tmp_path))
    written = import_module("deck_job")
    engine = sql_engine(postgres.database("test_langgraph_page"))
    async with connect(server.url, written.catalogue, resources={written.JOBS: engine}) as store:
        jobs = store[written.JOBS]
        await jobs.create_tables()
        job_id = await jobs.enqueue(written.generate, topic="whales")
        assert await attempt_by(jobs).run(job_id) == "done"
        assert (await jobs.get(job_id)).result == ["whales, part 1", "whales, part 2", "whales, part 3"]
    await engine.dispose()
