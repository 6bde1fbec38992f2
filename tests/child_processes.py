"""Whether processes that a test started, or their children, have ended.

A zombie has ended: it holds nothing but its exit code, which its parent has not read yet. When a process
exits, its own zombies pass to init, which reads their codes at a time of its own choosing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil


def is_alive(process: psutil.Process) -> bool:
    """Whether the process is still the one it was and runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def survivors(processes: Iterable[psutil.Process], within: float) -> list[psutil.Process]:
    """Return the processes that have not ended after this many seconds; at once when all have."""
    deadline = time.monotonic() + within
    while alive := [process for process in processes if is_alive(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return alive
