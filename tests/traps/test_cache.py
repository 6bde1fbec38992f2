"""Traps I4, L3, L4, L7, L8 and L10, as far as they are a cache's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ephemera import keyspace
from tests.patterns.profiles import CATALOGUE, COPIED, PLAIN, Profile, Table, user
from tests.wire.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ephemera.embedded import Valkey
    from ephemera.keyspace import Store
    from ephemera.patterns.cache import Cache


@pytest.fixture
async def stores(server: Valkey) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores on one server, as two processes would have them."""
    async with (
        keyspace.connect(server.url, CATALOGUE) as one,
        keyspace.connect(server.url, CATALOGUE) as other,
    ):
        yield one, other


@pytest.mark.parametrize("cache", [PLAIN, COPIED], ids=["plain", "copied"])
@pytest.mark.parametrize("how", ["delete", "expire"])
async def test_i4_an_old_row_is_not_written_back(
    stores: tuple[Store, Store], cache: Cache[Profile], how: str
) -> None:
    """A reader has loaded the old row, an updater in another process invalidates: the updater wins."""
    reader, updater = stores
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    table.gate.clear()
    reading = asyncio.create_task(reader[cache].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads)
    table.rows[who] = Profile("new")
    await getattr(updater[cache], how)(user_id=who)
    table.gate.set()
    await reading
    for store in stores:
        assert await store[cache].get_or_load(table.load, user_id=who) == Profile("new")


@pytest.mark.parametrize("cache", [PLAIN, COPIED], ids=["plain", "copied"])
async def test_i4_nobody_joins_a_load_from_before(stores: tuple[Store, Store], cache: Cache[Profile]) -> None:
    """A caller after the invalidation does not share its own process's load from before it."""
    reader, updater = stores
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    table.gate.clear()
    before = asyncio.create_task(reader[cache].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads)
    table.rows[who] = Profile("new")
    await updater[cache].delete(user_id=who)
    after = asyncio.create_task(reader[cache].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads == 2)
    table.gate.set()
    assert (await before, await after) == (Profile("old"), Profile("new"))


@pytest.mark.parametrize("cache", [PLAIN, COPIED], ids=["plain", "copied"])
async def test_i4_a_thousand_races_leave_nothing_stale(
    stores: tuple[Store, Store], cache: Cache[Profile]
) -> None:
    """Readers in two processes, changes at many moments of their loads: later reads see the change."""
    store, other = stores
    table = Table()

    async def slow(user_id: str) -> Profile | None:
        row = table.rows.get(user_id)
        table.loads += 1
        for _ in range(table.loads % 5):
            await asyncio.sleep(0)
        return row

    async def race(who: str) -> int:
        table.rows[who] = Profile("0")
        wrong = 0
        for number in range(1, 11):
            readers = [
                asyncio.create_task(each[cache].get_or_load(slow, user_id=who)) for each in (*stores, *stores)
            ]
            for _ in range(number % 4):
                await asyncio.sleep(0)
            table.rows[who] = Profile(str(number))
            await store[cache].delete(user_id=who)
            wrong += await store[cache].get_or_load(slow, user_id=who) != table.rows[who]
            await asyncio.gather(*readers)
            await other.call("PING")  # the server's word to the other process has arrived before this
            wrong += await other[cache].get_or_load(slow, user_id=who) != table.rows[who]
            wrong += await store[cache].get_or_load(slow, user_id=who) != table.rows[who]
        return wrong

    assert sum(await asyncio.gather(*(race(user()) for _ in range(100)))) == 0


async def test_l3_a_slow_loader_does_not_end_the_next_ones_claim(stores: tuple[Store, Store]) -> None:
    """A loader that lost its claim neither fills nor releases what another has claimed since."""
    store, _ = stores
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    table.gate.clear()
    reading = asyncio.create_task(store[PLAIN].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads)
    loads = PLAIN.loads.key(user_id=who)
    await store.call("SET", loads, "the next one", "PX", 60_000)
    table.gate.set()
    await reading
    assert await store.call("GET", loads) == b"the next one"
    assert await store.call("EXISTS", PLAIN.space.key(user_id=who)) == 0


