"""A job that is a plain function: it runs in a thread, and reaches its attempt on the event loop from there.

Each attempt of such a job has a thread of its own, so that it never waits for one that a job beside it keeps.
A step runs in the same thread: the event loop looks whether it is recorded, lets the thread do it if not, and
records what it returned. So steps, events, stops and lost leases are those of an `async def`. A thread cannot
be stopped: at its time limit, or when its job is lost, it ends at its next step, and until then its row is
not given up.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import CancelledError as FutureCancelled
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar, overload

from ephemera.patterns.jobs._job_definition import annotation
from ephemera.patterns.jobs._run_context import JobThreads, Run

T = TypeVar("T")


class SyncRun:
    """One attempt of a job that is a plain function, as this sees it; for use in its own thread."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._run = run
        self._loop = loop
        self.id = run.id
        """The job's id."""
        self.kind = run.kind
        self.attempt = run.attempt
        """1 for the first."""
        self.fence = run.fence
        """Larger than that of every attempt before."""
        self.worker_context = run.worker_context
        """What `@JOBS.worker_context` opened in this process."""

    @overload
    def step(
        self,
        name: str,
        work: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        event: Any = None,
        durable: bool = True,
        **kwargs: Any,
    ) -> T: ...

    @overload
    def step(
        self,
        name: str,
        work: Callable[..., T],
        /,
        *args: Any,
        event: Any = None,
        durable: bool = True,
        **kwargs: Any,
    ) -> T: ...

    def step(
        self,
        name: str,
        work: Callable[..., Any],
        /,
        *args: Any,
        event: Any = None,
        durable: bool = True,
        **kwargs: Any,
    ) -> Any:
        """The result of a step: the recorded one, or what `work` returns now; see `Run.step`.

        Args:
            name: The name of the step, which the job has once.
            work: A plain function, which runs in this thread, or an `async def`, which runs on the worker's
                event loop.
            args: What `work` is called with.
            event: Published when the step is done: an event, or a function that makes one from the result.
            durable: False to record the step in Redis alone, for steps that are many and cheap.
            kwargs: What `work` is called with, by name.

        """
        options = {"event": event, "durable": durable}
        if inspect.iscoroutinefunction(inspect.unwrap(work)):
            return self._wait(self._run.step(name, work, *args, **options, **kwargs))
        begun: Future[None] = Future()
        call: Future[Any] = Future()

        async def hand_over() -> Any:
            begun.set_result(None)
            return await self._run._result_of(name, call, durable=durable)

        step = self._run._step(name, annotation(work, "return"), hand_over, **options)
        recorded = asyncio.run_coroutine_threadsafe(step, self._loop)
        wait((begun, recorded), return_when=FIRST_COMPLETED)
        if begun.done() and call.set_running_or_notify_cancel():
            _fulfil(call, partial(work, *args, **kwargs))
        return _result(recorded)

    def publish(self, event: Any) -> None:
        """Publish a progress event between steps; if Redis is unavailable, it is lost."""
        self._wait(self._run.publish(event))

    def idempotency_key(self, name: str) -> str:
        """A key for an effect outside SQL: the same in each attempt of this job."""
        return self._run.idempotency_key(name)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return _result(asyncio.run_coroutine_threadsafe(work, self._loop))


async def call_in_thread(
    threads: JobThreads, function: Callable[..., Any], run: Run, arguments: dict[str, Any]
) -> Any:
    """The result of a job's plain function, with a copy of this context."""
    plain = SyncRun(run, asyncio.get_running_loop())
    call = threads.submit(copy_context().run, partial(function, plain, **arguments))
    try:
        result = await asyncio.shield(asyncio.wrap_future(call))
    except asyncio.CancelledError:
        call.cancel()  # unless it has begun
        raise
    return await result if inspect.isawaitable(result) else result


def _fulfil(call: Future[Any], work: Callable[[], Any]) -> None:
    try:
        call.set_result(work())
    except BaseException as problem:
        call.set_exception(problem)


def _result(future: Future[T]) -> T:
    """The result of what ran on the event loop; a cancellation is one here, too, and no `Exception`."""
    try:
        return future.result()
    except FutureCancelled as cancelled:
        raise asyncio.CancelledError("the attempt ends") from cancelled
