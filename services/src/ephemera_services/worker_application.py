"""`ephemera worker --system NAME`: what a service does besides answering, in a process of its own.

A system that has such work has a module `worker` with two names: its `Settings`, and `working(settings)`, an
async context manager that works for the length of its block. The block lasts until SIGTERM or SIGINT. A
system whose work is jobs has `JOBS` in place of `working`: a worker of Celery runs them. Unlike a service, a
worker starts no servers of its own: nobody else would be on them.

A worker that was told to stop ends, whatever its servers do: what has not ended within its patience is
logged and broken off, which others make good as after a SIGKILL.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from contextlib import AbstractAsyncContextManager
from typing import Any

from ephemera_services.settings import InvalidSettings, SystemSettings

logger = logging.getLogger(__name__)

PATIENCE = 45.0
"""Seconds in which a worker ends that was told to stop: runs under way may have 30 of them."""


def must_name_servers(settings: SystemSettings) -> None:
    """Raise `InvalidSettings` unless Redis and the database are named."""
    named = {"EPHEMERA_URL": settings.url, "EPHEMERA_DATABASE_URL": settings.database_url}
    missing = [f"{name} must be set: a worker shares the service's" for name, url in named.items() if not url]
    if missing:
        raise InvalidSettings(missing)


async def until_told(working: AbstractAsyncContextManager[object], *, patience: float | None = None) -> None:
    """Work until the process is told to stop, and end cleanly; within a patience, if given, in any case."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell() -> None:
        if patience is not None and not told.is_set():
            _end_within(patience, loop)
        told.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, tell)
    async with working:
        logger.info("working")
        await told.wait()
        logger.info("stopping")


def _end_within(seconds: float, loop: asyncio.AbstractEventLoop) -> None:
    """End this process after so many seconds, from a thread, since the loop may be what hangs."""

    def give_up() -> None:
        running = sorted(_described(task) for task in asyncio.all_tasks(loop))
        logger.critical("what had not ended in time is broken off", extra={"running": running})
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()


def _described(task: asyncio.Task[Any]) -> str:
    """Which coroutines a task is in, the innermost last, with their lines."""
    places: list[str] = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        places.append(f"{getattr(coroutine, '__qualname__', '?')}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None)
    return f"{task.get_name()}: {' > '.join(places)}"
