"""Taking a lock: one trip when it is free; otherwise listening, queueing, and looking when there is cause.

A waiter listens on a channel of its own before it queues, so that no call is missed, and a release knows by
who hears it whether the waiter is still there. Being called is an offer that stands for a second: the waiter
takes it by asking again with its token, and one that hangs delays the next by that second at most. Whatever
was missed (a lost connection, an emptied server), a waiter looks when the lease it saw is over; those further
back a little later, so they do not crowd.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import timedelta
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ephemera.errors import LockTimeout, StoreClosed, Unavailable
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store
from ephemera.patterns.locks._held_lock import Held, Hold, TryHold
from ephemera.patterns.locks._lock_keys import Holder, Place
from ephemera.patterns.locks._renewal import KEEPING
from ephemera.wire import Script, Subscription

if TYPE_CHECKING:
    from ephemera.patterns.locks._declaration import Locks

ACQUIRE = Script.load("ephemera.patterns.locks", "acquire")
RENEW = Script.load("ephemera.patterns.locks", "renew")
RELEASE = Script.load("ephemera.patterns.locks", "release")

Queued: TypeAlias = tuple[()] | tuple[str, str]
"""Of one who waits: its token and its channel."""

_OFFER = 1000  # milliseconds that a woken waiter has to take the lock
_PLACES_KEPT = 4096
_CROWD = 0.005  # seconds between the looks of waiters that stand behind each other
_MOST_CROWD = 0.5
_STILL_THERE = 0.5  # seconds after which a waiter asks its own connection, not the server, whether it is up


class Busy(NamedTuple):
    """A lock that another has."""

    ends: float  # when its lease does unless it is renewed, by `monotonic`
    holder: Holder


class BoundLocks:
    """The locks of one store: what `store[LOCKS]` gives."""

    def __init__(self, declared: Locks, store: Store) -> None:
        self.declared = declared
        self.lost = 0
        """Locks that were lost before they were given up, since the store was opened."""
        self._stats = store[declared.space].stats
        self._hear = store[declared.channel].decode
        self._client = store.client(declared.role)
        self._run = self._client.run
        self.keeper = store[KEEPING]
        self.lease = declared.lease.total_seconds()
        self.interval = self.lease / 3
        # Clocks may differ in pace by 5 %, and over long leases by a second in all.
        self.safe_lease = self.lease - min(self.lease / 20, 1.0)
        self._milliseconds = str(declared.space.lifetime.milliseconds)
        self._lives = (self._milliseconds, str(declared.fences.lifetime.milliseconds))
        self._queue_life = str(declared.waiters.lifetime.milliseconds)
        self._offer = str(min(_OFFER, round(self.lease * 1000)))
        self._places: dict[str, Place] = {}
        self._render = declared.space.template.render

    @property
    def held(self) -> int:
        """How many of them this store holds now."""
        return sum(each.locks is self for each in list(self.keeper.held.values()))

    @property
    def taken(self) -> int:
        """How many it took since it was opened."""
        return self._stats.writes

    def hold(self, /, *, timeout: float | timedelta | None = None, **fields: FieldValue) -> Hold:
        """The lock for the length of an `async with` block, waited for at most `timeout` seconds.

        `LockTimeout` when others have it for longer, `LockLost` out of the block when it was lost.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        return Hold(self, self._place(fields), seconds)

    def try_hold(self, /, **fields: FieldValue) -> TryHold:
        """The same without waiting: the block gets None, and runs, when another has the lock."""
        return TryHold(self, self._place(fields))

    async def holder(self, /, **fields: FieldValue) -> Holder | None:
        """Who has the lock at this moment; None when nobody does."""
        text, fence = await self._client.call("MGET", *self._place(fields).taken[:2])
        return None if text is None else Holder.read(text, fence)

    async def acquire(self, place: Place, timeout: float | None) -> Held:
        """Take the lock, or wait for it."""
        began = monotonic()
        mark = self.keeper.mark(place.lock)
        try:  # the hot path: no further frame for one trip
            reply = await self._run(ACQUIRE, place.taken, (mark, *self._lives))
        except BaseException as problem:
            self._failed(problem, place, mark)
            raise
        if type(reply) is int:
            return self._taken(place, mark, reply, began)
        if timeout is not None and timeout <= 0:
            raise _not_free(place, 0.0, self._busy(reply))
        return await self._wait(place, mark, began, inf if timeout is None else began + timeout)

    async def attempt(self, place: Place) -> Held | Busy:
        """Take the lock if it is free."""
        return await self._ask(place, self.keeper.mark(place.lock))

    def renew(self, held: Held) -> Awaitable[int]:
        """Start the lease anew; 0 when the lock is another's, or nobody's."""
        return self._run(RENEW, held.place.kept, (held.mark, self._milliseconds))

    def release(self, place: Place, mark: str, queued: Queued = ()) -> Awaitable[int]:
        """Give up the lock, or the place in its queue; 0 when it was not held."""
        return self._run(RELEASE, place.released, (mark, self._offer, *queued))

    def let_go(self, place: Place, mark: str, queued: Queued = ()) -> None:
        """Release in the background what may be held, until its lease is over anyway."""
        self.keeper.insist(lambda: self.release(place, mark, queued), self.lease)

    async def _ask(self, place: Place, mark: str, queued: Queued = ()) -> Held | Busy:
        """One look at the lock, which takes it if it is free, and may queue for it otherwise."""
        sent = monotonic()
        queueing = (*queued, self._queue_life) if queued else ()
        try:
            reply = await self._run(ACQUIRE, place.taken, (mark, *self._lives, *queueing))
        except BaseException as problem:
            self._failed(problem, place, mark, queued)
            raise
        return self._taken(place, mark, reply, sent) if type(reply) is int else self._busy(reply)

    def _taken(self, place: Place, mark: str, fence: int, sent: float) -> Held:
        held = Held(self, place, mark, fence, sent)
        self._stats.writes += 1
        self.keeper.keep(held)
        return held

    def _busy(self, reply: tuple[int, int, bytes, bytes | None]) -> Busy:
        left, before, text, fence = reply
        rest = self.lease if left < 0 else left / 1000
        return Busy(monotonic() + rest + min(_CROWD * before, _MOST_CROWD), Holder.read(text, fence))

    def _failed(self, problem: BaseException, place: Place, mark: str, queued: Queued = ()) -> None:
        """Count an error, and give back what the server may have given to one who heard nothing of it."""
        self._stats.errors += isinstance(problem, REDIS_ERRORS)
        if queued or not isinstance(problem, Unavailable):
            self.let_go(place, mark, queued)

    async def _wait(self, place: Place, mark: str, began: float, deadline: float) -> Held:
        token = mark.partition(" ")[0]
        channel = self.declared.channel_of(place, token)
        listening = self._client.subscribe(channel, kind="shard")
        await listening.__aenter__()
        try:
            while True:
                got = await self._ask(place, mark, (token, channel))
                if isinstance(got, Held):
                    return got
                try:
                    await self._rest(listening, got.ends, deadline)
                    if monotonic() >= deadline:
                        raise _not_free(place, monotonic() - began, got)
                except BaseException:
                    self.let_go(place, mark, (token, channel))
                    raise
        finally:
            self.keeper.spawn(listening.__aexit__(None, None, None))

    async def _rest(self, listening: Subscription, look_at: float, deadline: float) -> None:
        """Return when it is time to look: told so, at the given moment, or when the server is away."""
        while (left := min(look_at, deadline) - monotonic()) > 0:
            try:
                async with asyncio.timeout(min(left, _STILL_THERE)):
                    message = await anext(listening)
            except TimeoutError:
                if not self._client.up:
                    return
            except StopAsyncIteration:
                raise StoreClosed("the store was closed while a lock was waited for") from None
            else:
                after = 0 if message.lost else self._hear(message.data) or 0
                look_at = min(look_at, monotonic() + after / 1000)

    def _place(self, fields: Mapping[str, FieldValue]) -> Place:
        key = self._render(fields)
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= _PLACES_KEPT:
                self._places.clear()
            place = self._places[key] = self.declared.place(fields)
        return place


def _not_free(place: Place, waited: float, busy: Busy) -> LockTimeout:
    return LockTimeout(place.lock, waited, busy.holder.name, busy.holder.fence)
