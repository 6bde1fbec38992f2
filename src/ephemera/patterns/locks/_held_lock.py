"""A held lock, and the renewal of its lease.

A lost lock cancels the holder's task, as `asyncio.timeout` does, and the end of the block turns that
cancellation into `LockLost`; a cancellation from elsewhere stays one. If the block finished before it was
cancelled, its result cannot be trusted, and `LockLost` is raised anyway. An error raised by the block is
left alone, with a note.

One timer renews every lock of a store, whichever declaration it belongs to. A renewal that becomes due
includes the locks that would be due within half their interval, so locks acquired at different moments are
soon renewed together. A failed renewal is retried until the lock's deadline, and then the lock is lost. Work
that no caller waits for (a release after a cancellation, an unsubscription) runs in the background; a closing
store waits for it briefly.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from itertools import count
from math import inf
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from ephemera._futures import cancel_all
from ephemera._stored_numbers import stored_int, stored_time
from ephemera.blocking import HOLDER
from ephemera.errors import ConnectionFailed, EphemeraError, LockAlreadyHeld, LockLost, ServerError
from ephemera.keyspace import FieldValue, Store
from ephemera.wire import Client, Script, as_text

Kind: TypeAlias = Literal["", "p", "r", "w"]
"""What a token is for, its first letter: a permit, reading or writing; none for a lock."""

Mode: TypeAlias = Literal["lock", "permit", "read", "write"]
_MODES: dict[str, Mode] = {"p": "permit", "r": "read", "w": "write"}
_HOLDERS_READ = 1000
_GRANT = re.compile(rb"(\d{1,4}) (\d{1,17}) (\d{1,17}) (.{0,500})", re.DOTALL)

_PACKAGE = "ephemera.patterns.locks"

_OFFER = 1000  # milliseconds that a woken waiter has to acquire the lock
_CLOSE_TIMEOUT = 0.25  # seconds that a closing store waits for releases under way
_FIRST_PAUSE = 0.02  # seconds before a failed release is retried, doubled each time
_LONGEST_PAUSE = 1.0
_RENEWED_TOO_LATE = "no renewal was confirmed before its lease could have ended"
_GONE = "the server no longer had it"


class LockKeys(NamedTuple):
    """The keys of one lock, grouped as its scripts take them."""

    acquire: tuple[str, ...]  # the lock or its holders, its fence counter, its waiters, its grants if shared
    renew: tuple[str, ...]
    release: tuple[str, ...]
    fields: dict[str, FieldValue]

    @property
    def lock(self) -> str:
        """The key of the lock itself."""
        return self.acquire[0]


class Holder(NamedTuple):
    """A holder; without a name and with fence 0 while the lock is offered to a waiter."""

    name: str
    fence: int
    mode: Mode = "lock"
    permit: int | None = None
    """The number of the permit, from 0, of a semaphore."""
    acquired: int = 0
    """When it was acquired, in microseconds since 1970 by the server's clock."""

    @classmethod
    def decode(cls, stored: bytes, fence: bytes | None) -> Holder:
        """Decode the values of a lock and of its fence counter."""
        name = stored.decode("utf-8", "replace").partition(" ")[2]
        known = (stored_int(fence) or 0) if name else 0
        return cls(name, known, acquired=known)

    @classmethod
    def decode_grant(cls, token: str, grant: bytes) -> Holder:
        """Decode a grant of a semaphore or a read-write lock; one of another program has no name."""
        mode = _MODES.get(token[:1], "lock")
        found = _GRANT.fullmatch(grant)
        if found is None:
            return cls("", 0, mode)
        permit, fence, acquired = (int(each) for each in found.groups()[:3])
        name = found[4].decode("utf-8", "replace")
        number = permit if mode == "permit" else None
        return cls(name, fence if name else 0, mode, number, acquired if name else 0)

    @property
    def since(self) -> datetime | None:
        """When the lock was acquired, by the server's clock; None while it is offered to a waiter."""
        return stored_time(self.acquired / 1_000_000) if self.acquired else None


async def read_holders(client: Client, keys: LockKeys) -> list[tuple[Holder, float]]:
    """Up to a thousand holders of a semaphore or a read-write lock, and the seconds left of their leases."""
    holders, _, _, grants = keys.acquire
    (seconds, rest), ends, granted = await asyncio.gather(
        client.call("TIME"),
        client.call("ZRANDMEMBER", holders, _HOLDERS_READ, "WITHSCORES"),
        client.call("HGETALL", grants),
    )
    now = int(seconds) * 1_000_000 + int(rest)
    found = [
        (Holder.decode_grant(as_text(member), granted[member]), (float(end) - now) / 1_000_000)
        for member, end in ends
        if now < float(end) < inf and member in granted
    ]
    return sorted(found, key=lambda each: each[0].acquired)


class Scripts(NamedTuple):
    """The scripts of one kind of lock."""

    acquire: Script
    renew: Script
    release: Script


