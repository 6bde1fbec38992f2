"""What is different in a program that gevent has patched (`gevent.monkey.patch_all()`).

There a thread is a greenlet, and all of them share one native thread, which the event loop must not occupy.
So the loop gets a native thread from gevent's pool, and callbacks are greenlets of the program's own thread.
Locks need no care: gevent's can be released from another native thread. Nor do direct connections: their
sockets are gevent's, which let other greenlets run while one waits.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any


def is_patched() -> bool:
    """Whether threads are greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


class NativeThread:
    """A native thread, where `threading.Thread` would be a greenlet."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._target = target
        self._pool: Any = import_module("gevent.threadpool").ThreadPool(1)
        self._result: Any = None

    def start(self) -> None:
        """Start it."""
        self._result = self._pool.spawn(self._target)

    def join(self) -> None:
        """Wait for its end, while other greenlets run."""
        self._result.get()
        self._pool.kill()


class Greenlets:
    """Runs functions as greenlets of the thread it was created in."""

    def __init__(self) -> None:
        self._gevent: Any = import_module("gevent")
        self._loop = self._gevent.get_hub().loop

    def submit(self, function: Callable[..., Any], *args: Any) -> None:
        """Run a function; called from the loop's thread."""
        self._loop.run_callback_threadsafe(self._gevent.spawn, function, *args)

    def shutdown(self, **_: bool) -> None:
        """Do nothing: greenlets that are running end by themselves."""


class GreenletQueue:
    """A queue from the loop's thread to a greenlet."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._count: Any = import_module("gevent.lock").Semaphore(0)

    def put(self, item: Any) -> None:
        """Append an item."""
        self._items.append(item)
        self._count.release()

    def get(self) -> Any:
        """Take the first item, and wait for it while other greenlets run."""
        self._count.acquire()
        return self._items.popleft()
