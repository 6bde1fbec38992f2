"""`ephemera worker --system NAME`: what a service does besides answering, in a process of its own.

A system that has such work has a module `worker` with two names: its `Settings`, and `working(settings)`, an
async context manager that works for the length of its block. The block lasts until SIGTERM or SIGINT. A
system whose work is jobs has `JOBS` in place of `working`: a worker of Celery runs them. Unlike a service, a
worker starts no servers of its own: nobody else would be on them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

from ephemera.systems.settings import InvalidSettings

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from ephemera.systems.settings import SystemSettings

logger = logging.getLogger(__name__)


def must_name_servers(settings: SystemSettings) -> None:
    """Raise `InvalidSettings` unless Redis and the database are named."""
    named = {"EPHEMERA_URL": settings.url, "EPHEMERA_DATABASE_URL": settings.database_url}
    missing = [f"{name} must be set: a worker shares the service's" for name, url in named.items() if not url]
    if missing:
        raise InvalidSettings(missing)


async def until_told(working: AbstractAsyncContextManager[object]) -> None:
    """Work until the process is told to stop, and then end cleanly."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, told.set)
    async with working:
        logger.info("working")
        await told.wait()
        logger.info("stopping")
