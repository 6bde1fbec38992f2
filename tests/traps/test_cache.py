"""Traps I4, L3, L4, L7, L8 and L10, as far as they concern a cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Store
from ephemera.patterns.cache import Cache, Loading, LocalCache
from tests.patterns.profiles import CATALOGUE, COPIED, PLAIN, Profile, Table, user
from tests.wire.conditions import eventually


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
    """A reader has loaded the old row and another process invalidates: the invalidation wins."""
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
async def test_i4_no_caller_joins_a_load_from_before(
    stores: tuple[Store, Store], cache: Cache[Profile]
) -> None:
    """A caller after the invalidation does not share its process's load from before it."""
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


class Races:
    """A thousand changes at many moments of loads in two processes, and which reads then get old rows."""

    def __init__(self, stores: tuple[Store, Store], cache: Cache[Profile] | None) -> None:
        self.stores, self.cache = stores, cache  # None: cache-aside by hand
        self.table = Table()
        self.begun: dict[str, asyncio.Event] = {}
        self.during_loads = 0  # changes between a load's read of the row and its end

    async def load(self, user_id: str) -> Profile:
        """The row, read at once, and returned after up to five milliseconds."""
        row = self.table.rows[user_id]
        self.begun[user_id].set()
        self.table.loads += 1
        await asyncio.sleep((1 + self.table.loads % 5) / 1000)
        self.during_loads += row is not self.table.rows[user_id]
        return row

    async def read(self, store: Store, who: str) -> str:
        """The name as the cache has it."""
        if self.cache is not None:
            return (await store[self.cache].get_or_load(self.load, user_id=who)).name
        found = await store.call("GET", f"naive:{who}")
        if found is not None:
            return str(found.decode())
        name = (await self.load(who)).name
        await store.call("SET", f"naive:{who}", name, "PX", 60_000)
        return name

    async def delete(self, store: Store, who: str) -> None:
        """Invalidate."""
        if self.cache is None:
            await store.call("DEL", f"naive:{who}")
        else:
            await store[self.cache].delete(user_id=who)

    async def wrong(self) -> int:
        """How many reads that began after an invalidation got the value from before it."""
        return sum(await asyncio.gather(*(self._of(user()) for _ in range(100))))

    async def _of(self, who: str) -> int:
        store, other = self.stores
        wrong = 0
        for number in range(10):
            self.table.rows[who] = Profile(f"{number}, old")
            await self.delete(store, who)
            await other.call("PING")  # the server's word to the other process has arrived before this
            self.begun[who] = asyncio.Event()
            readers = [asyncio.create_task(self.read(each, who)) for each in (*self.stores, *self.stores)]
            await (self.begun[who].wait() if number % 2 else asyncio.sleep(number / 1000))
            self.table.rows[who] = Profile(f"{number}, new")
            await self.delete(store, who)
            wrong += await self.read(store, who) != f"{number}, new"
            await asyncio.gather(*readers)
            await other.call("PING")
            for each in (other, store):
                wrong += await self.read(each, who) != f"{number}, new"
        return wrong


@pytest.mark.parametrize("local", [None, LocalCache()], ids=["plain", "copied"])
async def test_i4_a_thousand_races_leave_nothing_stale(server: Valkey, local: LocalCache | None) -> None:
    """Cache-aside keeps old rows after many of them; this cache never does, though loads are overtaken."""
    catalogue = Catalogue("races")
    raced = Cache(
        catalogue,
        "raced:{user_id}",
        Profile,
        fresh=timedelta(minutes=5),
        loading=Loading(max_loads=200),
        local=local,
        purpose="Rows that change while they are loaded",
    )
    async with (
        keyspace.connect(server.url, catalogue) as one,
        keyspace.connect(server.url, catalogue) as other,
    ):
        naive, ours = Races((one, other), None), Races((one, other), raced)
        assert await naive.wrong() > 0
        assert await ours.wrong() == 0
        assert ours.during_loads >= 500  # every other one at least


