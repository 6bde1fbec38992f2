"""Synchronous functions that coroutines await: loaders and handlers of synchronous programs.

The thread whose call waits runs them, so they find its thread-local state: a database session, Flask's `g`.
When no thread waits, as in a refresh in the background or in a consumer of events, a pool of threads does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial, update_wrapper
from inspect import signature
from queue import SimpleQueue
from typing import Any

from ephemera.blocking._gevent import GreenletQueue
from ephemera.blocking._loop_thread import LoopThread, ThreadReply


class Callback:
    """A synchronous function, and `awaitable`: the coroutine function that runs it in another thread."""

    def __init__(self, thread: LoopThread, function: Callable[..., Any]) -> None:
        self.caller: ServingReply | None = None
        context = copy_context()

        async def awaitable(*args: Any, **kwargs: Any) -> Any:
            job = _Job(partial(function, *args, **kwargs))
            if self.caller is None or not self.caller.serve(job):
                thread.callback_threads.submit(context.copy().run, job.run_in_pool)
            return await job.outcome

        made: Any = update_wrapper(awaitable, function)
        del made.__wrapped__  # patterns look whether it is a coroutine function, which it is
        with suppress(TypeError, ValueError):  # some functions in C have none
            made.__signature__ = signature(function)
        self.awaitable: Callable[..., Coroutine[Any, Any, Any]] = made


class _Job:
    """One run of a callback; created on the loop, whose future `outcome` is."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Any] = self._loop.create_future()
        self.started = False

    def run(self) -> None:
        """Run it in this thread; what ends the thread itself is raised, and cancels what awaits it."""
        try:
            self.started = True
            result = self._function()
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._fail, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._loop.call_soon_threadsafe(self._succeed, result)

    def run_in_pool(self) -> None:
        """Run it in a thread of the pool, which nothing ends."""
        try:
            self.run()
        except BaseException:
            return

    def _succeed(self, result: Any) -> None:
        if not self.outcome.done():
            self.outcome.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if self.outcome.done():
            return
        if isinstance(error, StopIteration):  # a future cannot hold one
            error = RuntimeError(f"a callback raised {error!r}")
        if isinstance(error, Exception):
            self.outcome.set_exception(error)
        else:
            self.outcome.cancel()


class ServingReply(ThreadReply):
    """The reply of a call whose thread runs callbacks while it waits."""

    __slots__ = ("_jobs", "_queue", "_thread")

    def __init__(self, thread: LoopThread) -> None:
        super().__init__()
        self._thread = thread
        self._jobs: list[_Job] = []
        # Its methods may be interrupted and re-entered.
        self._queue: SimpleQueue[_Job | None] | GreenletQueue
        self._queue = GreenletQueue() if thread.is_in_gevent else SimpleQueue()

    def serve(self, job: _Job) -> bool:
        """Have the waiting thread run a job; False when none waits."""
        if self.done():
            return False
        self._jobs.append(job)
        self._queue.put(job)
        return True

    def set_result(self, result: Any, /) -> None:
        """End the wait with a result."""
        super().set_result(result)
        self._queue.put(None)

    def set_exception(self, exception: BaseException, /) -> None:
        """End the wait with an error."""
        super().set_exception(exception)
        self._queue.put(None)

    def wait(self) -> None:
        """Run callbacks until the outcome is known."""
        while (job := self._queue.get()) is not None:
            job.run()

    def abandon(self) -> None:
        """End the work of a call that was interrupted; what it had not begun to run, others may need."""
        super().abandon()
        for job in self._jobs:
            if not job.started:
                self._thread.callback_threads.submit(job.run_in_pool)
