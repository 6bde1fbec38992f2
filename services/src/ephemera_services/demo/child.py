"""A child process of the demo: an `ephemera` command that ends when the demo does.

Its stdin is a pipe that the demo holds open and never writes to. When the demo ends, for whatever reason, the
pipe is closed, and this process kills its whole process group, including the processes of a worker. The demo
starts each child in a group of its own, so that Ctrl-C reaches only the demo, which stops them in order.
"""

from __future__ import annotations

import os
import signal
import threading


def exit_with_parent() -> None:
    """Make this process exit when the process that holds its stdin exits."""
    threading.Thread(target=_exit_at_eof, name="exit with parent", daemon=True).start()


def _exit_at_eof() -> None:
    os.read(0, 1)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    exit_with_parent()
    from ephemera.cli import main

    main()
