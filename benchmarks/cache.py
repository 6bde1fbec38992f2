"""The cache's rows: hits of both levels, a cold key in many processes, a hung server, a policy.

The peers are cashews, aiocache and redis-py-kit, by the call of theirs that reads through and is fastest:
cashews' `get_or_set` with a key made beforehand (its decorator makes it, and takes four times as long),
aiocache's `cached`, and `remember` of redis-py-kit, whose values are JSON; it has nothing against stampedes.
On the server's level every task has its own key, so that the coalescing of equal calls is not measured.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from asyncio.subprocess import PIPE
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from itertools import accumulate, count
from statistics import quantiles
from typing import Any

import msgspec

from benchmarks import peers
from benchmarks.load import Tasks
from benchmarks.rows import Absolute, Opener, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, connect
from ephemera.patterns.cache import Cache, LocalCache, Storage
from ephemera.patterns.cache._local_cache import LocalEntries, LocalEntry

CATALOGUE = Catalogue("bench-cache")
_HOUR = timedelta(hours=1)
_TASKS = 50
_PROCESSES = 8


class Profile(msgspec.Struct, frozen=True):
    name: str
    team: str


COPIED: Cache[Profile] = Cache(
    CATALOGUE, "bench:copied:{user_id}", Profile, fresh=_HOUR, local=LocalCache(), purpose="Measured here"
)
STORED: Cache[Profile] = Cache(
    CATALOGUE,
    "bench:stored:{user_id}",
    Profile,
    fresh=_HOUR,
    storage=Storage(codec="msgpack"),
    purpose="Measured here",
)
BRIEF: Cache[Profile] = Cache(
    CATALOGUE,
    "bench:brief:{user_id}",
    Profile,
    fresh=timedelta(milliseconds=100),
    stale=_HOUR,
    local=LocalCache(max_age=timedelta(milliseconds=100)),
    purpose="Measured here, stale at once",
)


async def load(user_id: str) -> Profile:
    """The loader of all contenders."""
    return Profile(f"user {user_id}", "red")


@asynccontextmanager
async def our_copies(servers: Servers) -> AsyncIterator[Round]:
    """A copy in the process, by its fields."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        cache = store[COPIED]
        for _ in range(3):  # loaded, read, copied
            await cache.get_or_load(load, user_id="42")
            await store.call("PING")

        async def work(times: int) -> None:
            for _ in range(times):
                await cache.get_or_load(load, user_id="42")

        yield Tasks(1, work)


@asynccontextmanager
async def cashews_memory(_: Servers) -> AsyncIterator[Round]:
    """The memory of cashews, by a key made beforehand."""
    cache = import_module("cashews").Cache()
    cache.setup("mem://")
    await cache.set("42", await load("42"), expire=_HOUR)

    async def work(times: int) -> None:
        for _ in range(times):
            await cache.get_or_set("42", load, expire=_HOUR)

    yield Tasks(1, work)
    await cache.close()


@asynccontextmanager
async def aiocache_memory(_: Servers) -> AsyncIterator[Round]:
    """The memory of aiocache, by its decorator."""
    cached = import_module("aiocache").cached
    read: Any = cached(ttl=3600, key_builder=lambda _, user_id: user_id)(load)

    async def work(times: int) -> None:
        for _ in range(times):
            await read(user_id="42")

    yield Tasks(1, work)


@asynccontextmanager
async def kit_tiers(servers: Servers) -> AsyncIterator[Round]:
    """The local level of redis-py-kit's two."""
    kit = import_module("redis_kit")
    async with peers.redis_py(servers.valkey) as client:
        cache = kit.AsyncTieredCache(kit.AsyncCache(client, prefix="peer"), local_ttl=3600.0)
        await cache.set("42", msgspec.to_builtins(await load("42")), ttl=3600)

        async def work(times: int) -> None:
            for _ in range(times):
                await cache.remember("42", _unused, ttl=3600)

        yield Tasks(1, work)


@asynccontextmanager
async def kit_entries(servers: Servers) -> AsyncIterator[Round]:
    """redis-py-kit's cache on the same server."""
    kit, numbers = import_module("redis_kit"), count()
    async with peers.redis_py_untimed(servers.valkey) as client:
        cache = kit.AsyncCache(client, prefix="peer")

        async def work(times: int) -> None:
            key = str(next(numbers) % _TASKS)
            await cache.set(key, msgspec.to_builtins(await load(key)), ttl=3600)
            for _ in range(times):
                await cache.remember(key, _unused, ttl=3600)

        yield Tasks(_TASKS, work)


def _unused() -> None:
    raise RuntimeError("the cache lost an entry")


@asynccontextmanager
async def our_entries(servers: Servers) -> AsyncIterator[Round]:
    """An entry on the server, a key for each task."""
    numbers = count()
    async with connect(servers.valkey.url, CATALOGUE) as store:
        cache = store[STORED]

        async def work(times: int) -> None:
            who = str(next(numbers) % _TASKS)
            for _ in range(times):
                await cache.get_or_load(load, user_id=who)

        yield Tasks(_TASKS, work)