EXCLUSIVE = Scripts(*(Script.load(_PACKAGE, name) for name in Scripts._fields))
SHARED = Scripts(
    *(
        Script.load(_PACKAGE, f"shared_{name}", shared=(f"{_PACKAGE}:shared_holders",))
        for name in Scripts._fields
    )
)
"""Those of semaphores and read-write locks."""

Waiter: TypeAlias = tuple[()] | tuple[str, str]
"""A waiter's token and its channel; empty for a caller that is not in the queue."""

Slot: TypeAlias = "str | tuple[str, object]"
"""What has one holder in a process: a lock, or a shared one and its holder."""


def current_holder() -> object:
    """Who acquires a lock: a task, or the thread of synchronous code that one stands for."""
    return HOLDER.get() or asyncio.current_task()


class Leases:
    """The leases of one declaration on a store: their length, and the scripts that begin and end them."""

    def __init__(
        self, client: Client, renewer: LeaseRenewer, milliseconds: int, fence_kept: int, permits: int | None
    ) -> None:
        """Take the lease and the lifetime of fences in milliseconds, and the permits of a shared lock."""
        self.renewer = renewer
        self.seconds = milliseconds / 1000
        self.renewal_interval = self.seconds / 3
        # Clocks may differ in rate by 5 %, and over long leases by one second in total.
        self.safe_seconds = self.seconds - min(self.seconds / 20, 1.0)
        self.lost = 0
        self._call, self._run = client.call, client.run
        self._milliseconds = str(milliseconds)
        offer, lifetimes = str(min(_OFFER, milliseconds)), (str(milliseconds), str(fence_kept))
        shared = permits is not None
        self.scripts = SHARED if shared else EXCLUSIVE
        self.acquire_arguments = (*lifetimes, offer, str(permits)) if shared else lifetimes
        self._release_arguments = self.acquire_arguments if shared else (offer,)
        self._has_ifeq = not shared  # until the server says otherwise

    async def renew(self, held: HeldLock) -> object:
        """Restart the lease; false when the lock is no longer this holder's."""
        owner = held._owner
        if self._has_ifeq:  # of Valkey 8.1 and Redis 8.4: half the cost of the script
            try:
                return await self._call("SET", held.key, owner, "IFEQ", owner, "PX", self._milliseconds)
            except ServerError as refusal:
                if "syntax error" not in refusal.message:
                    raise
                self._has_ifeq = False
        return await self._run(self.scripts.renew, held._keys.renew, (owner, self._milliseconds))

    def release(self, keys: LockKeys, owner: str, waiter: Waiter = ()) -> Awaitable[int]:
        """Release the lock, or leave its queue; 0 when it was not held."""
        return self._run(self.scripts.release, keys.release, (owner, *self._release_arguments, *waiter))

    def release_later(self, keys: LockKeys, owner: str, waiter: Waiter = ()) -> None:
        """Release in the background a lock that may be held, retrying until its lease is over."""
        self.renewer.retry_in_background(lambda: self.release(keys, owner, waiter), self.seconds)


class HeldLock:
    """A lock while it is held: what a `hold` block gets."""

    __slots__ = (
        "_cancellations",
        "_cancelled",
        "_deadline",
        "_due",
        "_holder",
        "_keys",
        "_leases",
        "_owner",
        "_renewing",
        "_slot",
        "_task",
        "fence",
        "lost",
        "permit",
    )

    def __init__(self, leases: Leases, keys: LockKeys, owner: str, reply: int | bytes, sent: float) -> None:
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._holder = HOLDER.get() or task
        self.permit: int | None = None
        """The number of the permit, from 0, that no other holder of the semaphore has."""
        if type(reply) is int:
            self.fence = reply
            """The fencing token: larger than that of every earlier holder."""
            self._slot: Slot = keys.acquire[0]
        else:
            holder = Holder.decode_grant(owner, cast("bytes", reply))
            self.fence, self.permit = holder.fence, holder.permit
            self._slot = (keys.acquire[0], self._holder)
        self.lost: str | None = None
        """Why the lock is no longer held; None while it is."""
        self._leases = leases
        self._keys = keys
        self._owner = owner
        self._task = task
        self._cancellations = task.cancelling()
        self._cancelled = False
        self._renewing = False
        self._confirm(sent)

    @property
    def key(self) -> str:
        """The lock's key."""
        return self._keys.acquire[0]

    @property
    def fenced(self) -> str:
        """What the fencing token protects, as SQL knows it: the key, with the number of a permit."""
        return self.key if self.permit is None else f"{self.key}#{self.permit}"

    @property
    def remaining(self) -> float:
        """Seconds for which the lock is certainly held if no further renewal succeeds."""
        return 0.0 if self.lost else max(0.0, self._deadline - monotonic())

    def __repr__(self) -> str:
        return f"<HeldLock {self.key!r}, fence {self.fence}{', lost' if self.lost else ''}>"

    def _confirm(self, sent: float) -> None:
        # The lease counts from when the request was sent: the server can only have started it later.
        self._deadline = sent + self._leases.safe_seconds
        self._due = sent + self._leases.renewal_interval

    def _lose(self, reason: str) -> None:
        """Cancel the holder, once."""
        if self.lost is None:
            self.lost = reason
            self._cancelled = True
            self._task.cancel(f"the lock {self.key} was lost: {reason}")

    async def _end(self, error: BaseException | None) -> None:
        """Release the lock; raise `LockLost` when it was lost before the block ended."""
        leases = self._leases
        leases.renewer.remove(self)
        if self.lost is None and monotonic() < self._deadline:
            try:
                if await leases.release(self._keys, self._owner):
                    return
            except BaseException as problem:
                leases.release_later(self._keys, self._owner)
                if isinstance(problem, EphemeraError):
                    return  # it was held to the end; the server expires it if no release arrives
                raise
            self.lost = _GONE
        else:
            self.lost = self.lost or _RENEWED_TOO_LATE
            leases.release_later(self._keys, self._owner)
        self._raise_lost(error)

    def _raise_lost(self, error: BaseException | None) -> None:
        # Only our own cancellation becomes LockLost; one requested by other code stays a cancellation.
        ours = self._cancelled and self._task.uncancel() <= self._cancellations
        self._leases.lost += 1
        lost = LockLost(self.key, self.fence, self.lost or _GONE)
        if error is None or (ours and isinstance(error, asyncio.CancelledError)):
            raise lost from error
        error.add_note(str(lost))


