"""Runs a graph, and kills itself at a given moment.

`... job URL SQL JOB_ID MOMENT` runs the job; `... thread URL LOG THREAD_ID MOMENT` runs a graph of its own,
which writes the number of each node in a file. A moment is `in:8`, at the beginning of node 8; `before:put:8`
or `after:write:3`, at the eighth or third script of that name; or `never`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ephemera import connect
from ephemera.adapters.langgraph import _thread_storage as in_jobs
from tests.adapters.graph_fixtures import CATALOGUE, THREADS, State, chain, config, write_slide
from tests.adapters.graph_job_fixtures import MOMENTS
from tests.patterns.job_store import attempt_by, opened


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


async def die_in_node(_: Any) -> None:
    """Kill this process, in a node."""
    die()


def die_at(moment: str) -> None:
    """Arrange for SIGKILL before or after a script of a job's graph."""
    when, name, number = moment.split(":")
    run, seen = in_jobs.JobThreadStorage.run, 0

    async def deadly(self: Any, thread_id: str, script: Any, /, *arguments: Any) -> Any:
        nonlocal seen
        seen += script.name == f"langgraph_{name}"
        now = script.name == f"langgraph_{name}" and seen == int(number)
        if now and when == "before":
            die()
        reply = await run(self, thread_id, script, *arguments)
        if now:
            die()
        return reply

    storage: Any = in_jobs.JobThreadStorage
    storage.run = deadly


async def in_a_job(url: str, sql: str, job_id: str, moment: str) -> None:
    """Run a job."""
    if moment.startswith("in:"):
        MOMENTS[int(moment.removeprefix("in:"))] = die_in_node
    elif moment != "never":
        die_at(moment)
    async with opened(url, sql) as jobs:
        print(await attempt_by(jobs, f"worker-{os.getpid()}").run(job_id))


async def in_a_thread(url: str, log: str, thread_id: str, moment: str) -> None:
    """Start a graph in a thread, or continue it."""

    async def node(number: int, state: State) -> dict[str, Any]:
        if moment == f"in:{number}":
            die()
        with Path(log).open("a") as file:
            file.write(f"{number}\n")
        return await write_slide(number, state)

    async with connect(url, CATALOGUE) as store:
        graph = chain(node).compile(checkpointer=store[THREADS])
        known = await store[THREADS].aget_tuple(config(thread_id))
        first: State | None = None if known else {"topic": "whales", "slides": []}
        state = await graph.ainvoke(first, config(thread_id), durability="sync")
        print(len(state["slides"]))


if __name__ == "__main__":
    asyncio.run({"job": in_a_job, "thread": in_a_thread}[sys.argv[1]](*sys.argv[2:]))
