"""A load that this process has the right to: bounded, timed, its lease renewed, its value stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ephemera.errors import LoadTimeout
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Stats
from ephemera.patterns.cache._two_level_store import Levels

if TYPE_CHECKING:
    from ephemera.patterns.cache._declaration import Cache, Place

V = TypeVar("V")


class Wish(NamedTuple, Generic[V]):
    """What a caller wants: an entry by its key, and how to load it."""

    key: str
    load: Callable[..., Awaitable[V | None]]
    fields: Mapping[str, FieldValue]


class Loading(Generic[V]):
    """The loads of one cache in one store."""

    def __init__(self, declared: Cache[V], levels: Levels[V], stats: Stats) -> None:
        self._declared = declared
        self._levels = levels
        self._stats = stats
        self._room = asyncio.Semaphore(declared.most_loads)
        self._hard = declared.hard_timeout.total_seconds()
        self._renewal = declared.lease.total_seconds() / 3

    async def load_and_fill(
        self, wish: Wish[V], place: Place, token: str, began: int, on_begin: Callable[[], None]
    ) -> V | None:
        """Load behind a claim, and store the value if the claim still stands."""
        renewing = asyncio.create_task(self._renew(place, token))
        try:
            value, cost = await self._load(wish, on_begin)
            try:
                tags = self.tags_of(value, wish)
                self._stats.writes += await self._levels.fill(place, token, value, cost, tags, began)
            except REDIS_ERRORS:
                self._stats.errors += 1
        except BaseException as problem:
            failed = isinstance(problem, Exception)  # and not cancelled by the end of the store
            await _quietly(lambda: self._levels.end(place, token, failed=failed))
            raise
        finally:
            renewing.cancel()
        return value

    async def load_apart(self, wish: Wish[V], on_begin: Callable[[], None]) -> V | None:
        """Load without the server; after a failure a stale copy rests."""
        try:
            value, _ = await self._load(wish, on_begin)
        except Exception:
            copies = self._levels.copies
            copy = None if copies is None else copies.get(wish.key)
            if copy is not None:
                copy.retry_at = monotonic() + self._declared.backoff.total_seconds()
            raise
        return value

    def tags_of(self, value: V | None, wish: Wish[V]) -> list[str]:
        """The tags of a loaded value."""
        tags = self._declared.tags
        return [] if tags is None or value is None else list(tags(value, **wish.fields))

    async def _load(self, wish: Wish[V], on_begin: Callable[[], None]) -> tuple[V | None, float]:
        """The loaded value and the milliseconds it took."""
        async with self._room:
            on_begin()
            began = monotonic()
            try:
                async with asyncio.timeout(self._hard) as limit:
                    value = await wish.load(**wish.fields)
            except TimeoutError:
                if limit.expired():
                    raise LoadTimeout(wish.key, self._hard) from None
                raise
            return value, (monotonic() - began) * 1000

    async def _renew(self, place: Place, token: str) -> None:
        while True:
            await asyncio.sleep(self._renewal)
            await _quietly(lambda: self._levels.renew(place, token))


async def _quietly(call: Callable[[], Awaitable[Any]]) -> None:
    """Do what helps others if the server is there, and harms nobody if not."""
    try:
        await call()
    except REDIS_ERRORS:
        return