class LeaseRenewer:
    """Renews all locks that one store holds."""

    def __init__(self, store: Store) -> None:
        self.held: dict[Slot, HeldLock] = {}
        prefix, name = secrets.token_hex(8), f"{socket.gethostname()}/{os.getpid()}"
        self._owners = (f"{prefix}-{number:x} {name}" for number in count(1))
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = inf
        self._background: set[asyncio.Task[Any]] = set()
        store.before_close(self.aclose)

    def new_owner(self, key: str, kind: Kind = "") -> str:
        """A token and this process's name, for one attempt; `LockAlreadyHeld` if this task holds the lock."""
        mine = self.held.get((key, current_holder()) if kind else key)
        if mine is not None and mine._holder == current_holder():
            raise LockAlreadyHeld(key, mine.fence)
        return kind + next(self._owners)

    def add(self, held: HeldLock) -> None:
        """Renew a lock from now on."""
        before = self.held.get(held._slot)
        if before is not None:
            before._lose(f"another task of this process holds it, with the fence {held.fence}")
        self.held[held._slot] = held
        if held._due < self._wakes_at:
            self._wake(held._due)

    def remove(self, held: HeldLock) -> None:
        """Stop renewing a lock."""
        if self.held.get(held._slot) is held:
            del self.held[held._slot]

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work that no caller waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def retry_in_background(self, attempt: Callable[[], Awaitable[Any]], seconds: float) -> None:
        """Run something in the background, retrying for this many seconds while the server is unavailable."""
        self.spawn(_retry(attempt, monotonic() + seconds))

    async def aclose(self) -> None:
        """Cancel the holders, and give releases under way a moment to complete."""
        for held in list(self.held.values()):
            held._lose("its store was closed")
        self.held.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._background:
            _, late = await asyncio.wait(self._background, timeout=_CLOSE_TIMEOUT)
            await cancel_all(late)

    def _wake(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - monotonic()), self._tick)

    def _wake_for_next(self) -> None:
        coming = [
            held._deadline if held._renewing else min(held._due, held._deadline)
            for held in self.held.values()
        ]
        if coming:
            self._wake(min(coming))

    def _tick(self) -> None:
        self._timer, self._wakes_at = None, inf
        now = monotonic()
        for held in [each for each in self.held.values() if each._deadline <= now]:
            self.remove(held)
            held._lose(_RENEWED_TOO_LATE)
        idle = [held for held in self.held.values() if not held._renewing]
        if any(held._due <= now for held in idle):
            due = [held for held in idle if held._due - held._leases.renewal_interval / 2 <= now]
            for held in due:
                held._renewing = True
            self.spawn(self._renew_all(due))
        self._wake_for_next()

    async def _renew_all(self, due: list[HeldLock]) -> None:
        await asyncio.gather(*map(self._renew, due))  # all sent in one tick, so in one write
        self._wake_for_next()

    async def _renew(self, held: HeldLock) -> None:
        sent = monotonic()
        try:
            renewed = await held._leases.renew(held)
        except EphemeraError:
            held._due = monotonic() + held._leases.renewal_interval / 8
        else:
            if renewed:
                held._confirm(sent)
            elif self.held.get(held._slot) is held:
                self.remove(held)
                held._lose(_GONE)
        finally:
            held._renewing = False


class _RenewerOfStore:
    """Binds to the one `LeaseRenewer` of a store."""

    def bind(self, store: Store) -> LeaseRenewer:
        """Create it."""
        return LeaseRenewer(store)


RENEWER = _RenewerOfStore()


async def _retry(attempt: Callable[[], Awaitable[Any]], until: float) -> None:
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
