"""The local cache: the budget, the eviction policy, and invalidation by the server."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Store
from ephemera.patterns.cache import Cache, LocalCache, Storage, cache_engine
from ephemera.patterns.cache._local_cache import LocalEntries, LocalEntry
from tests.patterns.profiles import CATALOGUE, COPIED, TAGGED, Profile, Table, user
from tests.wire.conditions import eventually


@pytest.fixture
async def stores(server: Valkey) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores on one server, as two processes would have them."""
    async with (
        keyspace.connect(server.url, CATALOGUE) as one,
        keyspace.connect(server.url, CATALOGUE) as other,
    ):
        yield one, other


def trusted_entry(size: int = 0) -> LocalEntry[int]:
    """An entry that is always trusted."""
    end = float("inf")
    return LocalEntry(1, size=size, fresh_until=end, stale_until=end, expires_at=end, trusted_until=end)


def zipf_with_scans(length: int, keys: int) -> Iterator[str]:
    """A trace of popular keys, interrupted by scans over keys that are used once."""
    chance = random.Random(7)
    weights = list(accumulate(1 / rank for rank in range(1, keys + 1)))
    scanned = 0
    for _ in range(length // 1000):
        yield from (f"k{key}" for key in chance.choices(range(keys), cum_weights=weights, k=800))
        yield from (f"scan{scanned + number}" for number in range(200))
        scanned += 200


def hits_of_lru(trace: list[str], entries: int) -> int:
    """The hits of an LRU of the same size."""
    kept: OrderedDict[str, None] = OrderedDict()
    hits = 0
    for key in trace:
        if key in kept:
            hits += 1
            kept.move_to_end(key)
            continue
        kept[key] = None
        if len(kept) > entries:
            kept.popitem(last=False)
    return hits


def hits_of_ours(trace: list[str], entries: int) -> int:
    """The hits of the local cache."""
    local: LocalEntries[int] = LocalEntries(LocalCache(max_entries=entries))
    hits = 0
    for key in trace:
        if local.get(key) is not None:
            hits += 1
        else:
            local.put(key, trusted_entry())
    assert len(local) <= entries
    return hits


@pytest.mark.parametrize("entries", [100, 1000])
def test_scans_do_not_evict_popular_keys(entries: int) -> None:
    """On a Zipf trace with scans the hit ratio is above that of an LRU of the same size."""
    trace = list(zipf_with_scans(100_000, 10_000))
    assert hits_of_ours(trace, entries) > hits_of_lru(trace, entries)


@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(0, 900), st.booleans())))
def test_the_budget_holds(steps: list[tuple[str, int, bool]]) -> None:
    """Whatever is stored, used and dropped, entries and bytes stay within the budget and add up."""
    local: LocalEntries[int] = LocalEntries(LocalCache(max_entries=5, max_bytes=6000))
    for key, size, dropped in steps:
        if dropped:
            local.drop(key)
        elif local.get(key) is None:
            local.put(key, trusted_entry(size))
        assert len(local) <= 5
        assert local.bytes <= 6000
    assert local.bytes == sum(local._entries[key].size for key in "abcdefghij" if local.get(key))


def test_an_invalidation_takes_the_reserved_slot() -> None:
    """An entry whose key is invalidated while it is read is not stored."""
    local: LocalEntries[int] = LocalEntries(LocalCache())
    changes: list[Callable[[], None]] = [
        lambda: local.drop("a"),
        local.distrust,
        lambda: local.drop_tagged("t"),
    ]
    for change in changes:
        place = local.reserve("a")
        change()
        assert not local.release("a", place)
    assert local.release("a", local.reserve("a"))


async def _warm(store: Store, table: Table, who: str, cache: Cache[Profile] = COPIED) -> None:
    """Read until the value comes from the local cache, without a round trip."""
    local: Any = cache_engine(store[cache]).entries.local
    while (entry := local.get(cache.keyspace.key(user_id=who))) is None or not entry.trusted_until:
        await store[cache].get_or_load(table.load, user_id=who)
        await store.call("PING")


async def test_a_local_hit_costs_no_round_trip(stores: tuple[Store, Store], server: Valkey) -> None:
    """Once there is a local entry, reads send nothing to the server."""
    store, _ = stores
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    await _warm(store, table, who)
    before = str(server.ask("INFO", "commandstats"))
    for _ in range(100):
        assert await store[COPIED].get_or_load(table.load, user_id=who) == Profile("ann")
    after = str(server.ask("INFO", "commandstats"))
    assert [line for line in before.splitlines() if "_get:" in line] == [
        line for line in after.splitlines() if "_get:" in line
    ]


async def test_entries_read_while_tracking_starts_are_trusted_later(
    stores: tuple[Store, Store], server: Valkey
) -> None:
    """What concurrent first readers stored before changes were announced is read once more, then local."""
    store, other = stores
    table, names = Table(), [user() for _ in range(8)]
    for name in names:
        await other[COPIED].put(Profile("ann"), user_id=name)
    for _ in range(4):
        await asyncio.gather(*(store[COPIED].get_or_load(table.load, user_id=name) for name in names))
        await store.call("PING")
    before = _reads(server)
    for name in names * 5:
        assert await store[COPIED].get_or_load(table.load, user_id=name) == Profile("ann")
    assert _reads(server) == before


