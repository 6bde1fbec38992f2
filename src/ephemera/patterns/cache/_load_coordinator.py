"""One load at a time: in this process by a task that all callers share, across processes by a claim.

A caller may share a load that was claimed, or begun, after the caller came; a load from before that may have
been invalidated since, so the caller asks the server with a claim of its own, in one trip: the load still
stands, or it is free, or another's. Who waits for another process's load listens on the entry's channel and
looks when called, or when the loader's lease is over: a dead loader's place is free then. A live one renews.

While the server is away there is no claim: callers of this process share a load (`Local(when_down="load")`:
one that was begun after they came); `most_loads` bounds them.
Loads are tasks of their own: a caller that is cancelled leaves the load to the others, and to the cache.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from itertools import count
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemera.errors import StoreClosed
from ephemera.keyspace import REDIS_ERRORS, Stats, Store
from ephemera.patterns.cache._load_runner import Loading, Wish
from ephemera.patterns.cache._two_level_store import RESTING, Claim, Levels
from ephemera.wire import Subscription

if TYPE_CHECKING:
    from ephemera.patterns.cache._declaration import Cache, Place

V = TypeVar("V")

_MOST_RESTS = 10_000


class Flight(Generic[V]):
    """A load under way in this process, or the wait for another's."""

    __slots__ = ("apart", "place", "seen", "since", "task", "token", "waits", "wish")

    task: asyncio.Task[V | None]

    def __init__(self, wish: Wish[V], place: Place, token: str, seen: str | None) -> None:
        self.wish, self.place, self.token = wish, place, token
        self.seen = seen  # the version that it shall replace; None when there was none
        self.since: float = inf  # callers who came no later than this may share it
        self.waits = False  # for another process: whatever comes of it is read when it comes
        self.apart = False  # without the server


