"""`ephemera worker` for a service: background work in a process of its own, and how its tasks are ended.

A service with background work has a module `worker` with its `Settings` and `open_worker(settings)`, an async
context manager that works until its block is left. The block lasts until SIGTERM or SIGINT. A service whose
work is jobs has `JOBS` instead, which a Celery worker runs. Unlike a service, a worker never starts embedded
servers: no other process could reach them.

A worker that was asked to stop ends, even if its servers hang. What has not finished within the timeout is
logged and aborted; other workers recover it as they do after a SIGKILL.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ephemera_services.runtime.settings import InvalidSettings, ServiceSettings

logger = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT = 45.0
"""Seconds within which a worker ends after a signal; work in progress gets 30 of them."""

_CANCEL_INTERVAL = 0.5  # seconds
_CANCELS_BEFORE_POOL = 3


def require_server_urls(settings: ServiceSettings) -> None:
    """Raise `InvalidSettings` unless the URLs of Redis and the database are set."""
    urls = {"EPHEMERA_URL": settings.url, "EPHEMERA_DATABASE_URL": settings.database_url}
    missing = [f"{name} must be set: a worker shares the service's" for name, url in urls.items() if not url]
    if missing:
        raise InvalidSettings(missing)


async def run_until_signalled(
    work: AbstractAsyncContextManager[object], *, timeout: float | None = None
) -> None:
    """Keep a context open until SIGTERM or SIGINT, then leave it, within `timeout` seconds if given."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if timeout is not None and not signalled.is_set():
            _exit_after(timeout, loop)
        signalled.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    async with work:
        logger.info("working")
        await signalled.wait()
        logger.info("stopping")


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended, even while the server they use hangs.

    One `cancel()` is not enough. psycopg, interrupted, waits up to ten more seconds for a server that hangs;
    SQLAlchemy may turn the cancellation into an error of its own, after which a loop that survives errors
    continues; and a cancellation that races with the reply a task awaits may be lost. SQLAlchemy returns
    connections to the pool in a task of its own, shielded from cancellation. With a hanging server it never
    ends, so after a few attempts those tasks are cancelled as well.
    """
    left, attempts = set(tasks), 0
    while left:
        attempts += 1
        for task in left if attempts <= _CANCELS_BEFORE_POOL else left | _pool_tasks():
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_INTERVAL)


def _pool_tasks() -> set[asyncio.Task[Any]]:
    """The tasks that SQLAlchemy started."""
    return {task for task in asyncio.all_tasks() if "/sqlalchemy/" in _file(task)}


def _file(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return "" if code is None else str(code.co_filename)


def _exit_after(seconds: float, loop: asyncio.AbstractEventLoop) -> None:
    """Exit this process after some seconds, from a thread, since the event loop may be what hangs."""

    def abort() -> None:
        running = sorted(_stack(task) for task in asyncio.all_tasks(loop))
        logger.critical("aborting what did not finish in time", extra={"running": running})
        os._exit(1)

    timer = threading.Timer(seconds, abort)
    timer.daemon = True
    timer.start()


def _stack(task: asyncio.Task[Any]) -> str:
    """The coroutines a task is in, the innermost last, with their lines."""
    frames: list[str] = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append(f"{getattr(coroutine, '__qualname__', '?')}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None)
    return f"{task.get_name()}: {' > '.join(frames)}"
