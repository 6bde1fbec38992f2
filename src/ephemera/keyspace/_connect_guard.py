"""What `connect` gives: a store for the length of an `async with` block, and for nothing else.

Without the block nothing is connected. Who forgets it, or awaits in its place, is told so here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_ADVICE = "nothing is connected yet; use: async with connect(...) as store"


def async_with_only(make: Callable[P, AsyncIterator[T]]) -> Callable[P, AbstractAsyncContextManager[T]]:
    """As `asynccontextmanager`, for what is easily used without its block."""
    opening = asynccontextmanager(make)

    @wraps(make)
    def open_async_with_only(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Opening(opening(*args, **kwargs))

    return open_async_with_only


class _Opening(AbstractAsyncContextManager[T]):
    def __init__(self, opening: AbstractAsyncContextManager[T]) -> None:
        self._opening = opening

    async def __aenter__(self) -> T:
        return await self._opening.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._opening.__aexit__(kind, error, trace)

    def __await__(self) -> Generator[Any, None, NoReturn]:
        raise TypeError(f"connect(...) is not awaited: {_ADVICE}")

    def __getitem__(self, declared: object) -> NoReturn:
        raise TypeError(f"connect(...) is no store: {_ADVICE}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"connect(...) is no store, and has no {name!r}: {_ADVICE}")
