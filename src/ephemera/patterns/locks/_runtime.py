"""What `store[X]` gives: locks, semaphores and read-write locks that can be held.

Acquiring takes one round trip when the lock is free, otherwise a subscription and a place in the queue. A
waiter subscribes to a channel of its own before it joins the queue, so that it misses no wake-up, and a
release sees by the number of receivers whether the waiter is still there. A wake-up is an offer that stands
for one second: the waiter accepts it by calling the script again with its token, so one that hangs delays the
next by that second at most. Whatever was missed (a lost connection, a flushed server), a waiter tries again
when the lease it saw is over; waiters further back a little later, so that they do not all try at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from math import inf
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, cast

from ephemera._bounded_cache import BoundedCache
from ephemera.errors import LockTimeout, StoreClosed, Unavailable
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Stats, Store
from ephemera.patterns.locks._held_lock import (
    RENEWER,
    HeldLock,
    Holder,
    Kind,
    Leases,
    LockKeys,
    Waiter,
    read_holders,
)
from ephemera.wire import Subscription

if TYPE_CHECKING:
    from ephemera.patterns.locks._declaration import LockDeclaration, Locks, ReadWriteLocks, Semaphores

_KEYS_CACHED = 4096
_STAGGER = 0.005  # seconds between the attempts of waiters that queue behind each other
_LONGEST_STAGGER = 0.5
_CONNECTION_CHECK = 0.5  # seconds after which a waiter checks that its connection is still up


class Busy(NamedTuple):
    """A lock that someone else holds."""

    ends: float  # when its lease does unless it is renewed, by `monotonic`
    holder: Holder


class LockRuntime:
    """What the locks, semaphores and read-write locks of one store have in common."""

    def __init__(self, declaration: LockDeclaration, store: Store, permits: int | None = None) -> None:
        self.declaration = declaration
        self._stats: Stats = store[declaration.keyspace].stats
        self._decode_wake_up = store[declaration.channel].decode
        self._client = store.client(declaration.role)
        self._run = self._client.run
        self._renewer = store[RENEWER]
        lease = cast("int", declaration.keyspace.lifetime.milliseconds)
        fence_kept = cast("int", declaration.fences.lifetime.milliseconds)
        self._leases = Leases(self._client, self._renewer, lease, fence_kept, permits)
        self._script = self._leases.scripts.acquire
        self._arguments = self._leases.acquire_arguments
        self._queue_lifetime = str(declaration.waiters.lifetime.milliseconds)
        self._keys: BoundedCache[str, LockKeys] = BoundedCache(_KEYS_CACHED)
        self._render = declaration.keyspace.template.render

    @property
    def held(self) -> int:
        """How many of this declaration the store holds now."""
        return sum(each._leases is self._leases for each in list(self._renewer.held.values()))

    @property
    def acquired(self) -> int:
        """How many were acquired since the store was opened."""
        return self._stats.writes

    @property
    def lost(self) -> int:
        """How many were lost before they were released, since the store was opened."""
        return self._leases.lost

    async def _acquire(self, keys: LockKeys, timeout: float | None, kind: Kind = "") -> HeldLock:
        began = monotonic()
        owner = self._renewer.new_owner(keys.acquire[0], kind)
        try:  # the hot path: `_try_once` would be one more frame
            reply = await self._run(self._script, keys.acquire, (owner, *self._arguments))
        except BaseException as problem:
            self._failed(problem, keys, owner)
            raise
        if isinstance(reply, (int, bytes)):
            return self._acquired(keys, owner, reply, began)
        if timeout is not None and timeout <= 0:
            raise _timed_out(keys, 0.0, self._busy(reply))
        return await self._wait(keys, owner, began, inf if timeout is None else began + timeout)

    async def _try_acquire(self, keys: LockKeys, kind: Kind = "") -> HeldLock | Busy:
        return await self._try_once(keys, self._renewer.new_owner(keys.lock, kind))

    async def _try_once(self, keys: LockKeys, owner: str, waiter: Waiter = ()) -> HeldLock | Busy:
        """Acquire the lock if it is free, and otherwise queue for it if a waiter is given."""
        sent = monotonic()
        queueing = (*waiter, self._queue_lifetime) if waiter else ()
        try:
            reply = await self._run(self._script, keys.acquire, (owner, *self._arguments, *queueing))
        except BaseException as problem:
            self._failed(problem, keys, owner, waiter)
            raise
        granted = isinstance(reply, (int, bytes))
        return self._acquired(keys, owner, reply, sent) if granted else self._busy(reply)

    def _acquired(self, keys: LockKeys, owner: str, reply: int | bytes, sent: float) -> HeldLock:
        held = HeldLock(self._leases, keys, owner, reply, sent)
        self._stats.writes += 1
        self._renewer.add(held)
        return held

    def _busy(self, reply: tuple[int, int, bytes, bytes | None]) -> Busy:
        left, before, stored, fence = reply
        rest = self._leases.seconds if left < 0 else left / 1000
        stagger = min(_STAGGER * before, _LONGEST_STAGGER)
        return Busy(monotonic() + rest + stagger, Holder.decode(stored, fence))

    def _failed(self, problem: BaseException, keys: LockKeys, owner: str, waiter: Waiter = ()) -> None:
        """Count an error, and release what the server may have granted to a caller that got no reply."""
        self._stats.errors += isinstance(problem, REDIS_ERRORS)
        if waiter or not isinstance(problem, Unavailable):
            self._leases.release_later(keys, owner, waiter)

    async def _wait(self, keys: LockKeys, owner: str, began: float, deadline: float) -> HeldLock:
        token = owner.partition(" ")[0]
        channel = self.declaration._wake_channel(keys, token)
        subscription = self._client.subscribe(channel, kind="shard")
        await subscription.__aenter__()
        try:
            while True:
                got = await self._try_once(keys, owner, (token, channel))
                if isinstance(got, HeldLock):
                    return got
                try:
                    await self._until_wake_up(subscription, got.ends, deadline)
                    if monotonic() >= deadline:
                        raise _timed_out(keys, monotonic() - began, got)
                except BaseException:
                    self._leases.release_later(keys, owner, (token, channel))
                    raise
        finally:
            self._renewer.spawn(subscription.__aexit__(None, None, None))

    async def _until_wake_up(self, subscription: Subscription, retry_at: float, deadline: float) -> None:
        """Return when it is time to try: woken up, at the given moment, or when the server is down."""
        while (left := min(retry_at, deadline) - monotonic()) > 0:
            try:
                async with asyncio.timeout(min(left, _CONNECTION_CHECK)):
                    message = await anext(subscription)
            except TimeoutError:
                if not self._client.up:
                    return
            except StopAsyncIteration:
                raise StoreClosed("the store was closed while a lock was waited for") from None
            else:
                after = 0 if message.lost else self._decode_wake_up(message.data) or 0
                retry_at = min(retry_at, monotonic() + after / 1000)

    def _keys_of(self, fields: Mapping[str, FieldValue]) -> LockKeys:
        key = self._render(fields)
        keys = self._keys.get(key)
        if keys is None:
            keys = self._keys[key] = self.declaration._keys(fields)
        return keys


class _AsyncBlock:
    """What is held in an `async with` block; `with` raises an error that shows the right form."""

    __slots__ = ()

    if not TYPE_CHECKING:  # to which `with` is an error without these

        def __enter__(self) -> None:
            raise TypeError(
                "a lock needs `async with`, not `with`: async with store[LOCK].hold(...) as held; "
                "synchronous code uses ephemera.sync"
            )

        def __exit__(self, *_: object) -> None:
            """Never called: `with` needs it to reach the error of `__enter__`."""


class Hold(_AsyncBlock):
    """The `async with` block that waits for a lock."""

    __slots__ = ("_held", "_keys", "_kind", "_locks", "_timeout")

    def __init__(
        self, locks: LockRuntime, keys: LockKeys, timeout: float | timedelta | None, kind: Kind = ""
    ) -> None:
        self._locks = locks
        self._keys = keys
        self._timeout = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        self._kind: Kind = kind
        self._held: HeldLock | None = None

    async def __aenter__(self) -> HeldLock:
        held = self._held = await self._locks._acquire(self._keys, self._timeout, self._kind)
        return held

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[None, None, None]:
        return cast("HeldLock", self._held)._end(error)


class TryHold(_AsyncBlock):
    """The `async with` block that does not wait; it gets None when the lock is not free."""

    __slots__ = ("_held", "_keys", "_kind", "_locks")

    def __init__(self, locks: LockRuntime, keys: LockKeys, kind: Kind = "") -> None:
        self._locks = locks
        self._keys = keys
        self._kind: Kind = kind
        self._held: HeldLock | None = None

    async def __aenter__(self) -> HeldLock | None:
        got = await self._locks._try_acquire(self._keys, self._kind)
        self._held = got if isinstance(got, HeldLock) else None
        return self._held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held._end(error)


def _timed_out(keys: LockKeys, waited: float, busy: Busy) -> LockTimeout:
    return LockTimeout(keys.lock, waited, busy.holder.name, busy.holder.fence)


class BoundLocks(LockRuntime):
    """The locks of one store: what `store[LOCKS]` gives."""

    def __init__(self, declaration: Locks, store: Store) -> None:
        super().__init__(declaration, store)

    def hold(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """Hold the lock for the length of an `async with` block, waiting at most `timeout` seconds for it.

        Raises `LockTimeout` when others hold it for longer, and `LockLost` at the end of the block when the
        lock was lost in between.
        """
        return Hold(self, self._keys_of(fields), timeout)

    def try_hold(self, /, **fields: FieldValue) -> TryHold:
        """Hold the lock if it is free, without waiting; the block runs with None when it is not."""
        return TryHold(self, self._keys_of(fields))

    async def holder(self, /, **fields: FieldValue) -> Holder | None:
        """Return the current holder; None when the lock is free."""
        stored, fence = await self._client.call("MGET", *self._keys_of(fields).acquire[:2])
        return None if stored is None else Holder.decode(stored, fence)


class BoundSemaphores(LockRuntime):
    """The semaphores of one store: what `store[SEMAPHORES]` gives."""

    def __init__(self, declaration: Semaphores, store: Store) -> None:
        super().__init__(declaration, store, declaration.permits)

    def hold(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """Hold a permit for the length of an `async with` block, waiting at most `timeout` seconds for one.

        Raises `LockTimeout` when none became free in time, and `LockLost` at the end of the block when the
        permit was lost in between.
        """
        return Hold(self, self._keys_of(fields), timeout, "p")

    def try_hold(self, /, **fields: FieldValue) -> TryHold:
        """Hold a permit if one is free and no one waits for it; otherwise the block runs with None."""
        return TryHold(self, self._keys_of(fields), "p")

    async def holders(self, /, **fields: FieldValue) -> list[Holder]:
        """Return the current holders, longest first."""
        return [holder for holder, _ in await read_holders(self._client, self._keys_of(fields))]


class BoundReadWriteLocks(LockRuntime):
    """The read-write locks of one store: what `store[READ_WRITE_LOCKS]` gives."""

    def __init__(self, declaration: ReadWriteLocks, store: Store) -> None:
        super().__init__(declaration, store, 0)

    def read(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """Hold the lock with other readers for the length of an `async with` block.

        Waits at most `timeout` seconds for writers that hold the lock or came first; then `LockTimeout`.
        Raises `LockLost` at the end of the block when the lock was lost in between.
        """
        return Hold(self, self._keys_of(fields), timeout, "r")

    def write(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """Hold the lock alone for the length of an `async with` block.

        Waits at most `timeout` seconds for holders and for those who came first; then `LockTimeout`. Raises
        `LockLost` at the end of the block when the lock was lost in between.
        """
        return Hold(self, self._keys_of(fields), timeout, "w")

    def try_read(self, /, **fields: FieldValue) -> TryHold:
        """Read without waiting; the block runs with None when a writer holds the lock or waits for it."""
        return TryHold(self, self._keys_of(fields), "r")

    def try_write(self, /, **fields: FieldValue) -> TryHold:
        """Write without waiting; the block runs with None when the lock is held or waited for."""
        return TryHold(self, self._keys_of(fields), "w")

    async def holders(self, /, **fields: FieldValue) -> list[Holder]:
        """Return the current readers, longest first, or the writer."""
        return [holder for holder, _ in await read_holders(self._client, self._keys_of(fields))]
