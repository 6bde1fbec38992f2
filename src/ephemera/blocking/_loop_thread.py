"""An event loop in a thread of its own, with a connected store; other threads wait for what it does.

A process that exits need not close its stores. But a thread that is inside uvloop while the interpreter is
torn down crashes it, about one time in ten. So an exit handler takes every such thread out of its loop and
parks it, after the threads that the interpreter waits for have ended. Nothing is closed by that, and calls of
daemon threads stay as they are.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeAlias

from ephemera.blocking._direct_connections import DirectConnections, closed_error
from ephemera.blocking._gevent import Greenlets, NativeThread, is_patched
from ephemera.errors import MissingExtra
from ephemera.keyspace import Catalogue, Role, Store
from ephemera.keyspace import connect as connect_async
from ephemera.wire import Arg, is_multiplexed, pack_command

_ROLES: tuple[Role, ...] = ("cache", "queue")
_CANCEL_PATIENCE = 1.0  # seconds that coroutines have to end when the store is closed
Work: TypeAlias = "tuple[Arg, ...] | Coroutine[Any, Any, Any]"
"""What a thread asks the loop for: a command, or a coroutine to run."""

_MOST_CALLBACKS = 32  # threads for synchronous handlers that no thread waits for
_PARK_PATIENCE = 5.0  # seconds; a callback of the loop may be running when the process exits

_running: set[LoopThread] = set()


class ThreadReply:
    """The reply that a thread waits for; the wire sets its result as it would set a future's.

    Each has a lock of its own, which is released once: whatever interrupts the thread that waits for it, no
    other call can be ended by this reply. (`concurrent.futures.Future` and `threading.Event` are not safe
    here: a signal handler that raises while one of their conditions is entered leaves it locked forever.)
    """

    __slots__ = ("_done", "error", "gate", "result", "task")

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.result: Any = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[Any] | None = None
        self._done = False

    def done(self) -> bool:
        """Whether the outcome is known, or no thread waits for it any more."""
        return self._done

    def set_result(self, result: Any, /) -> None:
        """End the wait with a result."""
        self.result = result
        self._done = True
        self.gate.release()

    def set_exception(self, exception: BaseException, /) -> None:
        """End the wait with an error."""
        self.error = exception
        self._done = True
        self.gate.release()

    def wait(self) -> None:
        """Block this thread until the outcome is known."""
        self.gate.acquire()

    async def follow(self, work: Any) -> None:
        """Await something and take over its outcome, even a `SystemExit`, which must not end the loop."""
        try:
            result = await work
        except BaseException as error:
            cancelled = isinstance(error, asyncio.CancelledError)
            if not self._done:
                self.set_exception(closed_error() if cancelled else error)
        else:
            if not self._done:
                self.set_result(result)

    def abandon(self) -> None:
        """End the work of a call that was interrupted."""
        self._done = True
        if self.task is not None:
            self.task.cancel()


class FutureReply(ThreadReply):
    """The reply that a coroutine on another event loop awaits."""

    __slots__ = ("_loop", "future")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def set_result(self, result: Any, /) -> None:
        """End the wait with a result."""
        super().set_result(result)
        self._wake()

    def set_exception(self, exception: BaseException, /) -> None:
        """End the wait with an error."""
        super().set_exception(exception)
        self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # that loop is closed
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if self.future.done():  # cancelled
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class LoopThread:
    """An event loop in its own thread, with a connected store."""

    def __init__(self, url: str, catalogues: tuple[Catalogue, ...], options: dict[str, Any]) -> None:
        self.loop = _new_loop()
        self.store: Store
        # What threads have asked for and the loop has not started: commands, and coroutines to run.
        self._calls: deque[tuple[ThreadReply, Work]] = deque()
        self._scheduled = False
        self._following: set[ThreadReply] = set()
        self.blocks: set[asyncio.Task[bool]] = set()
        """The blocks that threads are in."""
        self._stopping = False
        self._ended = False
        self._parking = False
        self._parked = threading.Event()
        self._exit = AsyncExitStack()
        self.direct: dict[Role, DirectConnections] = {}
        """The connections that threads drive themselves, by role."""
        self.is_in_gevent = is_patched()
        self.callback_threads = Greenlets() if self.is_in_gevent else _thread_pool()
        """Run synchronous functions for coroutines when no thread waits that could."""
        self._thread = NativeThread(self._run) if self.is_in_gevent else _thread(self._run)
        self._thread.start()
        try:
            opening = self._exit.enter_async_context(connect_async(url, *catalogues, **options))
            self.store = self.wait_for(opening)
            by_client = {client: DirectConnections(self, client) for client in map(self.store.client, _ROLES)}
            self.direct = {role: by_client[self.store.client(role)] for role in _ROLES}
        except BaseException:
            self.stop()
            raise

    def wait_for(self, work: Work, reply: ThreadReply | None = None) -> Any:
        """Have the loop send a command or run a coroutine, and return the outcome.

        A signal handler may raise at any point of it. Nothing before the `try` can be noticed by others, and
        after it the next call schedules again what this one may have failed to schedule.
        """
        reply = reply or ThreadReply()
        try:
            self._calls.append((reply, work))
            if not self._scheduled:
                self._scheduled = True
                self.loop.call_soon_threadsafe(self._send_all)
            if self._ended or sys.is_finalizing():
                raise closed_error()
            reply.wait()
        except BaseException as error:
            self._scheduled = False
            self._abandon(reply, work)
            if isinstance(error, RuntimeError) and self.loop.is_closed():
                raise closed_error() from None
            raise
        if reply.error is not None:
            raise reply.error
        return reply.result

    async def forward(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have the loop run a coroutine, and await it on another loop; cancelling the one cancels both."""
        reply = FutureReply()
        try:
            self._calls.append((reply, work))
            self.loop.call_soon_threadsafe(self._send_all)
            if self._ended:
                raise closed_error()
            return await reply.future
        except BaseException as error:
            self._abandon(reply, work)
            if isinstance(error, RuntimeError) and self.loop.is_closed():
                raise closed_error() from None
            raise

    def stop(self) -> None:
        """Close the store and end the thread."""
        for connections in self.direct.values():
            connections.close()
        with suppress(RuntimeError):  # when another thread has stopped it
            self.loop.call_soon_threadsafe(self._begin_stop)
        self._thread.join()

    def park(self) -> None:
        """Take the thread out of its loop for good, because the interpreter ends."""
        self._parking = True
        with suppress(RuntimeError):  # it was closed in the meantime
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._parked.wait(_PARK_PATIENCE)

    def forget_connections(self) -> None:
        """Close, in a forked child, the sockets that threads of its parent use."""
        for connections in self.direct.values():
            connections.close_in_child()

    # In the calling thread.

    def _abandon(self, reply: ThreadReply, work: Work) -> None:
        try:
            self.loop.call_soon_threadsafe(reply.abandon)
            self.loop.call_soon_threadsafe(self._send_all)
        except RuntimeError:  # the loop is closed
            _discard(work)

    # In the loop's thread.

    def _send_all(self) -> None:
        """Send the calls of all threads since the last time, in one write."""
        # Reset before the queue is read: a call that is added after the last read schedules again.
        self._scheduled = False
        calls = self._calls
        while calls:
            reply, work = calls.popleft()
            try:
                if reply.done():  # its caller was interrupted
                    _discard(work)
                elif isinstance(work, Coroutine):
                    self._follow(reply, work)
                elif is_multiplexed(work):
                    self.store.client().send_to(reply, pack_command(work))
                else:
                    self._follow(reply, self.store.call(*work))
            except Exception as error:
                if not reply.done():
                    reply.set_exception(error)

    def _follow(self, reply: ThreadReply, work: Any) -> None:
        reply.task = self.loop.create_task(reply.follow(work))
        self._following.add(reply)
        reply.task.add_done_callback(lambda _: self._following.discard(reply))

    def _begin_stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._closing = self.loop.create_task(self._close())

    async def _close(self) -> None:
        """Cancel what is running, close the store and stop the loop."""
        try:
            await _cancel([reply.task for reply in self._following if reply.task is not None])
            await self._exit.aclose()
            await _cancel(list(self.blocks))  # last: by now the holders of locks know what they lost
        finally:
            self.loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        if not self.is_in_gevent:  # whose hub ends by itself
            _running.add(self)
        try:
            while True:
                try:
                    self.loop.run_forever()
                except (SystemExit, KeyboardInterrupt):
                    # Raised by a task that a coroutine of `wait` started; the task that awaits it gets it.
                    continue
                break
            if self._parking:
                self._wait_for_the_end()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()
            self.callback_threads.shutdown(wait=False, cancel_futures=True)
            self._ended = True  # before the queue is emptied: a later call sees it
            self._fail_the_rest()
            _running.discard(self)

    def _wait_for_the_end(self) -> None:
        """Block forever, which also keeps the loop and its tasks from being freed while they are open."""
        self._ended = True
        self._parked.set()
        never = threading.Lock()
        never.acquire()
        never.acquire()

    def _fail_the_rest(self) -> None:
        """Fail every call that the loop did not complete."""
        rest = [*self._following]
        while self._calls:
            reply, work = self._calls.popleft()
            rest.append(reply)
            _discard(work)
        for reply in rest:
            if not reply.done():
                reply.set_exception(closed_error())


@atexit.register
def _park_all() -> None:
    for thread in list(_running):
        thread.park()


os.register_at_fork(after_in_child=_running.clear)  # they run in the parent


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CANCEL_PATIENCE)


def _discard(work: Work) -> None:
    if isinstance(work, Coroutine):
        work.close()


def _thread(run: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=run, name="ephemera-sync", daemon=True)


def _thread_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_CALLBACKS, "ephemera-callback")


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        if is_patched():  # asyncio's own loop would use what gevent has patched
            raise MissingExtra("a synchronous store under gevent needs uvloop", "fast", "uvloop") from None
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
