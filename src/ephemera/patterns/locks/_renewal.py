"""The keeper of a store's locks: renews all that are due in one trip, and tells holders that it cannot.

One timer serves every lock of the store, whichever declaration it is of. A renewal that becomes due takes
along those that would be due within half their time, so locks taken at different moments are soon renewed
together. A renewal that fails is repeated until the lock's deadline, and then the holder is told. What nobody
waits for (a release after a cancellation, leaving a channel) is done in the background, and awaited for a
moment when the store closes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from math import inf
from time import monotonic
from typing import Any

from ephemera.errors import AlreadyHeld, ConnectionFailed, EphemeraError
from ephemera.keyspace import Store
from ephemera.patterns.locks._held_lock import Held

_FAREWELL = 0.25  # seconds that a closing store waits for releases on their way
_FIRST_PAUSE = 0.02  # seconds before a failed release is repeated, then twice as long each time
_LONGEST_PAUSE = 1.0


class Keeper:
    """What one store holds."""

    def __init__(self, store: Store) -> None:
        self.held: dict[str, Held] = {}
        run, name = secrets.token_hex(8), f"{socket.gethostname()}/{os.getpid()}"
        self._marks = (f"{run}-{number:x} {name}" for number in count(1))
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = inf
        self._background: set[asyncio.Task[Any]] = set()
        store.before_close(self.aclose)

    def mark(self, key: str) -> str:
        """A token and who we are, for one attempt at a lock; `AlreadyHeld` when the task that asks has it."""
        mine = self.held.get(key)
        if mine is not None and mine.task is asyncio.current_task():
            raise AlreadyHeld(key, mine.fence)
        return next(self._marks)

    def keep(self, held: Held) -> None:
        """Renew a lock from now on."""
        before = self.held.get(held.key)
        if before is not None:
            before.lose(f"another task of this process holds it, with the fence {held.fence}")
        self.held[held.key] = held
        if held.due < self._wakes_at:
            self._wake(held.due)

    def drop(self, held: Held) -> None:
        """Renew it no more, nor tell its holder anything."""
        if self.held.get(held.key) is held:
            del self.held[held.key]

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def insist(self, attempt: Callable[[], Awaitable[Any]], seconds: float) -> None:
        """Do something in the background, again while the server cannot be asked, for so many seconds."""
        self.spawn(_insist(attempt, monotonic() + seconds))

    async def aclose(self) -> None:
        """Tell holders that the store is closing, and let releases on their way arrive."""
        for held in list(self.held.values()):
            held.lose("its store was closed")
        self.held.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._background:
            _, late = await asyncio.wait(self._background, timeout=_FAREWELL)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _wake(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - monotonic()), self._tick)

    def _wake_for_next(self) -> None:
        coming = [
            held.deadline if held.renewing else min(held.due, held.deadline) for held in self.held.values()
        ]
        if coming:
            self._wake(min(coming))

    def _tick(self) -> None:
        self._timer, self._wakes_at = None, inf
        now = monotonic()
        for held in [each for each in self.held.values() if each.deadline <= now]:
            self.drop(held)
            held.expire()
        idle = [held for held in self.held.values() if not held.renewing]
        if any(held.due <= now for held in idle):
            due = [held for held in idle if held.due - held.interval / 2 <= now]
            for held in due:
                held.renewing = True
            self.spawn(self._renew_all(due))
        self._wake_for_next()

    async def _renew_all(self, due: list[Held]) -> None:
        await asyncio.gather(*map(self._renew, due))  # they all begin in one tick, and leave in one write
        self._wake_for_next()

    async def _renew(self, held: Held) -> None:
        sent = monotonic()
        try:
            kept = await held.renew()
        except EphemeraError:
            held.due = monotonic() + held.interval / 8
        else:
            if kept:
                held.confirmed(sent)
            elif self.held.get(held.key) is held:
                self.drop(held)
                held.refuse()
        finally:
            held.renewing = False


class Keeping:
    """What `store[KEEPING]` takes: the one keeper of a store."""

    def bind(self, store: Store) -> Keeper:
        """Make it."""
        return Keeper(store)


KEEPING = Keeping()


async def _insist(attempt: Callable[[], Awaitable[Any]], until: float) -> None:
    pause = _FIRST_PAUSE
    while True:
        try:
            await attempt()
        except ConnectionFailed:
            if monotonic() + pause > until:
                return
        except EphemeraError:
            return
        else:
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
