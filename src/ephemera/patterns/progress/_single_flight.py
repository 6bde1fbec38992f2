"""One run at a time for many who ask: each gets a run that began after it asked.

A thousand listeners that come back in one moment cost one read of the stream and one query: those who ask
while a run is under way share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ephemera.errors import StoreClosed

T = TypeVar("T")


class Rounds(Generic[T]):
    """Runs `work` for whoever asks, never twice at a time."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._asked: asyncio.Future[T] | None = None
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> asyncio.Future[T]:
        """The outcome of a run that begins after now; shield it, since it is shared."""
        if self._asked is None:
            loop = asyncio.get_running_loop()
            self._asked = loop.create_future()
            if self._task is None:
                self._task = loop.create_task(self._run(), name="ephemera-progress-round")
        return self._asked

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return self._task is None

    async def get(self) -> T:
        """The outcome itself; the caller may be cancelled, the run is not."""
        return await asyncio.shield(self.ask())

    def stop(self) -> None:
        """End what runs; who waits gets `StoreClosed`."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        asked = None
        try:
            while self._asked is not None:
                asked, self._asked = self._asked, None
                try:
                    asked.set_result(await self._work())
                except Exception as problem:
                    asked.set_exception(problem)
                    asked.exception()  # some asked only to have it done
        finally:
            self._task = None
            for each in (asked, self._asked):
                if each is not None and not each.done():
                    each.set_exception(StoreClosed("the store was closed, or nobody listens any more"))
                    each.exception()
            self._asked = None
