"""Workers that are killed continually, and what must hold of their jobs in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.jobs import BoundJobs
from tests.patterns.job_fixtures import EFFECTS, JOBS
from tests.patterns.job_worker import Worker


class Workers:
    """A number of workers, each replaced when it is killed."""

    def __init__(self, start: Callable[..., Worker], count: int, processes: int = 2) -> None:
        self._made = partial(start, processes=processes)
        self._running = [self._made() for _ in range(count)]
        self.kills = 0

    def kill_oldest(self) -> None:
        """SIGKILL a whole worker, and start another."""
        self._running.pop(0).kill()
        self._running.append(self._made())
        self.kills += 1

    def end(self) -> None:
        """Kill all workers."""
        while self._running:
            self._running.pop().kill()


async def unfinished(engine: AsyncEngine) -> int:
    """How many jobs have not ended."""
    jobs = JOBS.tables.jobs
    async with engine.connect() as sql:
        waiting = jobs.c.state.in_(("waiting", "running"))
        return int((await sql.execute(select(func.count()).where(waiting))).scalar_one())


async def states(engine: AsyncEngine) -> dict[str, int]:
    """How many jobs are in each state."""
    jobs = JOBS.tables.jobs
    async with engine.connect() as sql:
        found = await sql.execute(select(jobs.c.state, func.count().label("n")).group_by(jobs.c.state))
        return {row.state: row.n for row in found}


async def killing(workers: Workers, engine: AsyncEngine, every: float, most: int, within: float) -> None:
    """Kill a worker at an interval until all jobs have ended, or a limit is reached.

    Without the limit no job would finish on a machine where a worker takes as long to start.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    next_kill = begun + every
    while await unfinished(engine):
        assert loop.time() - begun < within, await states(engine)
        if loop.time() >= next_kill and most > 0:
            next_kill += every
            most -= 1
            workers.kill_oldest()
        await asyncio.sleep(0.05)


async def steps_of(engine: AsyncEngine, job_id: str) -> list[tuple[str, int]]:
    """The recorded steps of a job in order, each with its fence."""
    steps = JOBS.tables.steps
    chosen = select(steps.c.name, steps.c.fence).where(steps.c.job_id == job_id).order_by(steps.c.done_at)
    async with engine.connect() as sql:
        return [(row.name, row.fence) for row in await sql.execute(chosen)]


async def effects_of(engine: AsyncEngine, job_id: str) -> list[tuple[str, int]]:
    """The effects of a job in order, each with its fence."""
    chosen = select(EFFECTS.c.step, EFFECTS.c.fence).where(EFFECTS.c.job_id == job_id).order_by(EFFECTS.c.id)
    async with engine.connect() as sql:
        return [(row.step, row.fence) for row in await sql.execute(chosen)]


async def check(jobs: BoundJobs, engine: AsyncEngine, ids: list[str], slides: int) -> int:
    """Check that each job is done, every step once and in order; returns how many were taken over."""
    taken_over = 0
    for job_id in ids:
        row = await jobs.get(job_id)
        assert row.state == "done", row
        steps: list[Any] = await steps_of(engine, job_id)
        assert await effects_of(engine, job_id) == steps
        assert [name for name, _ in steps] == [f"slide:{number}" for number in range(slides)]
        fences = [fence for _, fence in steps]
        assert fences == sorted(fences)
        taken_over += fences[-1] > 1
    return taken_over