@asynccontextmanager
async def cashews_entries(servers: Servers) -> AsyncIterator[Round]:
    """The peer on the same server."""
    cache = import_module("cashews").Cache()
    cache.setup(servers.valkey.url, client_side=False, max_connections=200)
    numbers = count()

    async def work(times: int) -> None:
        key = f"peer:{next(numbers) % _TASKS}"
        await cache.set(key, await load(key), expire=_HOUR)
        for _ in range(times):
            await cache.get_or_set(key, load, expire=_HOUR)

    yield Tasks(_TASKS, work)
    await cache.close()


def stampede(contender: str) -> Opener:
    """Eight processes with twenty callers each, on one cold key that takes half a second to load."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        server = servers.valkey

        def commands() -> int:
            stats = str(server.ask("INFO", "stats")).splitlines()
            return next(int(line.split(":")[1]) for line in stats if line.startswith("total_commands_"))

        async def once(_: float) -> float:
            before = commands()
            began = str(time.time() + 4)  # when all of them have started
            key = f"{contender}-{time.time_ns()}"
            words = (sys.executable, "-m", "benchmarks.cache_stampede", contender, server.url, key, began)
            crowd = [await asyncio.create_subprocess_exec(*words, stdout=PIPE) for _ in range(_PROCESSES)]
            reports = [json.loads((await process.communicate())[0]) for process in crowd]
            loads = sum(each["loads"] for each in reports)
            if contender == "ephemera" and loads != 1:
                raise RuntimeError(f"{loads} loads in place of one")
            return commands() - before - 1

        yield once

    return opened


@asynccontextmanager
async def our_hung_server(servers: Servers) -> AsyncIterator[Round]:
    """Reads of stale copies while the server is stopped in its tracks: milliseconds at p99."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        cache = store[BRIEF]
        people = [str(number) for number in range(50)]

        async def hang(seconds: float) -> float:
            for who in (*people, *people):
                await cache.get_or_load(load, user_id=who)
            servers.valkey.pause()
            try:
                began, took = time.perf_counter(), []
                while (asked := time.perf_counter()) < began + 0.35 + seconds:
                    await cache.get_or_load(load, user_id=random.choice(people))
                    if asked > began + 0.35:
                        took.append(time.perf_counter() - asked)
                    await asyncio.sleep(0)
            finally:
                servers.valkey.resume()
            while not store.client().up:
                await asyncio.sleep(0.01)
            return quantiles(took, n=100)[98] * 1000

        yield hang


def zipf_with_scans(length: int, keys: int) -> Iterator[int]:
    """A trace of popular keys, a fifth of it scans over keys that are used once."""
    chance = random.Random(7)
    weights = list(accumulate(1 / rank for rank in range(1, keys + 1)))
    for part in range(length // 1000):
        yield from chance.choices(range(keys), cum_weights=weights, k=800)
        yield from range(keys + part * 200, keys + part * 200 + 200)


def _our_hits(trace: list[int], entries: int) -> int:
    copies: LocalEntries[int] = LocalEntries(LocalCache(max_entries=entries))
    hits = 0
    for key in map(str, trace):
        if copies.get(key) is not None:
            hits += 1
        else:
            copies.put(key, LocalEntry(1, size=0, fresh_until=0, stale_until=0, expires_at=0))
    return hits


def _lru_hits(trace: list[int], entries: int) -> int:
    kept: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in trace:
        if key in kept:
            hits += 1
            kept.move_to_end(key)
        else:
            kept[key] = None
            if len(kept) > entries:
                kept.popitem(last=False)
    return hits


def hit_ratio(hits_of: Callable[[list[int], int], int]) -> Opener:
    """Per cent of hits with room for 1,000 of 10,000 keys."""

    @asynccontextmanager
    async def opened(_: Servers) -> AsyncIterator[Round]:
        trace = list(zipf_with_scans(200_000, 10_000))

        async def replay(_: float) -> float:
            return 100 * hits_of(trace, 1000) / len(trace)

        yield replay

    return opened


ROWS = (
    Row(
        "cache: hit of a local copy",
        our_copies,
        {"cashews": cashews_memory, "aiocache": aiocache_memory, "redis-py-kit": kit_tiers},
        (Times(2.5),),
    ),
    Row(
        "cache: hit on the server, 50 tasks",
        our_entries,
        {"cashews": cashews_entries, "redis-py-kit": kit_entries},
        (Times(8, "cashews"),),
    ),
    Row(
        "cache: 8 processes x 20 callers, one cold key",
        stampede("ephemera"),
        {"cashews": stampede("cashews"), "aiocache": stampede("aiocache")},
        (Absolute(400, "commands", at_most=True),),
        unit="commands",
        higher_is_better=False,
    ),
    Row(
        "cache: stale reads from a hung server, p99",
        our_hung_server,
        targets=(Absolute(1, "ms", at_most=True),),
        unit="ms",
        higher_is_better=False,
    ),
    Row(
        "cache: hit ratio, Zipf with scans",
        hit_ratio(_our_hits),
        {"LRU": hit_ratio(_lru_hits)},
        (Times(1, "LRU"),),
        unit="%",
    ),
)
