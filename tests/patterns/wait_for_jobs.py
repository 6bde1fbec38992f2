"""Conditions that tests of jobs wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ephemera.patterns.jobs import BoundJobs, JobRow


async def until(condition: Callable[[], Awaitable[Any]], within: float = 60.0) -> float:
    """Return the seconds until an awaited condition held; fail when it took more than `within`."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not await condition():
        assert loop.time() - begun < within, f"not within {within} s"
        await asyncio.sleep(0.02)
    return loop.time() - begun


async def ended(jobs: BoundJobs, job_id: str, within: float = 60.0) -> JobRow:
    """The row of a job when it has ended."""

    async def over() -> bool:
        return (await jobs.get(job_id)).ended

    await until(over, within)
    return await jobs.get(job_id)


async def stepped(jobs: BoundJobs, job_id: str, steps: int, within: float = 60.0) -> JobRow:
    """The row of a job when a number of its steps are recorded."""

    async def far_enough() -> bool:
        return (await jobs.get(job_id)).steps >= steps

    await until(far_enough, within)
    return await jobs.get(job_id)
