"""Another client of the server: `python -m benchmarks.bystander URL SECONDS` prints its GET p99 in ms.

Without SECONDS it pings once a millisecond until its input ends, and prints how long the longest PING took.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import uvloop

from ephemera.wire import open_client

KEY = "account:profile:000000000000"
_EVERY = 0.001  # seconds
_PATIENT = "?timeout=30&connect_timeout=30"  # a server that is blocked for long is what is to be measured


def undisturbed(pid: int = 0) -> None:
    """Let a process run whenever it can, before all others, where the system allows that."""
    with contextlib.suppress(PermissionError):
        for thread in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(1))


async def waits(url: str, seconds: float) -> list[float]:
    """How long each GET took, in seconds."""
    took: list[float] = []
    async with open_client(url) as client:
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            await client.call("GET", KEY)
            took.append(time.perf_counter() - began)
            await asyncio.sleep(_EVERY)
    return took


async def longest_ping(url: str) -> float:
    """The longest PING until the input ends, in seconds."""
    longest, end = 0.0, asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with open_client(url + _PATIENT) as client:
        while not end.done():
            began = time.perf_counter()
            await client.call("PING")
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(_EVERY)
    return longest


def main() -> None:
    """Measure, and print one figure."""
    undisturbed()
    if len(sys.argv) == 2:
        print(uvloop.run(longest_ping(sys.argv[1])) * 1000)
        return
    took = sorted(uvloop.run(waits(sys.argv[1], float(sys.argv[2]))))
    print(took[int(0.99 * len(took))] * 1000)


if __name__ == "__main__":
    main()
