"""Read-through, cache-aside, stale and negative results, lifetimes, tags, and the decorator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed, InvalidDeclaration
from ephemera.keyspace import Catalogue, Store
from ephemera.patterns._server_clock import SERVER_CLOCK
from ephemera.patterns.cache import Cache, Loading, LocalCache
from ephemera.patterns.cache._entry_builder import TICK
from tests.chaos.conftest import victim
from tests.patterns.profiles import CATALOGUE, COPIED, PLAIN, TAGGED, WHOLE, Profile, Table, user
from tests.wire.conditions import answered, eventually
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors", "victim"]

TEN_MINUTES = 600_000  # milliseconds


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with the caches, on every kind of server."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        yield opened


async def test_a_value_is_loaded_once(store: Store) -> None:
    """The first call loads and the second does not, with and without a local cache."""
    for cache in (PLAIN, COPIED, TAGGED):
        table, who = Table(), user()
        table.rows[who] = Profile("ann")
        for _ in range(3):
            assert await store[cache].get_or_load(table.load, user_id=who) == Profile("ann")
        assert table.loads == 1
        assert await store[cache].get(user_id=who) == Profile("ann")


async def test_hits_misses_and_fills_are_counted(store: Store) -> None:
    """A load counts as a miss and, once its value is stored, as a write; reading it counts as a hit."""
    table, who, stats = Table(), user(), store[PLAIN].stats
    table.rows[who] = Profile("ann")
    before = (stats.hits, stats.misses, stats.writes)
    for _ in range(3):
        await store[PLAIN].get_or_load(table.load, user_id=who)
    after = (stats.hits, stats.misses, stats.writes)
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 1, 1]


async def test_get_loads_nothing_and_put_stores(store: Store) -> None:
    """`get` returns None until `put` has stored a value."""
    who = user()
    assert await store[PLAIN].get(user_id=who) is None
    assert await store[PLAIN].put(Profile("bob"), user_id=who)
    assert await store[PLAIN].get(user_id=who) == Profile("bob")


async def test_a_cache_without_fields_is_one_entry(store: Store) -> None:
    """A pattern without fields works on a cluster too: its companions share its slot."""

    async def load() -> int:
        return 7

    assert await store[WHOLE].get_or_load(load) == 7
    assert await store[WHOLE].delete()
    assert not await store[WHOLE].delete()


async def test_delete_makes_the_next_call_load(store: Store) -> None:
    """After `delete` neither level serves the old value."""
    for cache in (PLAIN, COPIED, TAGGED):
        table, who = Table(), user()
        table.rows[who] = Profile("old")
        await store[cache].get_or_load(table.load, user_id=who)
        await store[cache].get_or_load(table.load, user_id=who)
        table.rows[who] = Profile("new")
        assert await store[cache].delete(user_id=who)
        assert await store[cache].get_or_load(table.load, user_id=who) == Profile("new")


async def test_delete_many_removes_several(store: Store) -> None:
    """`delete_many` removes all given values and returns how many there were."""
    people = [user() for _ in range(5)]
    for who in people:
        await store[PLAIN].put(Profile("x"), user_id=who)
    assert await store[PLAIN].delete_many([{"user_id": who} for who in (*people, user())]) == 5
    assert await store[PLAIN].get(user_id=people[0]) is None


async def test_expire_keeps_the_value_as_stale(store: Store) -> None:
    """After `expire` the old value is served while it is refreshed in the background."""
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    await store[PLAIN].get_or_load(table.load, user_id=who)
    table.rows[who] = Profile("new")
    assert await store[PLAIN].expire(user_id=who)
    assert await store[PLAIN].get(user_id=who) is None
    assert await store[PLAIN].get_or_load(table.load, user_id=who) == Profile("old")
    await eventually(lambda: table.loads == 2)
    assert await _until_fresh(store, who) == Profile("new")
    assert not await store[PLAIN].expire(user_id=user())


async def _until_fresh(store: Store, who: str) -> Profile:
    while (value := await store[PLAIN].get(user_id=who)) is None:
        await asyncio.sleep(0.001)
    return value


async def test_a_negative_result_is_cached(store: Store) -> None:
    """A missing value is remembered for `missing`, and loaded each time without it."""
    table, who = Table(), user()
    for _ in range(3):
        assert await store[PLAIN].get_or_load(table.load, user_id=who) is None
    assert table.loads == 1
    for _ in range(3):
        assert await store[COPIED].get_or_load(table.load, user_id=who) is None
    assert table.loads == 4


async def test_a_value_that_disappears_leaves_no_stale_one(store: Store) -> None:
    """A refresh or `put` of None removes the value that was cached."""
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    await store[COPIED].get_or_load(table.load, user_id=who)
    await store[COPIED].expire(user_id=who)
    del table.rows[who]
    assert await store[COPIED].get_or_load(table.load, user_id=who) == Profile("ann")
    while await store.call("EXISTS", COPIED.keyspace.key(user_id=who)):
        await asyncio.sleep(0.001)
    assert await store[COPIED].get_or_load(table.load, user_id=who) is None
    await store[COPIED].put(Profile("ann"), user_id=who)
    assert not await store[COPIED].put(None, user_id=who)
    assert await store[COPIED].get(user_id=who) is None


async def test_the_value_decides_its_lifetime(store: Store) -> None:
    """`freshness_of` shortens an entry's TTL on the server, and None keeps it out of the cache."""
    table, short, never = Table(), user(), user()
    table.rows = {short: Profile("ann", seconds=10), never: Profile("ann", seconds=0)}
    await store[PLAIN].get_or_load(table.load, user_id=short)
    left = await store.call("PTTL", PLAIN.keyspace.key(user_id=short))
    assert 3600_000 < left <= 3610_000
    for _ in range(2):
        await store[PLAIN].get_or_load(table.load, user_id=never)
    assert table.loads == 3


