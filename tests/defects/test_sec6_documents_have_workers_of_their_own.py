"""SEC6: two 12.9 KB PDFs occupied both workers of slides, and an unrelated job never started."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from ephemera.cli import WorkerOptions
from ephemera.embedded import Postgres, Valkey
from ephemera_services import workers
from tests.defects.hostile_documents import HOSTILE
from tests.defects.service_apps import opened
from tests.defects.slides_accounts import set_plan, sign_in
from tests.services.services import Served, serving
from tests.services.slides_processes import working
from tests.services.slides_users import EDITOR, FREE, Person, administrator

_LIMITS = {"EPHEMERA_SLIDES_DOCUMENTS_UNREAD": "2", "EPHEMERA_SLIDES_READING_SECONDS": "1"}


@pytest.fixture(scope="module")
def places(slides_places: dict[str, str]) -> dict[str, str]:
    """The service with low limits for documents."""
    return {**slides_places, **_LIMITS}


@pytest.fixture(scope="module")
def service(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The service, without workers."""
    with serving("slides", tmp_path_factory.mktemp("logs"), **places) as running:
        administrator(running)
        yield running


def test_sec6_hostile_documents_delay_no_other_tenant(
    service: Served, places: dict[str, str], tmp_path: Path
) -> None:
    """While one tenant's documents are refused one by one, another's is read."""
    anna, ivan = Person(service), Person(service, FREE)
    bombs = [ivan.upload(HOSTILE["pdf-form-tree"](), "bomb.pdf").json()["job_id"] for _ in range(2)]
    refused = ivan.upload(b"one more", "more.txt")
    assert refused.status_code == 429
    assert "2 of your organization's documents wait to be read" in refused.json()["detail"]
    mine = anna.upload(b"Krill is small and red.", "krill.txt").json()["job_id"]
    with working(tmp_path, places, 2, queues=("ingestion",)):
        assert anna.finished(mine)["state"] == "done"
        with psycopg.connect(places["EPHEMERA_DATABASE_URL"], autocommit=True) as sql:
            jobs = _ended(sql)
    assert {jobs[bomb].error for bomb in bombs} <= {
        "Reading the document takes more than 1 s; split it, or send its text.",
        "The document contains no text; is it a scan?",  # a fast processor comes to its end
    }
    assert jobs[mine].finished_at < max(jobs[bomb].finished_at for bomb in bombs)


def test_sec6_a_worker_reads_documents_only_if_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `--queue` a worker takes every queue but that of documents, which have workers of their own."""
    taken: list[tuple[str, ...]] = []
    monkeypatch.setattr(workers, "run_jobs", lambda _, options: taken.append(options.queues))
    workers.run_slides(WorkerOptions())
    workers.run_slides(WorkerOptions(queues=("ingestion",)))
    assert taken == [("generation", "export"), ("ingestion",)]


async def test_sec6_exports_of_an_organization_are_bounded(server: Valkey, postgres: Postgres) -> None:
    """Twenty wait at most, even if all are started at once; of a presentation the ten newest files stay."""
    url = postgres.database("slides_bounded_exports")
    async with opened("slides", server, postgres, {"EPHEMERA_DATABASE_URL": url}) as app:
        anna, ivan = await sign_in(app, EDITOR), await sign_in(app, FREE)
        await set_plan(anna, "enterprise", requests_per_minute=1_000_000)
        paths = []
        for user in (anna, ivan):
            begun = await user.want(202, "POST", "/presentations", json={"topic": "Whales", "slides": 1})
            paths.append(f"/presentations/{begun['presentation_id']}/exports")
        _finish_jobs(url)
        form = {"format": "pdf"}
        started = await asyncio.gather(*(anna.ask("POST", paths[0], json=form) for _ in range(25)))
        assert Counter(each.status_code for each in started) == {202: 20, 429: 5}
        await ivan.want(202, "POST", paths[1], json=form)
        _finish_jobs(url)
        newest = await anna.want(202, "POST", paths[0], json=form)
        listed = [each.json()["export_id"] for each in started if each.status_code == 202]
        kept = [(await anna.ask("GET", f"/exports/{each}")).status_code for each in listed]
        assert Counter(kept) == {200: 9, 404: 11}
        await anna.want(200, "GET", f"/exports/{newest['export_id']}")


def _finish_jobs(url: str) -> None:
    with psycopg.connect(url) as sql:
        sql.execute("UPDATE slides.jobs SET state = 'done', result = '{}', finished_at = now()")


def _ended(sql: psycopg.Connection) -> dict[str, Any]:
    """All jobs, when they have ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with sql.cursor(row_factory=namedtuple_row) as cursor:
            rows: list[Any] = cursor.execute(
                "SELECT id, state, error, worker, finished_at FROM slides.jobs"
            ).fetchall()
        if all(row.finished_at for row in rows):
            return {row.id: row for row in rows}
        time.sleep(0.1)
    raise AssertionError(rows)
