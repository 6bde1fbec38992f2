"""glibc's malloc in a service: freed memory goes back to the system, rather than to each thread's own arena.

A password check allocates one block of 8 MiB or more in one of several threads. By default glibc learns from
the first such block to keep the next ones, in each thread: 25 MB of a service that verifies passwords
with 8 MiB, which nothing uses between two sign-ins.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_MMAP_THRESHOLD = ("MALLOC_MMAP_THRESHOLD_", -3, 1024 * 1024)  # bytes: larger blocks are unmapped when freed
_ARENA_MAX = ("MALLOC_ARENA_MAX", -8, 2)
"""The environment variable of an option, its number in malloc.h, and our value."""


def tune_malloc() -> None:
    """Return large blocks to the system, and share two arenas; the environment's own settings win.

    Call it before threads are started. It does nothing on systems without glibc.
    """
    with suppress(OSError, AttributeError, TypeError):  # on Windows a library needs a name
        mallopt = ctypes.CDLL(None).mallopt
        for variable, option, value in (_MMAP_THRESHOLD, _ARENA_MAX):
            if variable not in os.environ:
                mallopt(option, value)