async def test_lifetimes_are_spread(store: Store) -> None:
    """Jitter makes entries written together expire at different times, never later than declared."""
    lives = set()
    for _ in range(20):
        who = user()
        await store[PLAIN].put(Profile("x"), user_id=who)
        lives.add(await store.call("PTTL", PLAIN.keyspace.key(user_id=who)))
    assert len(lives) > 10
    assert all(3600_000 + 269_000 < life <= 3600_000 + 300_000 for life in lives)


async def test_invalidating_a_tag_reloads_its_entries(store: Store) -> None:
    """Entries with the tag are loaded again and others are not; the same of the local cache."""
    table, red, blue = Table(), user(), user()
    table.rows = {red: Profile("r", "red"), blue: Profile("b", "blue")}
    for who in (red, blue, red, blue):
        await store[TAGGED].get_or_load(table.load, user_id=who)
    table.rows[red] = Profile("r2", "red")
    await store[TAGGED].invalidate_tag("red")
    assert await store[TAGGED].get_or_load(table.load, user_id=red) == Profile("r2", "red")
    assert await store[TAGGED].get_or_load(table.load, user_id=blue) == Profile("b", "blue")
    assert await store[TAGGED].get_or_load(table.load, user_id=red) == Profile("r2", "red")
    assert table.loads == 3
    with pytest.raises(InvalidDeclaration, match="declare it with tags"):
        await store[PLAIN].invalidate_tag("red")


async def test_invalidating_a_tag_during_a_load_wins(store: Store) -> None:
    """A caller after the invalidation does not get what was loaded from before it."""
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    table.gate.clear()
    before = asyncio.create_task(store[TAGGED].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads)
    table.rows[who] = Profile("new")
    await store[TAGGED].invalidate_tag("red")
    after = asyncio.create_task(store[TAGGED].get_or_load(table.load, user_id=who))
    await asyncio.sleep(0.01)
    table.gate.set()
    assert await after == Profile("new")
    await before
    assert await store[TAGGED].get_or_load(table.load, user_id=who) == Profile("new")


