"""A process of the demonstration: a command of `ephemera` that ends with whoever started it.

Its stdin is a pipe that the demonstration holds and never writes to. When that ends, in whatever way, the
pipe ends, and this process takes its whole group with it: a worker's processes as well. The demonstration
starts each in a group of its own, so that Ctrl-C reaches the demonstration alone, which then stops them in
order.
"""

from __future__ import annotations

import os
import signal
import threading


def end_with_owner() -> None:
    """Have this process end with the one that holds its stdin."""
    threading.Thread(target=_end_at_eof, name="end with owner", daemon=True).start()


def _end_at_eof() -> None:
    os.read(0, 1)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    end_with_owner()
    from ephemera.cli import main

    main()
