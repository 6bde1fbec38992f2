"""Futures that many callers share, or whose result no caller needs any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

from ephemera.errors import StoreClosed

T = TypeVar("T")


def discard(future: asyncio.Future[Any]) -> None:
    """Ignore the outcome of a future, so that its exception is not reported as never retrieved."""
    if not future.done():
        future.add_done_callback(discard)
    elif not future.cancelled():
        future.exception()


async def cancel_all(futures: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    cancelled = list(futures)
    for each in cancelled:
        each.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


class SingleFlight(Generic[T]):
    """Runs `work` for many callers, never twice at a time; each gets a run that began after its request."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._requested: asyncio.Future[T] | None = None
        self._task: asyncio.Task[None] | None = None

    def request(self) -> asyncio.Future[T]:
        """The outcome of a run that begins after this call; shield it, since it is shared."""
        if self._requested is None:
            loop = asyncio.get_running_loop()
            self._requested = loop.create_future()
            if self._task is None:
                self._task = loop.create_task(self._loop(), name="ephemera-single-flight")
        return self._requested

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs."""
        return self._task is None

    async def run(self) -> T:
        """Wait for the outcome of such a run; cancelling the caller does not cancel the run."""
        return await asyncio.shield(self.request())

    def stop(self) -> None:
        """Cancel the run; callers that wait get `StoreClosed`."""
        if self._task is not None:
            self._task.cancel()

    async def _loop(self) -> None:
        requested = None
        try:
            while self._requested is not None:
                requested, self._requested = self._requested, None
                try:
                    requested.set_result(await self._work())
                except Exception as problem:
                    requested.set_exception(problem)
                    discard(requested)  # some callers do not wait for it
        finally:
            self._task = None
            for each in (requested, self._requested):
                if each is not None and not each.done():
                    each.set_exception(
                        StoreClosed("the store was closed, or no caller needs the outcome any more")
                    )
                    discard(each)
            self._requested = None
