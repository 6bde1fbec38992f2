"""The cache of one store: which of copy, entry, stale entry and load answers a caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Stats, Store
from ephemera.patterns.cache._entries import due_early
from ephemera.patterns.cache._entry_builder import Filling
from ephemera.patterns.cache._load_coordinator import Flights
from ephemera.patterns.cache._load_runner import Wish
from ephemera.patterns.cache._two_level_store import Found, Head, Levels
from ephemera.patterns.local_cache import Copy

if TYPE_CHECKING:
    from ephemera.patterns.cache._declaration import Cache, Place

V = TypeVar("V")
R = TypeVar("R")


class BoundCache(Generic[V]):
    """What `store[PROFILE]` gives."""

    def __init__(self, declared: Cache[V], store: Store) -> None:
        self.declared = declared
        self.stats: Stats = store[declared.space].stats
        store[declared.loads]
        store[declared.loaded]  # both refuse a store without them
        self._render = declared.space.template.render
        self._levels: Levels[V] = Levels(declared, store)
        self._flights: Flights[V] = Flights(declared, store, self._levels, self.stats)
        copies = self.copies = self._levels.copies
        """What this process keeps; None where the cache has no `local`."""
        self._copy_of: Callable[[str], Any] = _no_copy if copies is None else copies.get
        self._eagerness = declared.eagerness
        self._soft = declared.soft_timeout.total_seconds()
        self._exact = declared.exact

    @overload
    async def get_or_load(self, load: Callable[..., Awaitable[V]], /, **fields: FieldValue) -> V: ...

    @overload
    async def get_or_load(
        self, load: Callable[..., Awaitable[V | None]], /, **fields: FieldValue
    ) -> V | None: ...

    async def get_or_load(
        self, load: Callable[..., Awaitable[V | None]], /, **fields: FieldValue
    ) -> V | None:
        """The value: a copy, an entry, a stale one, or by `await load(**fields)`; None when there is none."""
        key = self._render(fields)
        copy = self._copy_of(key)
        if copy is not None and monotonic() < copy.trusted_until:
            self.stats.hits += 1
            return copy.value  # type: ignore[no-any-return]
        return await self._reach(Wish(key, load, fields))

    async def get(self, /, **fields: FieldValue) -> V | None:
        """The cached value if it is fresh; None otherwise. Nothing is loaded."""
        key = self._render(fields)
        copy = self._copy_of(key)
        if copy is not None and monotonic() < copy.trusted_until:
            self.stats.hits += 1
            return copy.value  # type: ignore[no-any-return]
        found = await self._counted(self._levels.look(key))
        fresh = found is not None and found.left > 0
        self.stats.hits += fresh
        self.stats.misses += not fresh
        return found.value if found is not None and fresh else None

    async def put(self, value: V | None, /, **fields: FieldValue) -> bool:
        """Store what is true now; loads under way lose. False when its lifetime is nothing."""
        key = self._forget(fields)
        tags = [] if self.declared.tags is None or value is None else self.declared.tags(value, **fields)
        began = 0 if self._levels.tags is None else await self._counted(self._levels.tags.moment())
        await self._counted(self._levels.ready())
        place = self.declared.place(key, fields)
        stored = await self._counted(self._levels.fill(place, "", value, 0, list(tags), began))
        self._forget(fields)
        self.stats.writes += stored
        return stored

    async def delete(self, /, **fields: FieldValue) -> bool:
        """Forget the value, after its change was committed; loads under way will not be stored."""
        return await self._end(fields, self._levels.delete)

    async def delete_many(self, keys: Iterable[Mapping[str, FieldValue]], /) -> int:
        """Forget several values in one trip, on a cluster one for each node; how many were there."""
        return sum(await asyncio.gather(*(self.delete(**fields) for fields in keys)))

    async def expire(self, /, **fields: FieldValue) -> bool:
        """Make the value stale: it is served while a newer one is loaded; loads under way are not stored."""
        return await self._end(fields, self._levels.expire)

    async def end_tag(self, tag: str) -> None:
        """Forget every value with this tag, in one write however many there are."""
        if self._levels.tags is None:
            raise InvalidDeclaration(self.declared.space.pattern, "it has no tags", "declare it with tags=")
        copies = self._levels.copies
        if copies is not None:
            copies.drop_tagged(tag)
        await self._counted(self._levels.tags.end(tag))
        if copies is not None:
            copies.drop_tagged(tag)

    # For patterns that are made of caches.

    def copy_of(self, key: str) -> Copy[V | None] | None:
        """The copy of a key that may be used without asking anybody."""
        copy: Copy[V | None] | None = self._copy_of(key)
        return copy if copy is not None and monotonic() < copy.trusted_until else None

    def drop(self, key: str) -> None:
        """Forget this process's copy, and let nobody share a load from before."""
        if self._levels.copies is not None:
            self._levels.copies.drop(key)
        self._flights.forget(key)

    def distrust(self) -> None:
        """Use no copy before the server was asked."""
        if self._levels.copies is not None:
            self._levels.copies.distrust()

    async def renew(
        self,
        load: Callable[..., Awaitable[V | None]],
        is_good: Callable[[V], bool],
        /,
        **fields: FieldValue,
    ) -> bool:
        """Load the value unless it is fresh and good; whether it was. The loader's error is the caller's."""
        wish: Wish[V] = Wish(self._render(fields), load, fields)
        self._flights.arrivals = arrived = self._flights.arrivals + 1
        found = await self._counted(self._levels.look(wish.key))
        if found is None:
            await self._flights.fetch(wish, arrived)
            return True
        if found.left > 0 and (found.value is None or is_good(found.value)):
            return False
        task = self._flights.refresh(wish, found.version)
        if task is None:
            return False  # others are at it, or it has just failed
        await asyncio.shield(task)
        return True

    async def ready(self) -> None:
        """Know the server's time, and be told of changes."""
        await self._counted(self._levels.ready())

    async def head(self, key: str) -> Head | None:
        """The number and stamp of a fresh value, without its payload; None where it must be read."""
        return await self._counted(self._levels.head(key))

    def filling(self, place: Place, token: str, value: V | None) -> Filling:
        """What a fill's script takes, for who fills several at once."""
        return self._levels.made.filling(place, token, value, 0, [], 0)

    async def _reach(self, wish: Wish[V]) -> V | None:
        flights = self._flights
        flights.arrivals = arrived = flights.arrivals + 1
        if flights.is_loading(wish.key):
            self.stats.misses += 1
            return await flights.fetch(wish, arrived)
        try:
            found = self._known(wish.key) or await self._levels.look(wish.key)
        except REDIS_ERRORS:
            self.stats.errors += 1
            return await self._apart(wish, arrived)
        if found is None:
            self.stats.misses += 1
            return await flights.fetch(wish, arrived)
        self.stats.hits += 1
        if found.left <= 0:
            return await self._stale(wish, found)
        if self._eagerness and due_early(found.left, found.cost, self._eagerness):
            flights.refresh(wish, found.version)
        return found.value

    def _known(self, key: str) -> Found[V] | None:
        """What a copy says that is still that of the entry, although it is stale or nearly so."""
        copy, now = self._copy_of(key), monotonic()
        if copy is None or not copy.trusted_until or now >= min(copy.old_at, copy.stale_until):
            return None
        return Found(copy.value, (copy.fresh_until - now) * 1000, copy.cost, copy.version)

    async def _stale(self, wish: Wish[V], found: Found[V]) -> V | None:
        """What is newer, if it comes in time, otherwise what there is."""
        task = self._flights.refresh(wish, found.version)
        if task is not None and self._soft:
            await asyncio.wait((task,), timeout=self._soft)
            if task.done() and not task.cancelled() and task.exception() is None:
                return task.result()
        return found.value

    async def _apart(self, wish: Wish[V], arrived: int) -> V | None:
        """What can be had while the server is away: a copy, a stale one, a load."""
        copy, now = self._copy_of(wish.key), monotonic()
        if copy is None or now >= (min(copy.stale_until, copy.old_at) if self._exact else copy.stale_until):
            self.stats.misses += 1
            return await self._flights.apart(wish, arrived)
        self.stats.hits += 1
        if now >= min(copy.fresh_until, copy.old_at) and now >= copy.retry_at:
            self._flights.refresh_apart(wish)
        return copy.value  # type: ignore[no-any-return]

    async def _end(self, fields: Mapping[str, FieldValue], how: Callable[[Any], Awaitable[bool]]) -> bool:
        key = self._forget(fields)
        ended = await self._counted(how(self.declared.place(key, fields)))
        self._forget(fields)  # what was read in between
        self.stats.writes += 1
        return ended

    def _forget(self, fields: Mapping[str, FieldValue]) -> str:
        """Drop the copy, and let nobody share a load from before."""
        key = self._render(fields)
        self.drop(key)
        return key

    async def _counted(self, call: Awaitable[R]) -> R:
        try:
            return await call
        except REDIS_ERRORS:
            self.stats.errors += 1
            raise


def _no_copy(_: str) -> None:
    """There are no copies in this process."""
