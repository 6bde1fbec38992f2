"""An `async with` block whose body is synchronous code.

One task enters the context manager, waits while the body runs in the calling thread, and leaves it again. So
a context manager that cancels the task of its body, as a lost lock does, finds it. The block has then ended
early. The thread learns of it from its next call to the store, which raises the reason, once, and at the
latest at the end of its `with` statement.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, cast

from ephemera.blocking._direct_connections import closed_error
from ephemera.blocking._store import BlockingStore
from ephemera.errors import StoreClosed

HOLDER: ContextVar[int | None] = ContextVar("ephemera_holder", default=None)
"""The thread on whose behalf the task of a block runs."""


class Block:
    """A context manager that a thread has entered, or is about to."""

    def __init__(self, store: BlockingStore, context: AbstractAsyncContextManager[Any]) -> None:
        self._store = store
        self._context = context
        self._thread = threading.get_ident()
        self._task: asyncio.Task[bool] | None = None
        self._entered: asyncio.Future[Any]
        self._leave: asyncio.Future[BaseException | None]
        self._interrupted = False
        self._is_leaving = False
        self._body_ended = False
        self._process = os.getpid()

    def enter(self) -> Any:
        """Enter it, and return what the block gets."""
        try:
            return self._store.wait(self._begin())
        except BaseException:
            # A signal handler may have raised after it was entered: no lock is kept that no one holds.
            self._interrupted = True
            self._post(self._cancel)
            raise

    def leave(self, error: BaseException | None) -> bool:
        """Leave it with the error of its body, if any; True when the context manager suppresses that.

        If it has ended early, the reason is raised, unless the body has an error of its own, which gets a
        note.
        """
        if os.getpid() != self._process:  # a fork inside the block: it is the parent's
            return False
        if self._task is not None and self._task.done():
            return self._leave_ended(self._task, error)
        try:
            return self._store.wait_regardless(self._end(error))
        except BaseException as problem:
            self._post(self._request_end, error)
            if problem is error:
                return False
            task = self._task
            if task is not None and self._ended_early(task) and task.exception() is problem:
                return self._leave_ended(task, error)
            raise

    def _ended_early(self, task: asyncio.Task[bool]) -> bool:
        """Whether it ended, with an error, before it knew how its body ended."""
        return task.done() and not task.cancelled() and not self._body_ended

    def _leave_ended(self, task: asyncio.Task[bool], error: BaseException | None) -> bool:
        problem = closed_error() if task.cancelled() else task.exception()
        ended = self._store.ended_blocks.get(self._thread)
        if ended and problem in ended:
            ended.remove(problem)
        if problem is None or problem is error:
            return False
        if error is None:
            raise problem
        error.add_note(str(problem))
        return False

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError, StoreClosed):  # nothing is held by a loop that is closed
            self._store.running().loop.call_soon_threadsafe(function, *args)

    # In the loop's thread.

    async def _begin(self) -> Any:
        context = copy_context()
        context.run(HOLDER.set, self._thread)
        loop = asyncio.get_running_loop()
        self._entered, self._leave = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._run(), context=context)
        blocks = self._store.running().blocks
        blocks.add(self._task)
        self._task.add_done_callback(blocks.discard)
        self._task.add_done_callback(self._on_end)
        try:
            await asyncio.wait((self._task, self._entered), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._task.cancel()
            raise
        if not self._entered.done():
            await self._task  # raises why it could not be entered
        return self._entered.result()

    async def _run(self) -> bool:
        value = await self._context.__aenter__()
        error: BaseException | None = None
        try:
            if not self._interrupted:
                self._entered.set_result(value)
                error = await self._leave
                self._body_ended = True
        except asyncio.CancelledError as cancelled:
            error = cancelled
        kind = None if error is None else type(error)
        suppressed = await self._context.__aexit__(
            kind, error, None if error is None else error.__traceback__
        )
        if isinstance(error, asyncio.CancelledError) and not suppressed:
            raise error
        return bool(suppressed)

    def _on_end(self, task: asyncio.Task[bool]) -> None:
        """Have the thread notice that its block has ended, if it has not left it itself."""
        if self._entered.done() and not self._is_leaving:
            problem = closed_error() if task.cancelled() else task.exception()
            if problem is not None:
                self._store.ended_blocks.setdefault(self._thread, []).append(problem)

    async def _end(self, error: BaseException | None) -> bool:
        self._request_end(error)
        return await asyncio.shield(cast("asyncio.Task[bool]", self._task))

    def _request_end(self, error: BaseException | None) -> None:
        self._is_leaving = True
        if not self._leave.done():
            self._leave.set_result(error)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
