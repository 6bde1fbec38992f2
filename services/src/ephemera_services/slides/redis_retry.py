"""What SQL has and Redis must be told: tried now, and if Redis is away again and again until it was told.

The caller of a change that is in SQL but not in Redis gets 503, because it does not hold everywhere yet. It
will, as soon as Redis is back, whether or not the caller repeats it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from ephemera.errors import ConnectionFailed

T = TypeVar("T")

_PAUSE = 0.5  # seconds
_LONGEST = 24 * 3600.0  # seconds; a session that is not used ends by then


class Repeater:
    """Repeats what Redis could not be told; `async with` it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def until_done(self, tell: Callable[[], Awaitable[T]]) -> T:
        """Tell Redis; when it is away, raise, and go on telling it in the background."""
        try:
            return await tell()
        except ConnectionFailed:
            task = asyncio.create_task(self._repeat(tell), name="slides-repeat")
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

    async def _repeat(self, tell: Callable[[], Awaitable[object]]) -> None:
        until = time.monotonic() + _LONGEST
        while time.monotonic() < until:
            await asyncio.sleep(_PAUSE)
            try:
                await tell()
            except ConnectionFailed:
                continue
            return
