"""An event loop on a thread, for tests whose main thread runs a browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TypeVar

T = TypeVar("T")
_PATIENCE = 200.0  # seconds; machines that run tests are busy


class LoopThread:
    """A thread with its own event loop."""

    def __init__(self) -> None:
        self._exits = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="beside", daemon=True)
        self._thread.start()

    def do(self, work: Awaitable[T] | Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine on this loop, or what a function starts there, and return its result."""

        async def done() -> T:
            return await (work() if callable(work) else work)

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(_PATIENCE)

    def enter(self, opened: AbstractAsyncContextManager[T]) -> T:
        """Enter a context until the end."""
        return self.do(self._exits.enter_async_context(opened))

    def close(self) -> None:
        """Leave all contexts, and end."""
        self.do(self._exits.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
