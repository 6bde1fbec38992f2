"""Deadlines: of one call (`timeout=`), and of everything in a block (`with deadline(0.2)`).

Neither costs anything where it is not used. A call with a `timeout` has a timer that fails its future. A
block in a coroutine has a timer that cancels its task, as `asyncio.timeout` does, so everything inside it
ends in an orderly way; in synchronous code the calls of a store take what is left as their timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar, Token
from time import monotonic
from types import TracebackType
from typing import Any, Self

from ephemera.errors import DeadlineExceeded

_ends_at: ContextVar[float | None] = ContextVar("ephemera_deadline", default=None)


def seconds_left(timeout: float | None = None) -> float | None:
    """What is left of this call's `timeout` and of the deadline around it; None when there is neither."""
    end = _ends_at.get()
    if end is None:
        return timeout
    left = max(0.0, end - monotonic())
    return left if timeout is None else min(left, timeout)


def limit(reply: asyncio.Future[Any], timeout: float, address: str) -> None:
    """Fail a reply that has not arrived after `timeout` seconds."""

    def expire() -> None:
        if not reply.done():
            reply.set_exception(DeadlineExceeded(address, f"no reply within its deadline of {timeout:g} s"))

    timer = asyncio.get_running_loop().call_later(timeout, expire)
    reply.add_done_callback(lambda _: timer.cancel())


async def within(timeout: float, work: Awaitable[Any]) -> Any:
    """Await something under a deadline."""
    with deadline(timeout):
        return await work


class deadline:  # noqa: N801 - used as a statement: with deadline(0.2)
    """A limit for everything in a `with` block, in seconds: `DeadlineExceeded` when it has passed.

    It works in coroutines and in synchronous code. Nested ones only shorten each other.
    """

    def __init__(self, seconds: float) -> None:
        if not seconds >= 0:
            raise ValueError(f"a deadline is a number of seconds >= 0, not {seconds!r}")
        self._seconds = seconds
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_expired = False
        self._cancelling = 0
        self._token: Token[float | None]

    def __enter__(self) -> Self:
        end, outer = monotonic() + self._seconds, _ends_at.get()
        self._token = _ends_at.set(end if outer is None else min(end, outer))
        loop = asyncio._get_running_loop()
        self._task = asyncio.current_task(loop) if loop is not None else None
        if loop is not None and self._task is not None:
            self._cancelling = self._task.cancelling()
            self._timer = loop.call_later(self._seconds, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ends_at.reset(self._token)
        if self._timer is not None:
            self._timer.cancel()
        if self._has_expired and self._task is not None:
            is_ours = self._task.uncancel() <= self._cancelling
            if is_ours and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise DeadlineExceeded("deadline", f"not done within {self._seconds:g} s") from error

    def _expire(self) -> None:
        if self._task is not None:
            self._has_expired = True
            self._task.cancel()
