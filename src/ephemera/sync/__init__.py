"""The same store for synchronous code: Celery tasks, Flask, Django, scripts.

One background thread runs one event loop, and all threads of the process share its connection. Their commands
are batched into one write, so eight threads are faster than eight connections. There is no second
implementation: `call` is the store's own `call`, and `wait` runs any coroutine of the store or of a pattern.

    store = sync.connect("redis://localhost", catalogue)
    store.call("GET", "greeting")
    store.wait(store.aio[SESSION].get(session_id=sid))

A store connects when it is first used. After a fork (Celery's prefork pool) the child starts a thread and a
connection of its own; the parent keeps its own. Pattern objects made from `aio` before a fork belong to the
parent too: make them where they are used. Calls from the thread of a running event loop are refused, because
they would block that loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from ephemera.errors import StoreClosed, SyncCallInEventLoop
from ephemera.keyspace import Catalogue, Store
from ephemera.keyspace import connect as connect_async
from ephemera.wire import Arg, is_multiplexed, pack_command

T = TypeVar("T")

_stores: weakref.WeakSet[SyncStore] = weakref.WeakSet()
_parents_threads: list[_LoopThread] = []


def connect(url: str, *catalogues: Catalogue, **options: Any) -> SyncStore:
    """A store for synchronous code; takes the arguments of `ephemera.connect`."""
    return SyncStore(url, catalogues, options)


class SyncStore:
    """A store whose calls block until the reply; share one among all threads."""

    def __init__(self, url: str, catalogues: tuple[Catalogue, ...], options: dict[str, Any]) -> None:
        self._arguments = (url, catalogues, options)
        self._thread: _LoopThread | None = None
        self._starting = threading.Lock()
        self._closed = False
        _stores.add(self)

    def __enter__(self) -> Self:
        self._running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def aio(self) -> Store:
        """The async store behind this one, to create coroutines for `wait`."""
        return self._running().store

    def call(self, *args: Arg) -> Any:
        """Send a command and return its reply."""
        if asyncio._get_running_loop() is not None:
            raise _in_event_loop()
        return self._running().call(args)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the store or of a pattern, and return its result."""
        if asyncio._get_running_loop() is not None:
            work.close()
            raise _in_event_loop()
        return asyncio.run_coroutine_threadsafe(work, self._running().loop).result()

    def close(self) -> None:
        """Disconnect and end the thread; a closed store stays closed."""
        with self._starting:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def _running(self) -> _LoopThread:
        thread = self._thread
        return thread if thread is not None else self._start()

    def _start(self) -> _LoopThread:
        with self._starting:
            if self._closed:
                raise StoreClosed("this store is closed; connect again")
            if self._thread is None:
                url, catalogues, options = self._arguments
                self._thread = _LoopThread(url, catalogues, options)
            return self._thread

    def _after_fork(self) -> None:
        if self._thread is not None:
            # Kept, not freed: freeing it would unregister the parent's sockets from their shared event loop.
            _parents_threads.append(self._thread)
        self._thread = None
        self._starting = threading.Lock()


class _Gates(threading.local):
    """The lock on which a thread waits until the loop's thread releases it. One per thread, reused."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Take a new, acquired lock; the reply to an interrupted call may still release the old one."""
        self.gate = threading.Lock()
        self.gate.acquire()


class _ThreadReply:
    """The reply that a thread waits for; the wire sets its result as it would set a future's."""

    __slots__ = ("_done", "error", "gate", "result")

    def __init__(self, gate: threading.Lock) -> None:
        self.gate = gate
        self.result: Any = None
        self.error: BaseException | None = None
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        self.result = result
        self._done = True
        self.gate.release()

    def set_exception(self, exception: BaseException, /) -> None:
        self.error = exception
        self._done = True
        self.gate.release()

    def follow(self, future: asyncio.Future[Any]) -> None:
        """Copy the outcome of an awaited call."""
        if future.cancelled():
            self.set_exception(StoreClosed("the store was closed while this call waited"))
        elif (error := future.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(future.result())


class _LoopThread:
    """An event loop in its own thread, with a connected store."""

    def __init__(self, url: str, catalogues: tuple[Catalogue, ...], options: dict[str, Any]) -> None:
        self.loop = _new_loop()
        self.store: Store
        self._calls: deque[tuple[_ThreadReply, tuple[Arg, ...]]] = deque()
        self._scheduled = False
        self._gates = _Gates()
        self._exit = AsyncExitStack()
        self._thread = threading.Thread(target=self._run, name="ephemera-sync", daemon=True)
        self._thread.start()
        try:
            opening = self._exit.enter_async_context(connect_async(url, *catalogues, **options))
            self.store = asyncio.run_coroutine_threadsafe(opening, self.loop).result()
        except BaseException:
            self.stop()
            raise

    def call(self, args: tuple[Arg, ...]) -> Any:
        reply = _ThreadReply(self._gates.gate)
        self._calls.append((reply, args))
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon_threadsafe(self._send_all)
        try:
            reply.gate.acquire()
        except BaseException:
            # A signal handler raised: the reply is still to come, and must not end the next call.
            self._gates.renew()
            raise
        if reply.error is not None:
            raise reply.error
        return reply.result

    def stop(self) -> None:
        """Close the store and end the thread."""
        asyncio.run_coroutine_threadsafe(self._exit.aclose(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _send_all(self) -> None:
        """Send the calls of all threads since the last time, in one write."""
        # Reset before the queue is read: a call that is added after the last read schedules again.
        self._scheduled = False
        calls = self._calls
        send_to = self.store.client().send_to
        while calls:
            reply, args = calls.popleft()
            try:
                if is_multiplexed(args):
                    send_to(reply, pack_command(args))
                else:
                    asyncio.ensure_future(self.store.call(*args)).add_done_callback(reply.follow)
            except Exception as error:
                reply.set_exception(error)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _in_event_loop() -> SyncCallInEventLoop:
    return SyncCallInEventLoop(
        "a synchronous call on the thread of a running event loop would block that loop; "
        "use async with ephemera.connect(...) there, or move this work to a thread (asyncio.to_thread)"
    )


def _after_fork() -> None:
    for store in list(_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_after_fork)
