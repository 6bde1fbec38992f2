"""A lock that is held, and the block that holds it: how losing it reaches the holder, and how the block ends.

A lost lock cancels the holder's task, as `asyncio.timeout` does, and `__aexit__` turns that cancellation into
`LockLost`; one that came from elsewhere stays what it is. When the block ended by itself meanwhile, its
result is not to be trusted, and `LockLost` is raised all the same. An error of the block's own is left alone,
with a note.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, cast

from ephemera.errors import EphemeraError, LockLost
from ephemera.patterns.locks._lock_keys import Place

if TYPE_CHECKING:
    from ephemera.patterns.locks._acquire import BoundLocks

_NOT_IN_TIME = "no renewal was confirmed before its lease could have ended"
_GONE = "the server had it no more"


class Held:
    """A lock while it is held: what `hold` gives to its block."""

    __slots__ = (
        "_cancelling",
        "_told",
        "deadline",
        "due",
        "fence",
        "locks",
        "lost",
        "mark",
        "place",
        "renewing",
        "task",
    )

    def __init__(self, locks: BoundLocks, place: Place, mark: str, fence: int, sent: float) -> None:
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self.fence = fence
        """The fencing number: larger than that of every holder before."""
        self.lost: str | None = None
        """Why the lock is no longer held; None while it is."""
        self.place = place
        self.mark = mark
        self.task = task
        self.renewing = False
        self.locks = locks
        self._cancelling = task.cancelling()
        self._told = False
        self.confirmed(sent)

    @property
    def key(self) -> str:
        """The lock's key, which SQL knows it by."""
        return self.place.taken[0]

    @property
    def remaining(self) -> float:
        """Seconds for which the lock is certainly held, if no renewal succeeds any more."""
        return 0.0 if self.lost else max(0.0, self.deadline - monotonic())

    def confirmed(self, sent: float) -> None:
        """Count the lease from when the request left: the server can only have begun it later."""
        self.deadline = sent + self.locks.safe_lease
        self.due = sent + self.locks.interval

    def renew(self) -> Awaitable[int]:
        """Ask the server for another lease."""
        return self.locks.renew(self)

    @property
    def interval(self) -> float:
        """Seconds from one renewal to the next."""
        return self.locks.interval

    def lose(self, reason: str) -> None:
        """Tell the holder, once, that it no longer holds the lock."""
        if self.lost is None:
            self.lost = reason
            self._told = True
            self.task.cancel(f"the lock {self.key} was lost: {reason}")

    def expire(self) -> None:
        """Tell the holder that its lease may end any moment."""
        self.lose(_NOT_IN_TIME)

    def refuse(self) -> None:
        """Tell the holder what a renewal has found."""
        self.lose(_GONE)

    async def end(self, error: BaseException | None) -> None:
        """Give the lock up; `LockLost` when the block was not alone to its end."""
        locks = self.locks
        locks.keeper.drop(self)
        if self.lost is None and monotonic() < self.deadline:
            try:
                if await locks.release(self.place, self.mark):
                    return
            except BaseException as problem:
                locks.let_go(self.place, self.mark)
                if isinstance(problem, EphemeraError):
                    return  # it was ours; the server forgets it by itself if it cannot be told
                raise
            self.lost = _GONE
        else:
            self.lost = self.lost or _NOT_IN_TIME
            locks.let_go(self.place, self.mark)
        self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        # Only our own cancellation becomes LockLost: whoever else asked for one gets it.
        ours = self._told and self.task.uncancel() <= self._cancelling
        self.locks.lost += 1
        lost = LockLost(self.key, self.fence, self.lost or _GONE)
        if error is None or (ours and isinstance(error, asyncio.CancelledError)):
            raise lost from error
        error.add_note(str(lost))

    def __repr__(self) -> str:
        return f"<Held {self.key!r}, fence {self.fence}{', lost' if self.lost else ''}>"


class Hold:
    """The block of `hold`: entered when the lock is held, left when it is given up."""

    __slots__ = ("_held", "_locks", "_place", "_timeout")

    def __init__(self, locks: BoundLocks, place: Place, timeout: float | None) -> None:
        self._locks = locks
        self._place = place
        self._timeout = timeout
        self._held: Held | None = None

    async def __aenter__(self) -> Held:
        held = self._held = await self._locks.acquire(self._place, self._timeout)
        return held

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[None, None, None]:
        return cast("Held", self._held).end(error)


class TryHold:
    """The block of `try_hold`: the same, or None at once when another has the lock."""

    __slots__ = ("_held", "_locks", "_place")

    def __init__(self, locks: BoundLocks, place: Place) -> None:
        self._locks = locks
        self._place = place
        self._held: Held | None = None

    async def __aenter__(self) -> Held | None:
        got = await self._locks.attempt(self._place)
        self._held = got if isinstance(got, Held) else None
        return self._held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.end(error)
