"""The threads of a worker process, and which attempt each call in them belongs to.

A thread cannot be stopped. So an attempt that has failed waits for the functions that it left running in
threads, before its row is another worker's: those of its steps, and those that its own code began with
`asyncio.to_thread` or `loop.run_in_executor(None, ...)`. Steps have threads of their own: the event loop's
default ones, which resolve host names too, stay free when steps keep all theirs busy.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS = 64
Calls = set[Future[Any]]
"""The calls of one attempt that have not ended."""
CALLS: ContextVar[Calls | None] = ContextVar("ephemera_job_calls", default=None)
"""Those of the attempt that is running."""


class JobThreads(ThreadPoolExecutor):
    """A pool of threads that adds each call to those of the attempt that makes it."""

    def __init__(self, threads: int = MAX_THREADS) -> None:
        super().__init__(threads, thread_name_prefix="ephemera-job")

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a thread, or later if all are busy."""
        call, calls = super().submit(function, *args, **kwargs), CALLS.get()
        if calls is not None:
            calls.add(call)
            call.add_done_callback(calls.discard)
        return call
