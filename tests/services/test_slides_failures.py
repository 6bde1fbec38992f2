"""Failures without a crash: a model that fails or refuses, a worker that is stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psycopg
from websockets.sync.client import connect

from tests.services.slides_processes import Model, working
from tests.services.slides_users import Person, every_slide, slide_events


def test_a_model_that_fails_is_asked_again(
    anna: Person, slides_model: Model, slides_places: dict[str, str], tmp_path: Path
) -> None:
    """After an error of the model the job resumes at the same slide, with each event once."""
    begun = anna.begin("An unreliable model", 2)
    slides_model.refusals = [500]
    with working(tmp_path, slides_places):
        assert slide_events(list(anna.events(begun["job_id"]))) == every_slide(2)
    job = anna.finished(begun["job_id"])
    assert (job["state"], job["attempts"], job["error"]) == ("done", 2, None)


def test_a_model_that_refuses_ends_the_job(
    anna: Person, slides_model: Model, slides_places: dict[str, str], tmp_path: Path
) -> None:
    """The user sees the reason, the quota is refunded, and nothing is retried."""
    url = anna.served.url.replace("http:", "ws:") + "/notifications"
    with connect(url, additional_headers={"cookie": anna.cookie}) as socket:
        begun = anna.begin("A model that refuses", 2)
        assert anna.want(200, "GET", "/usage")["reserved"]["presentations"] == 1
        slides_model.refusals = [401]
        with working(tmp_path, slides_places):
            messages = list(anna.events(begun["job_id"]))
            note = json.loads(socket.recv(timeout=30))["message"]
    assert messages[-2].data["event_type"] == "error"
    assert "is it configured correctly?" in messages[-2].data["error_message"]
    assert (note["id"], note["state"]) == (begun["presentation_id"], "failed")
    view = anna.want(200, "GET", f"/presentations/{begun['presentation_id']}")
    assert (view["state"], view["slides"]) == ("failed", [])
    assert view["error"] == messages[-2].data["error_message"]
    usage = anna.want(200, "GET", "/usage")
    assert usage["reserved"]["presentations"] == 0
    path = f"/presentations/{begun['presentation_id']}/exports"
    assert anna.ask("POST", path, json={"format": "pdf"}).status_code == 409


def test_a_failed_presentation_is_reported(
    anna: Person, slides_model: Model, slides_places: dict[str, str], tmp_path: Path
) -> None:
    """After the last attempt the user is notified without internal details, and the quota is refunded."""
    url = anna.served.url.replace("http:", "ws:") + "/notifications"
    with connect(url, additional_headers={"cookie": anna.cookie}) as socket:
        begun = anna.begin("A model that fails each time", 2)
        with psycopg.connect(slides_places["EPHEMERA_DATABASE_URL"]) as sql:
            sql.execute("UPDATE slides.jobs SET attempts = 7 WHERE id = %s", (begun["job_id"],))
        slides_model.refusals = [500]
        with working(tmp_path, slides_places):
            note = json.loads(socket.recv(timeout=30))["message"]
    assert (note["id"], note["state"]) == (begun["presentation_id"], "failed")
    assert note["detail"] == "This could not be completed; please try again later."
    assert anna.want(200, "GET", f"/presentations/{begun['presentation_id']}")["state"] == "dead"
    assert anna.want(200, "GET", "/usage")["reserved"]["presentations"] == 0


def test_a_worker_that_stops_hands_its_presentation_on(
    anna: Person, slides_model: Model, slides_places: dict[str, str], tmp_path: Path
) -> None:
    """After SIGTERM the present slide is finished, the next worker continues, and it is one attempt."""
    topic, log = "Handed on", tmp_path / "slides-worker.log"
    slides_model.hold_at = 2
    slides_model.open.clear()
    begun = anna.begin(topic, 4)
    with working(tmp_path, slides_places) as first:
        _until(lambda: slides_model.slides_asked(topic) == [1, 2])
        first.terminate()
        _until(
            lambda: b"is released after its current step" in log.read_bytes()
        )  # it looks once a second whether it shall
        slides_model.open.set()
        assert first.wait(60) == 0
    assert slides_model.slides_asked(topic) == [1, 2]
    with working(tmp_path, slides_places):
        job = anna.finished(begun["job_id"])
    assert (job["state"], job["attempts"]) == ("done", 1)
    assert slides_model.slides_asked(topic) == [1, 2, 3, 4]
    assert slide_events(list(anna.events(begun["job_id"]))) == every_slide(4)


def _until(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