async def test_l3_a_slow_loader_does_not_end_the_next_ones_claim(stores: tuple[Store, Store]) -> None:
    """A loader that lost its claim neither fills nor releases what another has claimed since."""
    store, _ = stores
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    table.gate.clear()
    reading = asyncio.create_task(store[PLAIN].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads)
    loads = PLAIN.load_tokens.key(user_id=who)
    await store.call("SET", loads, "the next one", "PX", 60_000)
    table.gate.set()
    await reading
    assert await store.call("GET", loads) == b"the next one"
    assert await store.call("EXISTS", PLAIN.keyspace.key(user_id=who)) == 0


async def test_l4_a_regenerator_from_before_an_invalidation_writes_nothing(
    stores: tuple[Store, Store],
) -> None:
    """A load that began before the invalidation is refused after it; the naive one leaves the old row."""
    store, other = stores
    table, who = Table(), user()
    table.rows[who] = Profile("second")
    loaded = await table.load(who)
    table.rows[who] = Profile("third")
    await other.call("DEL", naive := f"naive:{who}")
    assert loaded is not None
    await store.call("SET", naive, loaded.name, "PX", 60_000)
    assert await other.call("GET", naive) == b"second"

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


async def test_l7_waiting_callers_send_next_to_nothing(stores: tuple[Store, Store], server: Valkey) -> None:
    """Fifty polling callers send hundreds of commands; ours are woken, and send a handful."""
    store, other = stores
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    table.gate.clear()
    loading = asyncio.create_task(store[PLAIN].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads)
    waiting = [asyncio.create_task(other[PLAIN].get_or_load(table.load, user_id=who)) for _ in range(50)]
    channel = PLAIN.load_channel.key(user_id=who)
    await eventually(lambda: server.ask("PUBSUB", "SHARDNUMSUB", channel) == [channel, 1])
    await other.call("PING")
    before = _commands(server)
    await asyncio.sleep(0.3)
    asked = _commands(server) - before
    table.gate.set()
    assert set(await asyncio.gather(loading, *waiting)) == {Profile("ann")}
    assert table.loads == 1
    assert asked < 30  # renewals of one lease, pings, and this test's own questions

    async def poll() -> None:
        while await other.call("GET", f"naive:{who}") is None:
            await asyncio.sleep(0.01)

    polling = [asyncio.create_task(poll()) for _ in range(50)]
    before = _commands(server)
    await asyncio.sleep(0.3)
    hammered = _commands(server) - before
    await store.call("SET", f"naive:{who}", "ann", "PX", 60_000)
    await asyncio.gather(*polling)
    assert hammered > 5 * asked


def _commands(server: Valkey) -> int:
    stats = str(server.ask("INFO", "stats")).splitlines()
    return next(int(line.split(":")[1]) for line in stats if line.startswith("total_commands_processed"))


async def test_l8_a_failed_loader_serves_stale_and_backs_off(stores: tuple[Store, Store]) -> None:
    """Retrying at each request calls a broken source forty times; ours once, in all processes."""
    table, who = Table(), user()
    table.broken = True
    await stores[0].call("SET", naive := f"naive:{who}", "old", "PX", 60_000)
    for _ in range(40):
        try:
            await table.load(who)
        except LookupError:
            assert await stores[0].call("GET", naive) == b"old"  # stale is served, but only after the attempt
    assert table.loads == 40

    table = Table()
    table.rows[who] = Profile("old")
    await stores[0][PLAIN].get_or_load(table.load, user_id=who)
    await stores[0][PLAIN].expire(user_id=who)
    table.broken = True
    assert await stores[0][PLAIN].get_or_load(table.load, user_id=who) == Profile("old")
    await eventually(lambda: table.loads == 2 and table.at_once == 0)
    marker = PLAIN.load_tokens.key(user_id=who)
    while await stores[0].call("GET", marker) != b"-":
        await asyncio.sleep(0.001)
    for _ in range(20):
        for store in stores:
            assert await store[PLAIN].get_or_load(table.load, user_id=who) == Profile("old")
    assert table.loads == 2


