"""A process that ticks or rebuilds, and stops at a given step for a test to kill it there.

Run as `python -m tests.chaos.planner_worker REDIS_URL SQL_URL STEP USER`; a STEP that begins with `tick.` is
one of a tick, any other is one of a run. It prints `here` when it has come to its step, or what came of it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import create_async_engine

from ephemera import connect
from ephemera.patterns.planner import Task
from ephemera.patterns.planner._ledger import Ledger
from ephemera.patterns.planner._runs import Runs
from ephemera.patterns.planner._working_set import Copies
from tests.patterns.planning import World, declare

BEFORE: dict[str, tuple[type, str]] = {
    "begin": (Runs, "begin"),  # the lock is taken
    "save": (Runs, "save"),  # the clusters are made
    "commit": (Runs, "_end"),  # everything is written, and not committed
    "tell": (Copies, "clustered"),  # committed
    "tick.rebuilt": (Ledger, "move_state"),  # the dirty channels are rebuilt
    "tick.candidates": (Copies, "users"),
    "tick.claim": (Ledger, "claim"),
    "tick.mark": (Copies, "handed_over"),  # claimed in SQL
    "tick.stamp": (Copies, "stamp"),
    "tick.settle": (Copies, "settle"),  # handed over
}
"""The steps, and before what each of them is."""


async def _stop(*_: Any, **__: Any) -> None:
    sys.stdout.write("here\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def _hand_over(tasks: Sequence[Task]) -> None:
    sys.stdout.write("".join(f"handed {task.user_id}\n" for task in tasks))
    sys.stdout.flush()


async def main(redis: str, sql: str, step: str, user: str) -> None:
    """Do it."""
    catalogue, _, declared = declare()
    engine = create_async_engine(sql)
    async with connect(redis, catalogue) as store:
        here = World(declared, store, engine)
        if step in BEFORE:
            setattr(*BEFORE[step], _stop)
        if step.startswith("tick."):
            await here.planner.tick(_stop if step == "tick.enqueue" else _hand_over)
        else:
            stop_at = {"build": "build", "invalidated": "invalidate"}.get(step, "")
            build = _stop if stop_at == "build" else here.build
            run = await here.planner.rebuild(
                user, build, invalidate=_stop if stop_at == "invalidate" else None
            )
            sys.stdout.write(f"{run.ending}\n")
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
