"""The progress events of jobs, and the notifications of users; each is JSON with its type."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from ephemera.patterns.jobs import JobRow
from ephemera_services.slides.chart_data import Chart
from ephemera_services.slides.deck import SlideContent


def _now() -> int:
    return time.time_ns() // 1_000_000


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event_type"):
    """An event; `progress_pct` is of the whole job, `timestamp` milliseconds since 1970."""

    progress_pct: int
    timestamp: int = msgspec.field(default_factory=_now)


class OutlineReady(_Event, frozen=True, kw_only=True, tag="outline_ready"):
    """The outline is ready, from the model or the cache."""

    titles: list[str]


class SlideStarted(_Event, frozen=True, kw_only=True, tag="slide_started"):
    """A slide is being written."""

    slide_number: int
    slide_id: str
    slide_title: str


class SlideCompleted(_Event, frozen=True, kw_only=True, tag="slide_completed"):
    """A slide is written, and can be shown."""

    slide_number: int
    slide_id: str
    slide_title: str
    slide: SlideContent | None = None
    """The slide, without its notes."""
    chart: Chart | None = None
    """Its chart, ready to draw."""


class Done(_Event, frozen=True, kw_only=True, tag="generation_done"):
    """The job is done, and its result is in SQL; the last event."""

    kind: str


class Failed(_Event, frozen=True, kw_only=True, tag="error"):
    """The job ended without a result; the last event."""

    kind: str
    error_message: str


Event = OutlineReady | SlideStarted | SlideCompleted | Done | Failed


About = Literal["presentation", "document", "export"]


class JobNotification(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a user requested is ready, or has failed."""

    about: About
    id: str
    job_id: str
    state: Literal["ready", "failed"]
    detail: str


def final_event(row: JobRow) -> Done | Failed:
    """The last event of a job."""
    if row.state == "done":
        return Done(progress_pct=100, kind=row.kind)
    return Failed(progress_pct=100, kind=row.kind, error_message=public_error(row.state, row.error) or "")


def public_error(state: str, error: str | None) -> str | None:
    """The error of a job as users see it: the message of a failure, and never internals."""
    if state == "failed":
        return error
    return {
        "dead": "This could not be completed; please try again later.",
        "cancelled": "It was cancelled.",
    }.get(state)