async def test_l4_a_regenerator_from_before_an_invalidation_writes_nothing(
    stores: tuple[Store, Store],
) -> None:
    """A background refresh of a stale entry began before the entry was invalidated: its result is refused."""
    store, other = stores
    table, who = Table(), user()
    table.rows[who] = Profile("first")
    await store[PLAIN].get_or_load(table.load, user_id=who)
    await store[PLAIN].expire(user_id=who)
    table.rows[who] = Profile("second")
    table.gate.clear()
    assert await store[PLAIN].get_or_load(table.load, user_id=who) == Profile("first")
    await eventually(lambda: table.loads == 2)
    table.rows[who] = Profile("third")
    await other[PLAIN].delete(user_id=who)
    table.gate.set()
    await eventually(lambda: table.at_once == 0)
    assert await other[PLAIN].get_or_load(table.load, user_id=who) == Profile("third")
    assert await store[PLAIN].get_or_load(table.load, user_id=who) == Profile("third")


async def test_l7_who_waits_sends_next_to_nothing(stores: tuple[Store, Store], server: Valkey) -> None:
    """Fifty callers who wait for another process cost a handful of commands, and do not poll."""
    store, other = stores
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    table.gate.clear()
    loading = asyncio.create_task(store[PLAIN].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads)
    waiting = [asyncio.create_task(other[PLAIN].get_or_load(table.load, user_id=who)) for _ in range(50)]
    channel = PLAIN.loaded.key(user_id=who)
    await eventually(lambda: server.ask("PUBSUB", "SHARDNUMSUB", channel) == [channel, 1])
    await other.call("PING")
    before = _commands(server)
    await asyncio.sleep(0.3)
    asked = _commands(server) - before
    table.gate.set()
    assert set(await asyncio.gather(loading, *waiting)) == {Profile("ann")}
    assert table.loads == 1
    assert asked < 30  # renewals of one lease of 0.6 s, pings, and this test's own questions


def _commands(server: Valkey) -> int:
    stats = str(server.ask("INFO", "stats")).splitlines()
    return next(int(line.split(":")[1]) for line in stats if line.startswith("total_commands_processed"))


async def test_l8_a_failed_loader_serves_stale_and_is_left_alone(stores: tuple[Store, Store]) -> None:
    """A failed refresh is not repeated by the next requests of any process: they get the stale value."""
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    await stores[0][PLAIN].get_or_load(table.load, user_id=who)
    await stores[0][PLAIN].expire(user_id=who)
    table.broken = True
    assert await stores[0][PLAIN].get_or_load(table.load, user_id=who) == Profile("old")
    await eventually(lambda: table.loads == 2 and table.at_once == 0)
    marker = PLAIN.loads.key(user_id=who)
    while await stores[0].call("GET", marker) != b"-":
        await asyncio.sleep(0.001)
    for _ in range(20):
        for store in stores:
            assert await store[PLAIN].get_or_load(table.load, user_id=who) == Profile("old")
    assert table.loads == 2


async def test_l10_versions_decide_and_pushes_only_hurry(stores: tuple[Store, Store]) -> None:
    """With every push lost, a fill from before an invalidation is refused all the same."""
    reader, updater = stores
    table, who = Table(), user()
    deaf: Any = reader[COPIED]._levels
    await reader[COPIED].get(user_id=who)
    deaf._client._trackers.clear()
    table.rows[who] = Profile("old")
    table.gate.clear()
    reading = asyncio.create_task(reader[COPIED].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads)
    table.rows[who] = Profile("new")
    await updater[COPIED].delete(user_id=who)
    table.gate.set()
    await reading
    for store in stores:
        assert await store[COPIED].get_or_load(table.load, user_id=who) == Profile("new")
