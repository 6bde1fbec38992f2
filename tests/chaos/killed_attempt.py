"""Runs a job and kills itself at a given moment: `... killed_attempt URL SQL JOB_ID before|after WHAT`.

WHAT is the claim, the record of a step in SQL, its checkpoint, the completion in SQL, or the end in Redis.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ephemera.patterns.jobs import Checkpoint
from ephemera.patterns.jobs._rows import JobRows
from tests.patterns.job_store import attempt_by, opened

PLACES: dict[str, tuple[type, str]] = {
    "claim": (JobRows, "claim"),
    "record": (JobRows, "record"),
    "checkpoint": (Checkpoint, "save"),
    "finish": (JobRows, "complete"),
    "end": (Checkpoint, "_end"),
}


def deadly(method: Callable[..., Any], when: str) -> Callable[..., Any]:
    """The same method, with SIGKILL before or after it."""

    async def dying(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            await method(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    return dying


async def main(url: str, sql: str, job_id: str, when: str, what: str) -> None:
    """Run the job until the process kills itself."""
    owner, name = PLACES[what]
    setattr(owner, name, deadly(getattr(owner, name), when))
    async with opened(url, sql) as jobs:
        await attempt_by(jobs, "killed").run(job_id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
