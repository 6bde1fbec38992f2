"""Slides on tour: a worker is killed in mid-presentation, and another goes on at the next slide."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import psycopg

from ephemera_services.demo.processes import Process
from ephemera_services.demo.tour.guide import PATIENCE, Guide, Step
from ephemera_services.demo.traffic.slides import Author

_SLIDES, _KILLED_AFTER = 7, 2


async def _killed(guide: Guide) -> None:
    author = Author(guide.scene)
    async with author.visitor:
        begun = await author.want(202, "POST", "/presentations", json={"topic": "Tides", "slides": _SLIDES})
        told: list[tuple[str, int]] = []
        killed: Process | None = None
        async for event in _events(author, begun["job_id"]):
            kind, number = event.get("event_type", ""), event.get("slide_number", 0)
            if number:
                told.append((kind, number))
                guide.stage.screen.working_on(f"{kind.replace('_', ' ')} {number} of {_SLIDES}")
            if killed is None and (kind, number) == ("slide_completed", _KILLED_AFTER):
                killed = await _worker_of(guide, begun["job_id"])
                killed.kill()
                guide.tell(
                    f"{_KILLED_AFTER} of {_SLIDES} slides are written", f"{killed.part.name} gets SIGKILL"
                )
        guide.hold(killed is not None, f"there was no worker to kill; told was {told}")
        assert killed is not None  # noqa: S101 - held just now
        wanted = [(kind, n) for n in range(1, _SLIDES + 1) for kind in ("slide_started", "slide_completed")]
        guide.hold(told == wanted, f"the client was told {told}")
        guide.tell("the client, whose connection stayed open, is told of", _counted(told))
        job = await author.want(200, "GET", f"/jobs/{begun['job_id']}")
        guide.hold(job["state"] == "done" and job["attempts"] > 1, f"the job is {job}")
        finisher = await _worker_of(guide, begun["job_id"])
        guide.hold(finisher is not killed, "the killed worker finished it")
        guide.tell(f"the job is done, at attempt {job['attempts']}", f"by {finisher.part.name}")


def _counted(told: list[tuple[str, int]]) -> str:
    completed = [number for kind, number in told if kind == "slide_completed"]
    return f"slides {completed[0]} to {completed[-1]}, each once, in order"


async def _events(author: Author, job_id: str) -> AsyncIterator[dict[str, Any]]:
    """What is told of a job until its end, over one connection."""
    stream = author.visitor.http.stream("GET", f"/jobs/{job_id}/events", timeout=PATIENCE)
    async with stream as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


async def _worker_of(guide: Guide, job_id: str) -> Process:
    """The process whose job it is, or was last: SQL has the pid of its child."""
    url = guide.stage.servers.database_url
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as sql:
        found = await sql.execute("SELECT worker FROM slides.jobs WHERE id = %s", (job_id,))
        row = await found.fetchone()
    guide.hold(row is not None and row[0], "no worker has taken the job")
    assert row is not None  # noqa: S101 - held just now
    group = os.getpgid(int(row[0].rpartition(":")[2]))
    return next(each for each in guide.stage.processes.all() if each.pid == group)


STEPS = (Step("slides", "a worker is killed in mid-job, and another goes on at the next slide", _killed),)
