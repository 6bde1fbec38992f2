"""The command `ephemera` with a clock that can be set.

Run it as `python -m tests.chaos.campaign.shifted_clock FILE PID ...`.

FILE holds one double, the seconds by which this process's wall clock is wrong; it is mapped into memory, so
a change is a jump at once, forwards or backwards, while the process runs. `time.time`, `time.time_ns` and
`datetime.now` are replaced before anything else is imported; `time.monotonic`, and so every timer, stays as
it is, as when an operator or NTP sets a machine's clock.

Chosen over libfaketime: no package, no LD_PRELOAD, nothing as root, and it jumps a process that runs. What
it cannot do is shift the clocks of Valkey and PostgreSQL, which are programs in C.

PID is the campaign's: with it gone, so is this process.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import gc
import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

_SIZE = 8
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def make(file: Path) -> None:
    """A file for a clock that is right."""
    file.write_bytes(struct.pack("d", 0.0))


def jump(file: Path, seconds: float) -> None:
    """Make the clock of the process that reads this file wrong by this many seconds."""
    with file.open("r+b") as opened:
        opened.write(struct.pack("d", seconds))


def install(file: Path) -> None:
    """Replace this process's wall clock with one that is wrong by what the file says."""
    with file.open("rb") as opened:
        page = mmap.mmap(opened.fileno(), _SIZE, access=mmap.ACCESS_READ)
    right_time, right_time_ns, right_now = time.time, time.time_ns, dt.datetime.now

    def wrong_by() -> float:
        found: float = struct.unpack("d", page[:_SIZE])[0]
        return found

    def shifted_now(cls: Any, tz: dt.tzinfo | None = None) -> dt.datetime:
        shifted = right_now(tz) + dt.timedelta(seconds=wrong_by())
        return shifted if cls is dt.datetime else cls.fromtimestamp(shifted.timestamp(), tz)

    time.time = lambda: right_time() + wrong_by()
    time.time_ns = lambda: right_time_ns() + int(wrong_by() * 1e9)
    # A built-in type takes no attributes; its dictionary does.
    methods: dict[str, Any] = gc.get_referents(dt.datetime.__dict__)[0]
    methods["now"] = classmethod(shifted_now)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(dt.datetime))


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)


def main() -> None:
    """Set the clock, and be `ephemera`."""
    file, parent, *arguments = sys.argv[1:]
    die_with(int(parent))
    install(Path(file))
    sys.argv = ["ephemera", *arguments]
    from ephemera.cli import main as ephemera

    ephemera()


if __name__ == "__main__":
    main()
