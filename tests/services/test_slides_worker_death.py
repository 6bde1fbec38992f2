"""A worker is killed mid-generation: another one continues, and only the log shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from ephemera import sync
from ephemera.embedded import Valkey
from ephemera_services.slides import catalogue
from ephemera_services.slides.keys import JOBS
from tests.services.slides_processes import Model, working
from tests.services.slides_users import Message, Person, every_slide, slide_events

_LOCK = 7_700_008
_HOLD = f"""
CREATE OR REPLACE FUNCTION slides.hold() RETURNS trigger AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared({_LOCK}); RETURN NEW; END $$ LANGUAGE plpgsql;
CREATE OR REPLACE TRIGGER hold BEFORE INSERT ON slides.jobs_steps
FOR EACH ROW WHEN (NEW.name = 'start:8') EXECUTE FUNCTION slides.hold();
"""
_HELD = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@contextmanager
def _held_before_slide_8(database: str) -> Iterator[psycopg.Connection[Any]]:
    """No worker gets to slide 8 within this block: the record that it is begun waits for a lock."""
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute(_HOLD)
        sql.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        try:
            yield sql
        finally:
            for (backend,) in sql.execute(_HELD).fetchall():  # the dead worker's statement
                sql.execute("SELECT pg_terminate_backend(%s)", (backend,))
            sql.execute("DROP TRIGGER hold ON slides.jobs_steps")
            sql.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def test_a_killed_workers_presentation_is_finished_by_another(
    anna: Person,
    slides_model: Model,
    slides_queue: Valkey,
    slides_places: dict[str, str],
    tmp_path: Path,
) -> None:
    """SIGKILL after slide 7 of 15: each slide is requested and published once; the checkpoint is deleted."""
    database = slides_places["EPHEMERA_DATABASE_URL"]
    begun = anna.begin("Lives of a worker", 15)
    watched: list[Message] = []
    with _held_before_slide_8(database) as sql, working(tmp_path, slides_places) as first:
        watching = anna.events(begun["job_id"])
        for message in watching:
            watched.append(message)
            if message.data.get("event_type") == "slide_completed" and message.data["slide_number"] == 7:
                break
        _until(lambda: sql.execute(_HELD).fetchone() is not None)
        first.kill()
        first.wait()
        assert anna.want(200, "GET", f"/jobs/{begun['job_id']}")["slides_completed"] == 7
        assert slides_model.slides_asked("Lives of a worker") == [1, *range(3, 8)], "2 is the agenda"
        assert {"_fence", "_worker", "_graph:checkpoint", "_graph:value", "_graph:latest"} <= _fields(
            slides_queue, begun["job_id"]
        )
    with working(tmp_path, slides_places):
        watched += watching  # the same connection, which was open all the time
    assert slide_events(watched) == every_slide(15)
    assert [message.name for message in watched].count("snapshot") <= 1, "at most where it began"
    assert slides_model.slides_asked("Lives of a worker") == [1, *range(3, 16)]
    assert slides_model.outlines_asked("Lives of a worker") == 1

    job = anna.want(200, "GET", f"/jobs/{begun['job_id']}")
    assert (job["state"], job["attempts"], job["result"]["slides"]) == ("done", 2, 15)
    made = anna.want(200, "GET", f"/presentations/{begun['presentation_id']}")
    assert [slide["number"] for slide in made["slides"]] == list(range(1, 16))
    with sync.connect(slides_queue.url, catalogue) as store:
        left = store.call("HKEYS", JOBS.checkpoints.key(job_id=begun["job_id"]))
    assert left == [b"_fence"], "what is left for an hour refuses the dead worker, should it come back"

    late = list(anna.events(begun["job_id"]))
    assert slide_events(late) == every_slide(15), "a late client gets every event"
    fifth = next(message for message in late if message.data.get("slide_number") == 5)
    again = list(anna.events(begun["job_id"], after=fifth.id))
    assert slide_events(again) == slide_events(late)[slide_events(late).index(("slide_started", 5)) + 1 :]
    assert {message.name for message in again} == {"message", "end"}


def test_a_queued_job_is_cancelled(
    anna: Person, slides_model: Model, slides_places: dict[str, str], tmp_path: Path
) -> None:
    """Its message still arrives, and finds nothing to do: the model is never asked, its place is free."""
    begun = anna.begin("Never to be written", 2)
    assert anna.want(200, "GET", f"/jobs/{begun['job_id']}")["state"] == "waiting"
    anna.want(204, "POST", f"/jobs/{begun['job_id']}/cancel")
    later = anna.begin("Written instead", 1)
    with working(tmp_path, slides_places):
        assert anna.finished(later["job_id"])["state"] == "done"
    assert anna.want(200, "GET", f"/jobs/{begun['job_id']}")["state"] == "cancelled"
    assert slides_model.outlines_asked("Never to be written") == 0
    assert anna.want(200, "GET", "/usage")["reserved"]["presentations"] == 0


def _fields(queue: Valkey, job_id: str) -> set[str]:
    """The kinds of fields of a job's checkpoint: their names without what follows the second colon."""
    with sync.connect(queue.url, catalogue) as store:
        names = store.call("HKEYS", JOBS.checkpoints.key(job_id=job_id))
    return {":".join(name.decode().split(":")[:2]) for name in names}


def _until(holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
