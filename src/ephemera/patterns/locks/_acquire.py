"""Acquiring a lock: one round trip when it is free, otherwise a subscription and a place in the queue.

A waiter subscribes to a channel of its own before it joins the queue, so that it misses no wake-up, and a
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
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store
from ephemera.patterns.locks._held_lock import RENEWER, HeldLock, Holder, Leases, LockKeys, Waiter
from ephemera.wire import Script, Subscription

if TYPE_CHECKING:
    from ephemera.patterns.locks._declaration import Locks

ACQUIRE = Script.load("ephemera.patterns.locks", "acquire")

_KEYS_CACHED = 4096
_STAGGER = 0.005  # seconds between the attempts of waiters that queue behind each other
_LONGEST_STAGGER = 0.5
_CONNECTION_CHECK = 0.5  # seconds after which a waiter checks that its connection is still up


class Busy(NamedTuple):
    """A lock that someone else holds."""

    ends: float  # when its lease does unless it is renewed, by `monotonic`
    holder: Holder


class BoundLocks:
    """The locks of one store: what `store[LOCKS]` gives."""

    def __init__(self, declaration: Locks, store: Store) -> None:
        self.declaration = declaration
        self._stats = store[declaration.keyspace].stats
        self._decode_wake_up = store[declaration.channel].decode
        self._client = store.client(declaration.role)
        self._run = self._client.run
        self._renewer = store[RENEWER]
        lease = cast("int", declaration.keyspace.lifetime.milliseconds)
        self._leases = Leases(self._client, self._renewer, lease)
        self._lifetimes = (str(lease), str(declaration.fences.lifetime.milliseconds))
        self._queue_lifetime = str(declaration.waiters.lifetime.milliseconds)
        self._keys: BoundedCache[str, LockKeys] = BoundedCache(_KEYS_CACHED)
        self._render = declaration.keyspace.template.render

    @property
    def held(self) -> int:
        """How many locks of this declaration the store holds now."""
        return sum(each._leases is self._leases for each in list(self._renewer.held.values()))

    @property
    def acquired(self) -> int:
        """How many were acquired since the store was opened."""
        return self._stats.writes

    @property
    def lost(self) -> int:
        """How many were lost before they were released, since the store was opened."""
        return self._leases.lost

    def hold(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """Hold the lock for the length of an `async with` block, waiting at most `timeout` seconds for it.

        Raises `LockTimeout` when others hold it for longer, and `LockLost` at the end of the block when the
        lock was lost in between.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        return Hold(self, self._keys_of(fields), seconds)

    def try_hold(self, /, **fields: FieldValue) -> TryHold:
        """Hold the lock if it is free, without waiting; the block runs with None when it is not."""
        return TryHold(self, self._keys_of(fields))

    async def holder(self, /, **fields: FieldValue) -> Holder | None:
        """Return the current holder; None when the lock is free."""
        stored, fence = await self._client.call("MGET", *self._keys_of(fields).acquire[:2])
        return None if stored is None else Holder.decode(stored, fence)

    async def _acquire(self, keys: LockKeys, timeout: float | None) -> HeldLock:
        began = monotonic()
        owner = self._renewer.new_owner(keys.acquire[0])
        try:  # the hot path: `_try_once` would be one more frame
            reply = await self._run(ACQUIRE, keys.acquire, (owner, *self._lifetimes))
        except BaseException as problem:
            self._failed(problem, keys, owner)
            raise
        if type(reply) is int:
            return self._acquired(keys, owner, reply, began)
        if timeout is not None and timeout <= 0:
            raise _timed_out(keys, 0.0, self._busy(reply))
        return await self._wait(keys, owner, began, inf if timeout is None else began + timeout)

    async def _try_acquire(self, keys: LockKeys) -> HeldLock | Busy:
        return await self._try_once(keys, self._renewer.new_owner(keys.lock))

    async def _try_once(self, keys: LockKeys, owner: str, waiter: Waiter = ()) -> HeldLock | Busy:
        """Acquire the lock if it is free, and otherwise queue for it if a waiter is given."""
        sent = monotonic()
        queueing = (*waiter, self._queue_lifetime) if waiter else ()
        try:
            reply = await self._run(ACQUIRE, keys.acquire, (owner, *self._lifetimes, *queueing))
        except BaseException as problem:
            self._failed(problem, keys, owner, waiter)
            raise
        return self._acquired(keys, owner, reply, sent) if type(reply) is int else self._busy(reply)

    def _acquired(self, keys: LockKeys, owner: str, fence: int, sent: float) -> HeldLock:
        held = HeldLock(self._leases, keys, owner, fence, sent)
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
        channel = self.declaration.wake_channel(keys, token)
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
            keys = self._keys[key] = self.declaration.keys(fields)
        return keys


class Hold:
    """The `async with` block of `hold`."""

    __slots__ = ("_held", "_keys", "_locks", "_timeout")

    def __init__(self, locks: BoundLocks, keys: LockKeys, timeout: float | None) -> None:
        self._locks = locks
        self._keys = keys
        self._timeout = timeout
        self._held: HeldLock | None = None

    async def __aenter__(self) -> HeldLock:
        held = self._held = await self._locks._acquire(self._keys, self._timeout)
        return held

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[None, None, None]:
        return cast("HeldLock", self._held)._end(error)


class TryHold:
    """The `async with` block of `try_hold`; it gets None when the lock is not free."""

    __slots__ = ("_held", "_keys", "_locks")

    def __init__(self, locks: BoundLocks, keys: LockKeys) -> None:
        self._locks = locks
        self._keys = keys
        self._held: HeldLock | None = None

    async def __aenter__(self) -> HeldLock | None:
        got = await self._locks._try_acquire(self._keys)
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