@asynccontextmanager
async def _two_with_local_entries(
    url: str, name: str, max_age: timedelta
) -> AsyncIterator[tuple[Cache[Profile], Store, Store]]:
    """A cache whose local entries are trusted for at most `max_age`, and two stores as of two processes."""
    catalogue = Catalogue(name)
    local, fresh = LocalCache(max_age=max_age), timedelta(minutes=5)
    cache = Cache(catalogue, f"{name}:{{user_id}}", Profile, fresh=fresh, local=local, purpose="Profiles")
    async with (
        keyspace.connect(url, catalogue) as one,
        keyspace.connect(url, catalogue) as other,
    ):
        yield cache, one, other


async def test_l10_versions_decide_and_pushes_only_hurry(server: Valkey) -> None:
    """A lost message leaves the naive local value old; ours, without any tracking, is never old.

    Where the server refuses tracking, each read compares the version of the stored entry, and a load that was
    overtaken is refused by its claim.
    """
    server.ask("ACL", "SETUSER", "unpushed", "on", ">secret", "~*", "&*", "+@all", "-client|tracking")
    url = f"redis://unpushed:secret@127.0.0.1:{server.port}"
    async with _two_with_local_entries(url, "unpushed", timedelta(minutes=1)) as (cache, reader, updater):
        table, who = Table(), user()
        naive = {who: "old"}
        channel = f"naive:invalidations:{who}"
        async with reader.client("cache").subscribe(channel) as listening:
            assert await updater.call("PUBLISH", channel, "another") == 1
            received = await anext(listening)
            naive.pop(received.data.decode(), None)
        await updater.call("PUBLISH", channel, who)  # while the reader reconnects
        async with reader.client("cache").subscribe(channel) as listening:
            await updater.call("PUBLISH", channel, "yet another")
            received = await anext(listening)
            naive.pop(received.data.decode(), None)
        assert naive == {who: "old"}

        table.rows[who] = Profile("held")
        for _ in range(3):
            assert await reader[cache].get_or_load(table.load, user_id=who) == Profile("held")
        assert (table.loads, reader[cache]._engine.entries.is_tracking) == (1, False)
        await updater[cache].put(Profile("changed"), user_id=who)
        assert await reader[cache].get_or_load(table.load, user_id=who) == Profile("changed")

        await updater[cache].delete(user_id=who)
        table.rows[who] = Profile("old")
        table.gate.clear()
        reading = asyncio.create_task(reader[cache].get_or_load(table.load, user_id=who))
        await eventually(lambda: table.loads == 2)
        table.rows[who] = Profile("new")
        await updater[cache].delete(user_id=who)
        table.gate.set()
        await reading
        for store in (reader, updater):
            assert await store[cache].get_or_load(table.load, user_id=who) == Profile("new")


async def test_l10_a_push_that_is_lost_costs_max_age_at_most(server: Valkey) -> None:
    """A local entry whose invalidation is lost is used until its `max_age`, and not after."""
    max_age = timedelta(minutes=1)
    async with _two_with_local_entries(server.url, "deaf", max_age) as (cache, reader, updater):
        table, who = Table(), user()
        entries: Any = reader[cache]._engine.entries
        entries._on_change = lambda keys: None  # its invalidations are lost
        table.rows[who] = Profile("old")
        await updater[cache].get_or_load(table.load, user_id=who)
        assert await reader[cache].get_or_load(table.load, user_id=who) == Profile("old")
        held = monotonic()  # or a moment before this
        await updater[cache].put(Profile("new"), user_id=who)
        assert await reader[cache].get_or_load(table.load, user_id=who) == Profile("old")
        assert entries.is_tracking

        entry = entries.local.get(cache.keyspace.key(user_id=who))
        assert entry.trusted_until <= entry.expires_at <= held + max_age.total_seconds()
        entry.trusted_until = entry.expires_at = monotonic()  # as if its minute were over
        assert await reader[cache].get_or_load(table.load, user_id=who) == Profile("new")
        assert table.loads == 1
