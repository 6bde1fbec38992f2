"""MIS2: the timestamp of `slide_completed` was the start of the writing."""

from __future__ import annotations

import time
from pathlib import Path

from tests.services.services import serving
from tests.services.slides_processes import Model, working
from tests.services.slides_users import Person, administrator


def test_mis2_a_slide_is_completed_when_it_is_written(
    slides_places: dict[str, str], slides_model: Model, tmp_path: Path
) -> None:
    """The event has the time of its end, and the slide, which can be read before the next one is."""
    with serving("slides", tmp_path, **slides_places) as served, working(tmp_path, slides_places):
        administrator(served)
        anna = Person(served)
        slides_model.hold_at = 2
        slides_model.open.clear()
        begun = anna.begin("The time of a slide", 2)
        seen, released = {}, 0.0
        for message in anna.events(begun["job_id"]):
            event = message.data
            seen[event.get("event_type"), event.get("slide_number")] = event
            if event.get("event_type") == "slide_started" and event["slide_number"] == 2:
                shown = anna.want(200, "GET", f"/presentations/{begun['presentation_id']}")
                assert [slide["number"] for slide in shown["slides"]] == [1]
                assert shown["state"] == "running"
                released = time.time() * 1000
                slides_model.open.set()
        first, second = seen["slide_completed", 1], seen["slide_completed", 2]
        assert second["timestamp"] >= released
        assert first["slide"]["bullets"] == ["The first point of 1", "Ein zweiter Punkt"]
        assert first["slide"]["notes"] == ""
