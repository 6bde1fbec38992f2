"""Stores for adapters whose libraries call both ways: from synchronous code, and from coroutines.

LangChain and LangGraph give each object methods of both kinds, and one program may use both: an async graph
runs its synchronous nodes in threads. So an adapter writes each operation once, as a coroutine on its store,
and a `StoreAccess` runs it for either kind of caller.

An async store serves the coroutines of its own event loop, and threads. A synchronous store serves threads,
and coroutines of any event loop. Neither blocks an event loop: that is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from ephemera.blocking import BlockingStore
from ephemera.errors import SyncCallInEventLoop
from ephemera.keyspace import Store

T = TypeVar("T")


class StoreAccess(Protocol):
    """A store, and how callers of either kind use it."""

    @property
    def store(self) -> Store:
        """The async store; only coroutines given to `wait` and `run` use it."""

    def wait(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine for synchronous code."""

    async def run(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine for another one."""


class AsyncAccess:
    """The access to an async store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._loop = asyncio._get_running_loop()

    def wait(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine on the store's loop for another thread."""
        loop = self._loop
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is not None:
            work.close()
            raise SyncCallInEventLoop(
                "a synchronous call of an object of an async store, on an event loop's thread or after its "
                "loop has ended: await the method that begins with `a` (`graph.ainvoke`), call it in a "
                "thread, or take the object of a synchronous store, ephemera.sync.connect(...)"
            )
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def run(self, work: Coroutine[Any, Any, T], /) -> T:
        """Await a coroutine."""
        return await work


class BlockingAccess:
    """The access to a synchronous store; in each process to that process's own."""

    def __init__(self, blocking: BlockingStore) -> None:
        self._blocking = blocking
        self.wait = blocking.wait
        self.run = blocking.forward

    @property
    def store(self) -> Store:
        """The async store behind it."""
        return self._blocking.aio