def _reads(server: Valkey) -> list[str]:
    said = str(server.ask("INFO", "commandstats")).splitlines()
    return [line.partition(",")[0] for line in said if line.startswith(("cmdstat_get:", "cmdstat_getrange:"))]


@pytest.mark.parametrize("how", ["delete", "expire", "put", "by hand", "flush"])
async def test_a_change_by_another_process_drops_the_entry(
    stores: tuple[Store, Store], server: Valkey, how: str
) -> None:
    """Whatever another process does to the entry, the local one is no longer trusted."""
    store, other = stores
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    await _warm(store, table, who)
    table.rows[who] = Profile("new")
    if how == "put":
        await other[COPIED].put(Profile("new"), user_id=who)
    elif how == "by hand":
        server.ask("DEL", COPIED.keyspace.key(user_id=who))
    elif how == "flush":
        server.ask("FLUSHALL")
    else:
        await getattr(other[COPIED], how)(user_id=who)
    loaded: list[Profile | None] = []

    async def read() -> None:
        while Profile("new") not in loaded:
            loaded.append(await store[COPIED].get_or_load(table.load, user_id=who))
            await asyncio.sleep(0.001)

    await asyncio.wait_for(read(), 60)


async def test_a_tag_invalidated_elsewhere_drops_the_entry(stores: tuple[Store, Store]) -> None:
    """Invalidating a tag reaches the local entries of other processes."""
    store, other = stores
    table, who = Table(), user()
    table.rows[who] = Profile("ann", team="green")
    await _warm(store, table, who, TAGGED)
    await other[TAGGED].invalidate_tag("green")
    local: Any = cache_engine(store[TAGGED]).entries.local
    await eventually(lambda: local.get(TAGGED.keyspace.key(user_id=who)) is None)
    await store[TAGGED].get_or_load(table.load, user_id=who)
    assert table.loads == 2


@pytest.mark.standalone("it cuts the connection of the client of one server")
async def test_a_lost_connection_ends_the_trust(stores: tuple[Store, Store], server: Valkey) -> None:
    """A change during a disconnection is seen after it: local entries are read again."""
    store, other = stores
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    await _warm(store, table, who)
    client: Any = store.client()
    connections = client.link.connection_count
    client.link.drop("dropped by the test")
    await other[COPIED].put(Profile("new"), user_id=who)
    await eventually(lambda: client.link.connection_count > connections)
    assert await store[COPIED].get_or_load(table.load, user_id=who) == Profile("new")
    await _warm(store, table, who)


async def test_an_entry_is_read_again_at_max_age(server: Valkey) -> None:
    """An entry whose invalidation was lost is not trusted for longer than max_age."""
    catalogue = Catalogue("ages")
    option = LocalCache(max_age=timedelta(milliseconds=50))
    cache = Cache(catalogue, "ages:{n}", int, fresh=timedelta(minutes=1), local=option, purpose="Ages")

    async def load(n: str) -> int:
        return 1

    async with keyspace.connect(server.url, catalogue) as store:
        name, live = user(), store[cache]
        await live.get_or_load(load, n=name)
        local: Any = cache_engine(live).entries.local
        await live.get_or_load(load, n=name)
        entry = local.get(cache.keyspace.key(n=name))
        entry.value = 2  # as if its invalidation had been lost
        await eventually(
            lambda: local.get(cache.keyspace.key(n=name)).expires_at <= asyncio.get_running_loop().time()
        )
        assert await live.get_or_load(load, n=name) == 1


@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_without_tracking_versions_are_compared(server: Valkey, codec: Any) -> None:
    """Where tracking is refused, each read compares the version, and the payload is not sent."""
    catalogue = Catalogue("untracked")
    cache = Cache(
        catalogue,
        "untracked:{n}",
        str,
        fresh=timedelta(minutes=1),
        local=LocalCache(),
        storage=Storage(codec=codec),
        purpose="Untracked",
    )

    async def load(n: str) -> str:
        return "x" * 10_000

    server.ask("ACL", "SETUSER", "untracked", "on", ">secret", "~*", "&*", "+@all", "-client|tracking")
    url = f"redis://untracked:secret@127.0.0.1:{server.port}"
    async with keyspace.connect(url, catalogue) as store, keyspace.connect(server.url, catalogue) as other:
        name = user()
        for _ in range(3):
            await store[cache].get_or_load(load, n=name)
        assert not store[cache]._engine.entries.is_tracking
        sent = _bytes_sent(server)
        for _ in range(10):
            assert await store[cache].get_or_load(load, n=name) == "x" * 10_000
        assert _bytes_sent(server) - sent < 50_000
        await other[cache].put("new", n=name)
        assert await store[cache].get_or_load(load, n=name) == "new"
        await other[cache].delete(n=name)
        assert await store[cache].get(n=name) is None


def _bytes_sent(server: Valkey) -> int:
    stats = str(server.ask("INFO", "stats")).splitlines()
    return next(int(line.split(":")[1]) for line in stats if line.startswith("total_net_output_bytes"))
