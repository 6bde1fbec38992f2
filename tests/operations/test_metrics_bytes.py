"""Bytes of stored values are counted for every kind of key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ephemera import Catalogue
from ephemera.embedded import Valkey
from ephemera.keyspace import Keyspace, Store, connect, fixed, sliding
from tests.operations.metrics_fixtures import Profile, Visit

catalogue = Catalogue("bytes")
_HOUR: Any = {"lifetime": fixed(hours=1), "purpose": "To be measured"}
HASH = catalogue.hash("hash:{i}", Profile, **_HOUR)
MAPPING = catalogue.mapping("mapping:{i}", str, **_HOUR)
VALUE = catalogue.value("value:{i}", str, **_HOUR)
SLIDING = catalogue.value("sliding:{i}", str, lifetime=sliding(hours=1), purpose="To be measured")
COUNTER = catalogue.counter("counter:{i}", **_HOUR)
FLAG = catalogue.flag("flag:{i}", **_HOUR)
SET = catalogue.set("set:{i}", str, **_HOUR)
SORTED = catalogue.sorted_set("sorted:{i}", str, **_HOUR)
LIST = catalogue.list("list:{i}", str, **_HOUR)
STREAM = catalogue.stream("stream:{i}", Visit, **_HOUR)
CHANNEL = catalogue.channel("channel:{i}", str, purpose="To be measured")

_LAYOUT = 1  # bytes of the field that names a record's layout

KINDS: list[tuple[Keyspace[Any], Any, Any, int, int]] = [
    # The space, a write, a read, and what they must count at least.
    (HASH, lambda a, i: a.put(Profile("Ada"), i=i), lambda a, i: a.get(i=i), 3 + _LAYOUT, 3 + _LAYOUT),
    (HASH, lambda a, i: a.put(Profile("Ada"), i=i), lambda a, i: a.get_many([{"i": i}]), 3 + _LAYOUT, 3),
    (MAPPING, lambda a, i: a.put({"x": "abc"}, i=i), lambda a, i: a.get_all(i=i), 3, 3),
    (VALUE, lambda a, i: a.put_many([({"i": i}, "abc")]), lambda a, i: a.get(i=i), 3, 3),
    (VALUE, lambda a, i: a.put_if_absent("abc", i=i), lambda a, i: a.get(i=i), 3, 3),
    (SLIDING, lambda a, i: a.put("abc", i=i), lambda a, i: a.get(i=i), 3, 3),
    (COUNTER, lambda a, i: a.add(100, i=i), lambda a, i: a.get(i=i), 0, 3),
    (FLAG, lambda a, i: a.set(i=i), None, 1, 0),
    (SET, lambda a, i: a.add("abc", "de", i=i), lambda a, i: a.members(i=i), 5, 5),
    (SORTED, lambda a, i: a.add({"abc": 1.0}, i=i), lambda a, i: a.highest(1, i=i), 3, 3),
    (LIST, lambda a, i: a.push("abc", "de", i=i), lambda a, i: a.range(i=i), 5, 5),
    (STREAM, lambda a, i: a.append(Visit("home"), i=i), lambda a, i: a.newest(1, i=i), 4, 4),
    (CHANNEL, lambda a, i: a.publish("abc", i=i), None, 3, 0),
]


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store on the shared server."""
    async with connect(server.url, catalogue) as opened:
        yield opened


@pytest.mark.parametrize(("space", "write", "read", "written", "seen"), KINDS)
async def test_bytes_of_a_kind(
    store: Store, key: str, space: Keyspace[Any], write: Any, read: Any, written: int, seen: int
) -> None:
    """Written and read bytes are counted once, even when a read extends the TTL."""
    access = store[space]
    await write(access, key)
    assert written <= access.stats.bytes_written <= written + 40
    assert access.stats.bytes_read == 0
    if read is not None:
        await read(access, key)
        assert seen <= access.stats.bytes_read <= seen + 40
        before = access.stats.bytes_read
        await read(access, key)
        assert access.stats.bytes_read == 2 * before


async def test_undecodable_bytes_are_counted(store: Store, key: str) -> None:
    """Bytes that cannot be decoded count as read."""
    await store.call("HSET", HASH.key(i=key), "name", "Ada")
    assert await store[HASH].get(i=key) is None
    assert store[HASH].stats.bytes_read == 3
