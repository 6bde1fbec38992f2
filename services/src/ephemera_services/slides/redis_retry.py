"""Retries of Redis writes that follow a commit in SQL: tried now, and in the background while Redis is down.

The caller of a change that is in SQL but not in Redis gets 503, because it is not effective everywhere yet.
It will be as soon as Redis is back, whether or not the caller repeats it, unless this process ends before: so
this is for writes whose loss a lifetime limits. What must not be lost is in SQL (`PendingSignOuts`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from ephemera.errors import ConnectionFailed

T = TypeVar("T")

_INTERVAL = 0.5  # seconds
_GIVE_UP_AFTER = 24 * 3600.0  # seconds; an unused session has expired by then


class RetryQueue:
    """Retries failed Redis writes in the background; use it with `async with`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write to Redis; if it is down, raise, and keep retrying in the background."""
        try:
            return await write()
        except ConnectionFailed:
            task = asyncio.create_task(self._retry(write), name="slides-redis-retry")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _retry(self, write: Callable[[], Awaitable[object]]) -> None:
        until = time.monotonic() + _GIVE_UP_AFTER
        while time.monotonic() < until:
            await asyncio.sleep(_INTERVAL)
            try:
                await write()
            except ConnectionFailed:
                continue
            return