async def test_the_tag_clock_never_goes_back(server: Valkey, key: str) -> None:
    """A time is later than the last one when the server's clock was set back; a foreign value is replaced."""
    async with keyspace.connect(server.url, CATALOGUE) as store:
        seconds, microseconds = map(int, await store.call("TIME"))
        now = seconds * 1_000_000 + microseconds
        ahead = now + 3_600_000_000

        async def tick() -> int:
            time: int = await store.call("EVAL", TICK.source, 2, key, f"{key}:marker", 60_000)
            assert {int(await store.call("GET", each)) for each in (key, f"{key}:marker")} == {time}
            return time

        await store.call("SET", key, ahead, "PX", 60_000)
        assert [await tick(), await tick()] == [ahead + 1, ahead + 2]
        await store.call("SET", key, "no time", "PX", 60_000)
        assert now <= await tick() < ahead


async def test_the_decorator_calls_the_loader_once(store: Store) -> None:
    """A decorated loader takes a store and its fields, keeps its name, and is called once."""
    loads = []

    @PLAIN.cached
    async def profile_of(user_id: str) -> Profile:
        """A profile."""
        loads.append(user_id)
        return Profile(user_id)

    who = user()
    assert await profile_of(store, user_id=who) == Profile(who)
    assert await profile_of(store, user_id=who) == Profile(who)
    assert (loads, profile_of.__name__) == ([who], "profile_of")


async def test_another_shape_is_a_miss(store: Store) -> None:
    """An entry that cannot be decoded is loaded again and replaced."""
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    await store.call("SET", PLAIN.keyspace.key(user_id=who), "from another program", "PX", 60_000)
    assert await store[PLAIN].get_or_load(table.load, user_id=who) == Profile("ann")
    assert await store[PLAIN].get_or_load(table.load, user_id=who) == Profile("ann")
    assert table.loads == 1


def test_invalid_options_are_refused() -> None:
    """Durations and limits that make no sense are refused at the declaration."""
    declare: Any = Cache
    minute = timedelta(minutes=1)
    wrong: list[dict[str, object]] = [
        {"fresh": timedelta(0)}, {"stale": -minute}, {"loading": Loading(max_loads=0)},
        {"loading": Loading(jitter=1.0)}, {"loading": Loading(lease=timedelta(0))},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(InvalidDeclaration):
            declare(Catalogue("x"), "x:{y}", int, **{"fresh": minute, "purpose": "x", **options})
    with pytest.raises(InvalidDeclaration):
        LocalCache(max_entries=0)


@pytest.fixture
async def behind(url: str) -> AsyncIterator[Store]:
    """A store that does not know the server's time yet, on a machine whose clock is ten minutes behind."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        opened[SERVER_CLOCK]._offset -= TEN_MINUTES
        yield opened


async def test_a_cancelled_clock_request_leaves_others_correct(store: Store, behind: Store) -> None:
    """When the first request for the time is cancelled, a stale entry is still not taken for fresh."""
    who = user()
    await store[PLAIN].put(Profile("old", seconds=0.02), user_id=who)
    await asyncio.sleep(0.03)
    assert await store[PLAIN].get(user_id=who) is None
    first = asyncio.create_task(behind[PLAIN].get(user_id=who))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert await behind[PLAIN].get(user_id=who) is None
    assert not behind[SERVER_CLOCK].is_outdated()


async def test_first_callers_wait_for_the_servers_time(store: Store, behind: Store) -> None:
    """What a new process stores at once is fresh by the server's clock."""
    people = [user() for _ in range(5)]
    await asyncio.gather(*(behind[PLAIN].put(Profile(who, seconds=60), user_id=who) for who in people))
    assert [await store[PLAIN].get(user_id=who) for who in people] == [
        Profile(who, seconds=60) for who in people
    ]


async def test_the_clock_is_synced_again_after_a_failure(victim: Valkey) -> None:
    """A request for the time that a hung server did not answer is repeated."""
    async with keyspace.connect(victim.url, CATALOGUE) as store:
        victim.pause()
        first, second = (asyncio.create_task(store[PLAIN].get(user_id="u")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(ConnectionFailed):
            await second
        last = asyncio.create_task(store[PLAIN].get(user_id="u"))
        await asyncio.sleep(0)
        last.cancel()
        assert store[SERVER_CLOCK].is_outdated()
        victim.resume()
        await answered(lambda: store[PLAIN].get(user_id="u"))
        assert not store[SERVER_CLOCK].is_outdated()