class Flights(Generic[V]):
    """The loads of one cache in one store, by key."""

    def __init__(self, declared: Cache[V], store: Store, levels: Levels[V], stats: Stats) -> None:
        self._declared = declared
        self._subscribe = store.client("cache").subscribe
        self._levels = levels
        self._loading: Loading[V] = Loading(declared, levels, stats)
        self._stats = stats
        self._flights: dict[str, Flight[V]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._refreshing = 0
        self._rests: dict[str, float] = {}  # keys that are not refreshed from here before a moment
        self._tokens = (f"{secrets.token_hex(8)}-{number:x}" for number in count(1))
        self.arrivals = 0
        """How many callers have come."""
        store.before_close(self._finish)

    def is_loading(self, key: str) -> bool:
        """Whether an entry that was missing is on its way, so that there is no use in looking for it."""
        flight = self._flights.get(key)
        return flight is not None and flight.seen is None and not flight.apart

    async def fetch(self, wish: Wish[V], arrived: int) -> V | None:
        """The value of an entry that is missing, loaded here or elsewhere after the caller came."""
        tagged = self._levels.tags is not None
        while True:
            flight = self._flights.get(wish.key)
            if flight is None or flight.apart:
                flight = self._start(self._flight(wish))
            if flight.waits or arrived <= flight.since:
                return await self._join(flight)
            mine = self._flight(wish)
            try:
                claim = await self._levels.claim(wish.key, mine.place, mine.token, replace=tagged)
                if claim.found is not None and claim.found.left > 0:
                    await self._not_needed(mine, claim)
                    return claim.found.value
            except REDIS_ERRORS:
                self._stats.errors += 1
                return await self.apart(wish, arrived)
            if claim.holder == mine.token:
                return await self._join(self._start(mine, claimed=True))
            if claim.found is not None:
                return claim.found.value
            flight = self._flights.get(wish.key)
            if flight is None or claim.holder != flight.token:
                return await self._join(self._start(mine))
            if not tagged:
                return await self._join(flight)
            # An ended tag does not end the load, so what it gives may be too old: claim once it is over.
            await asyncio.wait((flight.task,))

    def refresh(self, wish: Wish[V], seen: str) -> asyncio.Task[V | None] | None:
        """Begin to replace an entry of this version; None when others do, or enough is under way."""
        flight = self._flights.get(wish.key)
        if flight is None:
            if self._is_busy() or monotonic() < self._rests.get(wish.key, 0.0):
                return None
            flight = self._start(self._flight(wish, seen))
        # A load from before this version may be from before an invalidation that made room for it.
        return flight.task if flight.seen == seen else None

    async def apart(self, wish: Wish[V], arrived: int) -> V | None:
        """The value while the server is away."""
        flight = self._flights.get(wish.key)
        if flight is None or (self._declared.exact and arrived > flight.since):
            flight = self._start_apart(self._flight(wish))
        return await self._join(flight)

    def refresh_apart(self, wish: Wish[V]) -> None:
        """Begin to replace a copy while the server is away."""
        if wish.key not in self._flights and not self._is_busy():
            self._start_apart(self._flight(wish, seen=""))

    def forget(self, key: str) -> None:
        """Let nobody share a load from before an invalidation."""
        self._flights.pop(key, None)
        self._rests.pop(key, None)

    # Starting and sharing.

    def _flight(self, wish: Wish[V], seen: str | None = None) -> Flight[V]:
        return Flight(wish, self._declared.place(wish.key, wish.fields), next(self._tokens), seen)

    def _start(self, flight: Flight[V], *, claimed: bool = False) -> Flight[V]:
        return self._run(flight, self._fly(flight, claimed=claimed))

    def _start_apart(self, flight: Flight[V]) -> Flight[V]:
        return self._run(flight, self._fly_apart(flight))

    def _run(self, flight: Flight[V], work: Coroutine[Any, Any, V | None]) -> Flight[V]:
        key, refreshes = flight.wish.key, flight.seen is not None
        self._flights[key] = flight
        self._refreshing += refreshes
        flight.task = task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[V | None]) -> None:
            self._tasks.discard(task)
            self._refreshing -= refreshes
            if self._flights.get(key) is flight:
                del self._flights[key]
            if not task.cancelled():
                task.exception()  # whoever waited has it; nobody may

        task.add_done_callback(done)
        return flight

    async def _join(self, flight: Flight[V]) -> V | None:
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if flight.task.cancelled() and task is not None and not task.cancelling():
                raise StoreClosed(f"{flight.wish.key!r}: the store was closed while it was loaded") from None
            raise

    # What a flight does.

    async def _fly(self, flight: Flight[V], *, claimed: bool) -> V | None:
        try:
            if not claimed:
                found = await self._take_off(flight)
                if found is not None:
                    return found[0]
            began = 0 if self._levels.tags is None else await self._levels.tags.moment()
        except REDIS_ERRORS:
            self._stats.errors += 1
            return await self._fly_apart(flight)
        try:
            return await self._loading.load_and_fill(
                flight.wish, flight.place, flight.token, began, lambda: self._begun(flight)
            )
        except Exception:
            self._rest(flight.wish.key, self._declared.backoff.total_seconds())
            raise

    async def _fly_apart(self, flight: Flight[V]) -> V | None:
        flight.apart, began = True, monotonic()
        value = await self._loading.load_apart(flight.wish, lambda: self._begun(flight))
        if self._flights.get(flight.wish.key) is flight:  # not invalidated here meanwhile
            self._levels.keep_apart(flight.wish.key, value, self._loading.tags_of(value, flight.wish), began)
        return value

    async def _take_off(self, flight: Flight[V]) -> tuple[V | None] | None:
        """Claim the load, waiting for another's to end; the value, in a tuple, when there is no need."""
        async with AsyncExitStack() as stack:
            listening: Subscription | None = None
            replace, at_once = flight.seen is not None, False
            while True:
                self._begun(flight)
                claim = await self._levels.claim(
                    flight.wish.key, flight.place, flight.token, replace=replace, at_once=at_once
                )
                found, mine = claim.found, claim.holder == flight.token
                if found is not None and not (mine and (found.version == flight.seen or found.left <= 0)):
                    await self._not_needed(flight, claim)
                    return (found.value,)
                if mine:
                    return None
                if not claim.holder:
                    replace = True  # there is something that is over, or that nobody can read
                elif claim.holder == RESTING:
                    at_once = True  # the rest is for those who have something to serve meanwhile
                elif listening is None:
                    subscription = self._subscribe(flight.place.channel, kind="shard")
                    listening = await stack.enter_async_context(subscription)
                else:
                    flight.waits = True
                    await _word(listening, claim.left)
                    flight.waits = False

    async def _not_needed(self, flight: Flight[V], claim: Claim[V]) -> None:
        """Give up a claim to what another has replaced meanwhile, or leave it to the other who does."""
        if claim.holder == flight.token:
            await self._levels.end(flight.place, flight.token)
        elif claim.holder:
            self._rest(flight.wish.key, claim.left)

    def _begun(self, flight: Flight[V]) -> None:
        """Whoever has come by now may share what is read or loaded from here on."""
        flight.since = self.arrivals

    def _is_busy(self) -> bool:
        return self._refreshing >= self._declared.most_refreshes

    def _rest(self, key: str, seconds: float) -> None:
        """Begin no refresh of this key for a while: others are at it, or it has failed."""
        if len(self._rests) >= _MOST_RESTS:
            self._rests.clear()
        self._rests[key] = monotonic() + seconds

    async def _finish(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _word(listening: Subscription, seconds: float) -> None:
    """Return when the entry's channel says something, or after so long."""
    try:
        async with asyncio.timeout(max(seconds, 0.01)):
            await anext(listening)
    except TimeoutError:
        return
    except StopAsyncIteration:
        raise StoreClosed("the store was closed while an entry was waited for") from None
