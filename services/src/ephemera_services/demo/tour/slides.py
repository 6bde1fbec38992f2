"""Tour of slides: a worker is killed mid-job, and another one continues with the next slide."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import psycopg

from ephemera_services.demo.processes import Process
from ephemera_services.demo.tour.steps import TIMEOUT, CheckFailed, Step, StepContext
from ephemera_services.demo.traffic.slides import Author

_SLIDES, _KILLED_AFTER = 7, 2


async def _killed(context: StepContext) -> None:
    author = Author(context.traffic)
    async with author.client:
        accepted = await author.expect(
            202, "POST", "/presentations", json={"topic": "Tides", "slides": _SLIDES}
        )
        events: list[tuple[str, int]] = []
        killed: Process | None = None
        async for event in _events(author, accepted["job_id"]):
            kind, number = event.get("event_type", ""), event.get("slide_number", 0)
            if number:
                events.append((kind, number))
                context.demo.screen.update_status(f"{kind.replace('_', ' ')} {number} of {_SLIDES}")
            if killed is None and (kind, number) == ("slide_completed", _KILLED_AFTER):
                killed = await _worker_of(context, accepted["job_id"])
                killed.kill()
                context.report(
                    f"{_KILLED_AFTER} of {_SLIDES} slides are written", f"{killed.spec.name} gets SIGKILL"
                )
        if killed is None:
            raise CheckFailed(f"there was no worker to kill; events: {events}")
        expected = [(kind, n) for n in range(1, _SLIDES + 1) for kind in ("slide_started", "slide_completed")]
        context.check(events == expected, f"the client received {events}")
        context.report("the client, whose connection stayed open, receives", _summary(events))
        job = await author.expect(200, "GET", f"/jobs/{accepted['job_id']}")
        context.check(job["state"] == "done" and job["attempts"] > 1, f"the job is {job}")
        finisher = await _worker_of(context, accepted["job_id"])
        context.check(finisher is not killed, "the killed worker finished the job")
        context.report(f"the job is done in attempt {job['attempts']}", f"by {finisher.spec.name}")


def _summary(events: list[tuple[str, int]]) -> str:
    completed = [number for kind, number in events if kind == "slide_completed"]
    return f"slides {completed[0]} to {completed[-1]}, each exactly once, in order"


async def _events(author: Author, job_id: str) -> AsyncIterator[dict[str, Any]]:
    """The events of a job until its end, over one connection."""
    stream = author.client.http.stream("GET", f"/jobs/{job_id}/events", timeout=TIMEOUT)
    async with stream as response:
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


async def _worker_of(context: StepContext, job_id: str) -> Process:
    """The process that runs or last ran a job: SQL has the pid of its child."""
    url = context.demo.servers.database_url
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as sql:
        cursor = await sql.execute("SELECT worker FROM slides.jobs WHERE id = %s", (job_id,))
        row = await cursor.fetchone()
    if row is None or not row[0]:
        raise CheckFailed("no worker has claimed the job")
    group = os.getpgid(int(row[0].rpartition(":")[2]))
    return next(each for each in context.demo.processes.all() if each.pid == group)


STEPS = (
    Step("slides", "a worker is killed mid-job, and another one continues with the next slide", _killed),
)
