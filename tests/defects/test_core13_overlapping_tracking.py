"""CORE13: a cache whose prefix overlapped another's, or any bare `track`, left local entries untrusted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Store
from ephemera.patterns.cache import Cache, LocalCache, cache_engine
from ephemera.wire import Invalidations
from tests.wire.conditions import eventually

MINUTE = timedelta(minutes=1)
ORDERS = {
    "the same prefix": ["x:{a}", "x:{a}:y:{b}"],
    "a wider prefix later": ["x:one:{a}", "x:two:{a}", "x:{a}"],
    "a narrower prefix later": ["x:{a}", "x:one:{a}"],
}


def _declare(patterns: list[str], *, tagged: bool) -> tuple[Catalogue, list[Cache[int]]]:
    catalogue = Catalogue("core13")
    tags: Any = {"tags": lambda value, **_: [f"t{value}"]} if tagged else {}
    return catalogue, [
        Cache(catalogue, each, int, fresh=MINUTE, local=LocalCache(), purpose="numbers", **tags)
        for each in patterns
    ]


def _loader(value: int) -> Callable[..., Awaitable[int]]:
    async def load(**_: Any) -> int:
        return value

    return load


def _is_dropped(local: Any, key: str) -> bool:
    return local.get(key) is None


async def _check_trusted(store: Store, other: Store, caches: list[Cache[int]]) -> None:
    """Every cache answers from this process, and learns of changes made by another."""
    places: list[dict[str, Any]] = [dict.fromkeys(cache.keyspace.template.fields, 1) for cache in caches]
    for cache, fields in zip(caches, places, strict=True):
        assert await store[cache].get_or_load(_loader(1), **fields) == 1
    for cache, fields in zip(caches, places, strict=True):
        assert await store[cache].get(**fields) == 1  # confirms what a wider tracking made uncertain
        await store.call("SET", "core13:marker", "1")
        hits, reads = store[cache].stats.hits, store[cache].stats.bytes_read
        assert await store[cache].get(**fields) == 1
        assert (store[cache].stats.hits, store[cache].stats.bytes_read) == (hits + 1, reads)
    for cache, fields in zip(caches, places, strict=True):
        await other[cache].put(2, **fields)
        await eventually(
            partial(_is_dropped, cache_engine(store[cache]).entries.local, cache.keyspace.key(**fields))
        )
        assert await store[cache].get(**fields) == 2


@pytest.mark.parametrize("tagged", [False, True], ids=["without tags", "with tags"])
@pytest.mark.parametrize("name", ORDERS)
async def test_core13_caches_with_overlapping_prefixes_are_tracked(
    server: Valkey, name: str, tagged: bool
) -> None:
    """Whatever the order in which caches are first used, their local entries are trusted and kept current."""
    catalogue, caches = _declare(ORDERS[name], tagged=tagged)
    async with connect(server.url, catalogue) as store, connect(server.url, catalogue) as other:
        await store.call("FLUSHDB")
        await _check_trusted(store, other, caches)


async def test_core13_a_bare_track_before_a_cache(server: Valkey) -> None:
    """Where the connection tracks the keys it reads, a cache relies on that."""
    catalogue, caches = _declare(["x:{a}"], tagged=False)
    received: list[Invalidations] = []
    async with connect(server.url, catalogue) as store, connect(server.url, catalogue) as other:
        await store.call("FLUSHDB")
        await store.track(received.append)
        await _check_trusted(store, other, caches)
        assert caches[0].keyspace.key(a=1).encode() in [key for keys in received for key in keys or ()]
