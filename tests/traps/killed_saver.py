"""Saves checkpoints until it is killed: `python -m tests.traps.killed_saver ours|naive URL JOB_ID`.

The naive way is three commands: the step, the progress entry, the publication.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from ephemera import connect
from ephemera.patterns.jobs._checkpoint import Checkpoints
from tests.patterns.job_fixtures import CATALOGUE, JOBS, PROGRESS, Stepped


async def main(way: str, url: str, job_id: str) -> None:
    """Save as fast as possible; print a line after the first ten."""
    async with connect(url, CATALOGUE) as store:
        checkpoint = Checkpoints(JOBS.checkpoints, PROGRESS, store, "jobs:finished").open(job_id, 1, "killed")
        for number in count():
            if way == "ours":
                await checkpoint.save({f"step:{number}": b"1"}, event=Stepped(number))
            else:
                await store.call("HSET", f"naive:{job_id}", f"step:{number}", "1")
                await store.call("XADD", f"naive-progress:{job_id}", "*", "d", number)
                await store.call("PUBLISH", "naive-wake", job_id)
            if number == 10:
                sys.stdout.write("begun\n")
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
