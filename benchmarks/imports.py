"""What importing costs: the CPU time of a process that does nothing else, its own start included.

Each round starts processes one after the other and takes the best of them, so that other work on the machine
does not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers

PROCESSES = 20


def cpu_time(source: str, processes: int = PROCESSES) -> float:
    """The least CPU time, in milliseconds, of this many processes that run the source."""
    return min(_cpu_time(source) for _ in range(processes)) * 1000


def _cpu_time(source: str) -> float:
    process = subprocess.Popen([sys.executable, "-c", source])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{source!r} failed")
    return usage.ru_utime + usage.ru_stime


def importing(package: str) -> Opener:
    """A contender whose figure is the CPU time of importing a package."""

    @asynccontextmanager
    async def opened(_servers: Servers) -> AsyncIterator[Round]:
        _cpu_time(f"import {package}")  # it is installed, and its bytecode is written

        async def measured_round(_seconds: float) -> float:
            return cpu_time(f"import {package}")

        yield measured_round

    return opened


ROWS = (
    Row(
        "import: CPU time of `import ephemera`",
        importing("ephemera"),
        {"redis-py": importing("redis")},
        (Times(1.0, "redis-py"),),
        unit="ms",
        higher_is_better=False,
    ),
)
