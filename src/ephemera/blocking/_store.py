"""A store whose calls block the calling thread, before and after a fork."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from ephemera.blocking._callbacks import Callback, ServingReply
from ephemera.blocking._client import AccessorBinder, BlockingClient
from ephemera.blocking._direct_connections import SHARED, closed_error
from ephemera.blocking._loop_thread import LoopThread
from ephemera.errors import SyncCallInEventLoop, Unavailable
from ephemera.keyspace import Catalogue, Keyspace, Role, Store
from ephemera.wire import Arg, is_multiplexed, pack_here, seconds_left, within

T = TypeVar("T")

_stores: weakref.WeakSet[BlockingStore] = weakref.WeakSet()
_parents_threads: list[LoopThread] = []


def connect(url: str, *catalogues: Catalogue, **options: Any) -> BlockingStore:
    """A store for synchronous code; takes the arguments of `ephemera.connect`."""
    return BlockingStore(url, catalogues, options)


class BlockingStore:
    """A store whose calls block until the reply; share one among all threads."""

    def __init__(self, url: str, catalogues: tuple[Catalogue, ...], options: dict[str, Any]) -> None:
        self._arguments = (url, catalogues, options)
        self._thread: LoopThread | None = None
        self._starting = threading.RLock()
        self._is_starting = False
        self._closed = False
        self._binder = AccessorBinder(catalogues, self)
        self.complete = self._binder.complete
        self.ended_blocks: dict[int, list[BaseException]] = {}
        """Per thread, why blocks that it is in have ended early; its next call raises that."""
        _stores.add(self)

    def __enter__(self) -> Self:
        self.running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def aio(self) -> Store:
        """The async store behind this one, to create coroutines for `wait`."""
        return self.running().store

    def call(self, *args: Arg, timeout: float | None = None) -> Any:
        """Send a command and return its reply; after `timeout` seconds it raises `DeadlineExceeded`."""
        if asyncio._get_running_loop() is not None or self.ended_blocks:
            self.check_thread()
        thread, timeout = self._thread or self._start(), seconds_left(timeout)
        if timeout is not None:
            return thread.wait_for(_call(thread.store, args, timeout))
        if is_multiplexed(args):
            reply = thread.direct["cache"].exchange(pack_here(args))
            if reply is not SHARED:
                return reply
        return thread.wait_for(args)

    def wait(
        self,
        work: Coroutine[Any, Any, T],
        *,
        timeout: float | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> T:
        """Run a coroutine of the store or of a pattern, and return its result.

        After `timeout` seconds it is cancelled, and `DeadlineExceeded` is raised. This thread runs the
        callbacks that the coroutine calls in the meantime.
        """
        try:
            self.check_thread()
            thread = self.running()
        except BaseException:
            work.close()
            raise
        timeout = seconds_left(timeout)
        reply = ServingReply(thread) if callbacks else None
        for callback in callbacks:
            callback.caller = reply
        result: T = thread.wait_for(work if timeout is None else within(timeout, work), reply)
        return result

    @property
    def client(self) -> BlockingClient:
        """The client for coroutines that await nothing but its replies; `complete` runs them."""
        return self._binder.client()

    async def forward(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the store for a coroutine on another event loop, which is not blocked."""
        try:
            thread = self._thread
            if thread is None:  # connecting blocks
                thread = await asyncio.to_thread(self.running)
        except BaseException:
            work.close()
            raise
        if asyncio.get_running_loop() is thread.loop:
            return await work
        left = seconds_left()
        result: T = await thread.forward(work if left is None else within(left, work))
        return result

    def accessor(self, keyspace: Keyspace[T]) -> T:
        """The accessor of a keyspace; `complete` runs its operations in the calling thread."""
        return keyspace.bind(cast("Store", self._binder))

    def exchange_for(self, role: Role) -> Callable[[bytes], Any]:
        """The function that sends a packed command to the client of a role and blocks for its reply."""
        return self._binder.client(role).exchange

    def wait_regardless(self, work: Coroutine[Any, Any, T]) -> T:
        """As `wait`, for work that must be done whatever deadline has passed and whatever lock was lost."""
        try:
            thread = self.running()
        except BaseException:
            work.close()
            raise
        result: T = thread.wait_for(work)
        return result

    def close(self) -> None:
        """Disconnect and end the thread: calls that wait, and all later ones, raise `StoreClosed`."""
        with self._starting:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def running(self) -> LoopThread:
        """The thread of this process, started and connected at its first use."""
        thread = self._thread
        return thread if thread is not None else self._start()

    def check_thread(self) -> None:
        """Refuse a call that would block an event loop, or whose thread has lost a lock it relies on."""
        if asyncio._get_running_loop() is not None:
            raise _in_event_loop()
        if self.ended_blocks:
            ended = self.ended_blocks.pop(threading.get_ident(), ())
            if ended:
                raise ended[0]

    def _start(self) -> LoopThread:
        with self._starting:
            if self._closed:
                raise closed_error()
            if self._is_starting:  # by this same thread
                raise Unavailable("the store", "it is connecting, and a signal handler used it before that")
            if self._thread is None:
                self._is_starting = True
                try:
                    self._thread = LoopThread(*self._arguments)
                finally:
                    self._is_starting = False
            return self._thread

    def _after_fork(self) -> None:
        if self._thread is not None:
            # Kept, not freed: freeing it would unregister the parent's sockets from their shared event loop.
            _parents_threads.append(self._thread)
            self._thread.forget_connections()
        self._thread = None
        self._starting = threading.RLock()
        self._is_starting = False
        self.ended_blocks = {}


async def _call(store: Store, args: tuple[Arg, ...], timeout: float) -> Any:
    return await store.call(*args, timeout=timeout)


def _in_event_loop() -> SyncCallInEventLoop:
    return SyncCallInEventLoop(
        "a synchronous call on the thread of a running event loop would block that loop; "
        "use async with ephemera.connect(...) there, or move this work to a thread (asyncio.to_thread)"
    )


def _after_fork() -> None:
    for store in list(_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_after_fork)
