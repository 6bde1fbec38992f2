"""Progress for tests: events of a generation, a truth to take snapshots from, and what to wait for."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TypeAlias

import msgspec

from ephemera import Catalogue
from ephemera.patterns.progress import Listener, Missed, Progress, ProgressEntry, Snapshot


class SlideDone(msgspec.Struct, tag="slide_completed"):
    """A slide is there."""

    number: int


class Done(msgspec.Struct, tag="generation_done"):
    """All of them are."""

    slides: int


Event: TypeAlias = SlideDone | Done

CATALOGUE = Catalogue("test-progress")
PROGRESS: Progress[Event] = Progress(
    CATALOGUE, "gen_progress:{job_id}", SlideDone | Done, wake="pubsub:gen_progress", terminal=Done
)
SHORT: Progress[Event] = Progress(
    CATALOGUE,
    "short_progress:{job_id}",
    SlideDone | Done,
    wake="pubsub:short_progress",
    terminal=Done,
    max_entries=3,
    heartbeat=timedelta(milliseconds=100),
)


class Truth:
    """What SQL would know: the state of jobs, and how often it was asked."""

    def __init__(self) -> None:
        self.slides = 0
        self.ended = False
        self.asked = 0

    async def snapshot(self, job_id: str) -> Snapshot:
        """How a job stands."""
        self.asked += 1
        await asyncio.sleep(0)
        return Snapshot({"job": job_id, "slides": self.slides}, ended=self.ended)


async def collect(listener: Listener[Event], most: int | None = None) -> list[object]:
    """What a listener gets, until its end or so many: numbers of slides, 'done' and snapshots' states."""
    got: list[object] = []
    async with listener:
        async for update in listener:
            got.append(shown(update))
            if len(got) == most:
                break
    return got


def shown(update: ProgressEntry[Event] | Missed) -> object:
    """An update as a test writes it."""
    if isinstance(update, Missed):
        return update.snapshot.state
    return "done" if isinstance(update.event, Done) else update.event.number
