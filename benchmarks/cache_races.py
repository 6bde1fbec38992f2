"""Invalidations during loads: how many reads that begin after one still get what was true before it.

Two clients, as two processes would have them, on a hundred keys at once: one reads, and while its load is
under way the other changes the row and deletes the entry. Then both read. Loads take up to four steps and the
change comes after up to six, so that it falls before, into and after the load and the fill.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any, Protocol

import msgspec

from benchmarks import peers
from benchmarks.cache import CATALOGUE, COPIED, Profile
from benchmarks.rows import Absolute, Round, Row
from benchmarks.servers import Servers
from ephemera import connect

Load = Callable[[], Awaitable[Profile]]

_RACES = 10_000
_KEYS = 100
_STEP = 0.002  # seconds: about a round trip with a hundred in flight


class Reader(Protocol):
    """A contender's two verbs, and how it learns of what others have changed."""

    async def read(self, key: str, load: Load) -> Profile: ...
    async def delete(self, key: str) -> None: ...
    async def settle(self) -> None: ...


class Ours:
    """With local copies, which the server tells of changes."""

    def __init__(self, store: Any) -> None:
        self._store, self._cache = store, store[COPIED]

    async def read(self, key: str, load: Load) -> Profile:
        value: Profile = await self._cache.get_or_load(lambda **_: load(), user_id=key)
        return value

    async def delete(self, key: str) -> None:
        await self._cache.delete(user_id=key)

    async def settle(self) -> None:
        await self._store.call("PING")  # the server's word arrives before this reply


class Cashews:
    """Without local copies, which makes it easier for it."""

    def __init__(self, cache: Any, life: timedelta) -> None:
        self._cache, self._life = cache, life

    async def read(self, key: str, load: Load) -> Profile:
        value: Profile = await self._cache.get_or_set(key, load, expire=self._life)
        return value

    async def delete(self, key: str) -> None:
        await self._cache.delete(key)

    async def settle(self) -> None:
        return


class Kit:
    """redis-py-kit, without its local level, which no one invalidates."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    async def read(self, key: str, load: Load) -> Profile:
        async def load_record() -> Any:
            return msgspec.to_builtins(await load())

        return msgspec.convert(await self._cache.remember(key, load_record, ttl=3600), Profile)

    async def delete(self, key: str) -> None:
        await self._cache.delete(key)

    async def settle(self) -> None:
        return


async def races(reader: Reader, updater: Reader) -> int:
    """Stale values in `_RACES` races."""
    run = time.time_ns()
    each = await asyncio.gather(*(_on(f"{run}-{key}", reader, updater) for key in range(_KEYS)))
    return sum(each)


async def _on(key: str, reader: Reader, updater: Reader) -> int:
    row, stale = 0, 0

    async def load() -> Profile:
        seen = row
        await asyncio.sleep(seen % 5 * _STEP)
        return Profile(str(seen), "red")

    for number in range(1, _RACES // _KEYS + 1):
        await updater.delete(key)
        await reader.settle()
        reading = asyncio.create_task(reader.read(key, load))
        await asyncio.sleep(number % 7 * _STEP)
        row = number
        await updater.delete(key)
        stale += (await updater.read(key, load)).name != str(number)
        await reading
        await reader.settle()
        stale += (await reader.read(key, load)).name != str(number)
    return stale


@asynccontextmanager
async def ours(servers: Servers) -> AsyncIterator[Round]:
    """Two stores. One stale value in any round is one too many, so it is not left to the median."""
    url = servers.valkey.url
    async with connect(url, CATALOGUE) as one, connect(url, CATALOGUE) as other:

        async def once(_: float) -> float:
            stale = await races(Ours(one), Ours(other))
            if stale:
                raise RuntimeError(f"{stale} stale values in {_RACES:,} races")
            return stale

        yield once


@asynccontextmanager
async def cashews(servers: Servers) -> AsyncIterator[Round]:
    """Two caches of the peer on the same server."""
    package = import_module("cashews")
    caches = [package.Cache() for _ in range(2)]
    for cache in caches:
        cache.setup(servers.valkey.url, client_side=False, max_connections=200)
    one, other = (Cashews(cache, COPIED.fresh) for cache in caches)

    async def once(_: float) -> float:
        return await races(one, other)

    yield once
    for cache in caches:
        await cache.close()


@asynccontextmanager
async def redis_py_kit(servers: Servers) -> AsyncIterator[Round]:
    """Two clients of redis-py-kit."""
    cache = import_module("redis_kit").AsyncCache
    async with peers.redis_py_untimed(servers.valkey) as one, peers.redis_py_untimed(servers.valkey) as other:

        async def once(_: float) -> float:
            return await races(Kit(cache(one, prefix="kit")), Kit(cache(other, prefix="kit")))

        yield once


ROWS = (
    Row(
        "cache: stale values in 10,000 invalidations during loads",
        ours,
        {"cashews": cashews, "redis-py-kit": redis_py_kit},
        (Absolute(0, "stale values", at_most=True),),
        unit="stale values",
        higher_is_better=False,
    ),
)
