"""The same store for code that does not await: Celery tasks, Flask, Django, scripts.

One background thread runs one event loop, and all threads of the process share its connection. Their commands
are gathered and leave together, so eight threads are faster than eight connections. There is no second
implementation: `call` is the store's own `call`, and `wait` runs any coroutine of the store or of a pattern.

    store = blocking.connect("redis://localhost", catalogue)
    store.call("GET", "greeting")
    store.wait(store.aio[SESSION].get(session_id=sid))

A store connects when it is first used. After a fork (Celery's prefork) the child starts a thread and a
connection of its own; what the parent had stays with the parent. Pattern objects made from `aio` before a
fork belong to the parent too: make them where they are used. Calls from an event loop's thread are refused,
because they would stop that loop.
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
_left_to_parent: list[_LoopThread] = []


def connect(url: str, *catalogues: Catalogue, **options: Any) -> SyncStore:
    """A store for code that does not await; takes what `ephemera.connect` takes."""
    return SyncStore(url, catalogues, options)


class SyncStore:
    """A store whose calls wait for their replies; share one among all threads."""

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
        """The store behind this one, to make coroutines for `wait`."""
        return self._running().store

    def call(self, *args: Arg) -> Any:
        """Send a command and return its reply."""
        if asyncio._get_running_loop() is not None:
            raise _misuse()
        return self._running().call(args)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the store or of a pattern, and return its result."""
        if asyncio._get_running_loop() is not None:
            work.close()
            raise _misuse()
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
                raise StoreClosed("this blocking store is closed; connect again")
            if self._thread is None:
                url, catalogues, options = self._arguments
                self._thread = _LoopThread(url, catalogues, options)
            return self._thread

    def _after_fork(self) -> None:
        if self._thread is not None:
            # Kept, not freed: freeing would unregister the parent's sockets from the loop both share.
            _left_to_parent.append(self._thread)
        self._thread = None
        self._starting = threading.Lock()


class _Gates(threading.local):
    """The gate at which this thread waits: a lock that the loop's thread opens. One per thread, reused."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Take a new, closed gate; the old one belongs to whoever may still open it."""
        self.gate = threading.Lock()
        self.gate.acquire()


class _ThreadReply:
    """The reply a thread waits for; the wire settles it as it would settle a future."""

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
        """Take over what an awaited call came to."""
        if future.cancelled():
            self.set_exception(StoreClosed("the store was closed while this call waited"))
        elif (error := future.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(future.result())


class _LoopThread:
    """An event loop in a thread of its own, with a connected store on it."""

    def __init__(self, url: str, catalogues: tuple[Catalogue, ...], options: dict[str, Any]) -> None:
        self.loop = _new_loop()
        self.store: Store
        self._calls: deque[tuple[_ThreadReply, tuple[Arg, ...]]] = deque()
        self._scheduled = False
        self._gates = _Gates()
        self._exit = AsyncExitStack()
        self._thread = threading.Thread(target=self._run, name="ephemera-blocking", daemon=True)
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
            # A signal's handler raised: the reply is still to come, and must not open the next call's gate.
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
        """Send what all threads have put down since the last time, in one write."""
        # Reset before the queue is read: whoever adds after the last read schedules again.
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


def _misuse() -> SyncCallInEventLoop:
    return SyncCallInEventLoop(
        "a blocking call on a thread that runs an event loop would stop that loop; "
        "use async with ephemera.connect(...) there, or move this work to a thread (asyncio.to_thread)"
    )


def _after_fork() -> None:
    for store in list(_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_after_fork)
