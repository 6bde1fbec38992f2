"""Progress for tests: events of a generation, a stand-in for SQL, and conditions to wait for."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TypeAlias

import msgspec

from ephemera import Catalogue
from ephemera.patterns.progress import Listener, Missed, Progress, ProgressEntry, Snapshot


class SlideDone(msgspec.Struct, tag="slide_completed"):
    """A slide is done."""

    number: int


class Done(msgspec.Struct, tag="generation_done"):
    """All slides are done."""

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


class JobDatabase:
    """A stand-in for SQL: the state of jobs, and the number of queries."""

    def __init__(self) -> None:
        self.slides = 0
        self.ended = False
        self.asked = 0

    async def snapshot(self, job_id: str) -> Snapshot:
        """The state of a job."""
        self.asked += 1
        await asyncio.sleep(0)
        return Snapshot({"job": job_id, "slides": self.slides}, ended=self.ended)


async def collect(listener: Listener[Event], most: int | None = None) -> list[object]:
    """The updates of a listener until its end or a limit: numbers of slides, 'done', states of snapshots."""
    got: list[object] = []
    async with listener:
        async for update in listener:
            got.append(shown(update))
            if len(got) == most:
                break
    return got


def shown(update: ProgressEntry[Event] | Missed) -> object:
    """An update in the short form of tests."""
    if isinstance(update, Missed):
        return update.snapshot.state
    return "done" if isinstance(update.event, Done) else update.event.number
