"""Work that a response does not wait for, so that the response time reveals nothing about an account.

What is lost when the process ends must be harmless, or stored in SQL before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from ephemera.errors import EphemeraError

logger = logging.getLogger(__name__)

_MAX_TASKS = 1000


class BackgroundTasks:
    """The tasks of one process."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Start a task; dropped with a warning if a thousand others wait, as in a flood."""
        if len(self._tasks) >= _MAX_TASKS:
            logger.warning("dropped work in the background", extra={"work": name})
            work.close()
            return
        task = asyncio.create_task(_logged(work, name), name=f"identity-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Cancel what has not finished."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _logged(work: Coroutine[Any, Any, object], name: str) -> None:
    try:
        await work
    except (EphemeraError, SQLAlchemyError) as problem:
        logger.warning(
            "work in the background failed", extra={"work": name, "problem": type(problem).__name__}
        )
