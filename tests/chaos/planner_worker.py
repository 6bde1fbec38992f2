"""A process that ticks or rebuilds, and stops at a given step so that a test can kill it there.

Run as `python -m tests.chaos.planner_worker REDIS_URL SQL_URL STEP USER`; a STEP that begins with `tick.` is
one of a tick, any other is one of a run. It prints `here` when it has reached its step, or the outcome.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import create_async_engine

from ephemera import connect
from ephemera.patterns.planner import Task
from ephemera.patterns.planner._queries import PlannerRows
from ephemera.patterns.planner._rebuild import SqlRuns
from ephemera.patterns.planner._working_set import WorkingSet
from tests.patterns.planner_world import World, declare

BEFORE: dict[str, tuple[type, str]] = {
    "begin": (SqlRuns, "begin"),  # the lock is acquired
    "save": (SqlRuns, "save"),  # the clusters are built
    "commit": (SqlRuns, "_end"),  # everything is written, and not committed
    "follow": (WorkingSet, "record_rebuild"),  # committed
    "tick.swept": (PlannerRows, "advance"),  # the dirty channels are rebuilt
    "tick.candidates": (WorkingSet, "users"),
    "tick.claim": (PlannerRows, "claim"),
    "tick.mark": (WorkingSet, "mark_enqueued"),  # claimed in SQL
    "tick.update": (WorkingSet, "update_users"),
    "tick.clear": (WorkingSet, "clear_dirty"),  # enqueued
}
"""The steps, and the call before which each of them stops."""


async def _stop(*_: Any, **__: Any) -> None:
    sys.stdout.write("here\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def _enqueue(tasks: Sequence[Task]) -> None:
    sys.stdout.write("".join(f"enqueued {task.user_id}\n" for task in tasks))
    sys.stdout.flush()


async def main(redis: str, sql: str, step: str, user: str) -> None:
    """Run one tick or one rebuild."""
    catalogue, _, declared = declare()
    engine = create_async_engine(sql)
    async with connect(redis, catalogue) as store:
        here = World(declared, store, engine)
        if step in BEFORE:
            setattr(*BEFORE[step], _stop)
        if step.startswith("tick."):
            await here.planner.tick(_stop if step == "tick.enqueue" else _enqueue)
        else:
            stop_at = {"build": "build", "invalidated": "invalidate"}.get(step, "")
            build = _stop if stop_at == "build" else here.build
            run = await here.planner.rebuild(
                user, build, invalidate=_stop if stop_at == "invalidate" else None
            )
            sys.stdout.write(f"{run.outcome}\n")
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
