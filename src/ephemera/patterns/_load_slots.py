"""A bound on the loads that run at once in a process.

A loader may itself read through a cache, the same one or another, and wait for a load there. While it waits
it does no work, so it gives its slot back and takes one again before it continues. Otherwise loads that wait
for each other could hold all slots, and none of them would end. The slot of a load is found by the context,
which tasks inherit, so a loader may wait for several loads at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, Token
from inspect import isawaitable, iscoroutine
from types import TracebackType
from typing import Any, TypeVar

from ephemera.errors import InvalidDeclaration

V = TypeVar("V")


class LoadSlot:
    """The slot of one load: `async with slots.slot():` around it."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._is_held = False
        self._is_taking = False
        self._ended = False
        self._waits = 0  # for other loads, at this moment
        self._before: Token[LoadSlot | None]

    async def __aenter__(self) -> None:
        await self._free.acquire()
        self._is_held = True
        self._before = _CURRENT.set(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _CURRENT.reset(self._before)
        self._ended = True
        self._give_back()

    def begin_wait(self) -> None:
        """Give the slot back while the load waits for another one."""
        self._waits += 1
        self._give_back()

    async def end_wait(self) -> None:
        """Take a slot again, unless the load waits for others still, or takes one already."""
        self._waits -= 1
        if self._is_taking or self._needs_none():
            return
        self._is_taking = True
        try:
            await self._free.acquire()
        finally:
            self._is_taking = False
        self._is_held = True
        if self._needs_none():  # any more
            self._give_back()

    def _needs_none(self) -> bool:
        return self._waits > 0 or self._ended

    def _give_back(self) -> None:
        if self._is_held:
            self._is_held = False
            self._free.release()


_CURRENT: ContextVar[LoadSlot | None] = ContextVar("ephemera_load_slot", default=None)


class LoadSlots:
    """The slots of one cache on one store."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    def slot(self) -> LoadSlot:
        """A slot for one load."""
        return LoadSlot(self._free)


async def await_loader(pattern: str, load: Callable[..., Awaitable[V]], fields: Mapping[str, Any]) -> V:
    """Return what a loader returns; `InvalidDeclaration` for one that is not async, or no function."""
    loader: Any = load
    if not callable(loader):
        if iscoroutine(loader):
            loader.close()
        problem = f"the loader is a {type(loader).__name__}, not a function"
        raise InvalidDeclaration(pattern, problem, "pass the function itself, without calling it")
    loading: Any = load(**fields)
    if not isawaitable(loading):
        name = getattr(load, "__qualname__", type(load).__name__)
        form = f"{name.rpartition('.')[2].replace('<lambda>', 'load')}({', '.join(fields)})"
        raise InvalidDeclaration(
            pattern,
            f"the loader {name} is not async: it returned {type(loading).__name__}, which cannot be awaited",
            f"write it as: async def {form}, with asyncio.to_thread(...) for what blocks",
        )
    value: V = await loading
    return value


async def join_load(load: asyncio.Task[V]) -> V:
    """Return what a load returns, or raise what it raises; a load that waits here frees its slot.

    Cancelling the wait does not cancel the load.
    """
    slot = _CURRENT.get()
    if slot is None:
        return await asyncio.shield(load)
    slot.begin_wait()
    try:
        return await asyncio.shield(load)
    finally:
        await slot.end_wait()
