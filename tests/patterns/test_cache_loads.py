"""Loads: one for all callers and processes, bounded in time and number, early when they are expensive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.errors import LoadTimeout, StoreClosed, Unavailable
from ephemera.keyspace import Catalogue, Store
from ephemera.patterns.cache import Cache, Loading
from tests.patterns.profiles import CATALOGUE, PLAIN, SOFT, TAGGED, Profile, Table, user
from tests.wire.conditions import eventually

LASTING = Catalogue("profiles-waited-for")
PATIENT = Cache(
    LASTING,
    "cache:patient:{user_id}",
    Profile,
    fresh=timedelta(minutes=5),
    stale=timedelta(hours=1),
    loading=Loading(soft_timeout=timedelta(seconds=10)),
    purpose="Profiles that are waited for longer than a machine stands still",
)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with the caches, on every kind of server."""
    async with keyspace.connect(url, CATALOGUE, LASTING) as opened:
        yield opened


@pytest.fixture
async def stores(server: Valkey) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores on one server, as two processes would have them."""
    async with (
        keyspace.connect(server.url, CATALOGUE, LASTING) as one,
        keyspace.connect(server.url, CATALOGUE, LASTING) as two,
    ):
        yield one, two


async def _load(store: Store, table: Table, who: str) -> Profile | None:
    return await store[PLAIN].get_or_load(table.load, user_id=who)


async def test_callers_share_one_load(store: Store) -> None:
    """A hundred callers of one cold key load once, whenever they arrive."""
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    table.gate.clear()
    first = [asyncio.create_task(_load(store, table, who)) for _ in range(50)]
    await eventually(lambda: table.loads)
    late = [asyncio.create_task(_load(store, table, who)) for _ in range(50)]
    await asyncio.sleep(0.01)
    table.gate.set()
    assert set(await asyncio.gather(*first, *late)) == {Profile("ann")}
    assert table.loads == 1


async def test_callers_at_every_moment_of_a_load_share_it(store: Store) -> None:
    """Sixty callers, one per iteration of the event loop, share one load, with and without tags."""
    loads: list[str] = []

    async def load(user_id: str) -> Profile:
        loads.append(user_id)
        for _ in range(5):
            await asyncio.sleep(0)
        return Profile("ann")

    people = [user() for _ in range(20)]
    for cache in (TAGGED, PLAIN):
        for who in people:
            callers = []
            for _ in range(60):
                callers.append(asyncio.create_task(store[cache].get_or_load(load, user_id=who)))
                await asyncio.sleep(0)
            assert set(await asyncio.gather(*callers)) == {Profile("ann")}
    assert loads == people * 2


async def test_another_process_waits_for_the_load(stores: tuple[Store, Store]) -> None:
    """Callers of a second store are woken by the fill of the first, and load nothing."""
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    table.gate.clear()
    first = asyncio.create_task(_load(stores[0], table, who))
    await eventually(lambda: table.loads)
    rest = [asyncio.create_task(_load(stores[1], table, who)) for _ in range(20)]
    await asyncio.sleep(0.02)
    table.gate.set()
    assert set(await asyncio.gather(first, *rest)) == {Profile("ann")}
    assert table.loads == 1


async def test_a_dead_loader_is_replaced(store: Store) -> None:
    """A claim that is not renewed ends with its lease, and a waiting caller loads."""
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    await store.call("SET", PLAIN.load_tokens.key(user_id=who), "dead", "PX", 300)
    assert await _load(store, table, who) == Profile("ann")
    assert table.loads == 1


async def test_a_slow_loader_keeps_its_claim(stores: tuple[Store, Store]) -> None:
    """A load longer than its lease is renewed, so no other one begins."""
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    table.gate.clear()
    first = asyncio.create_task(_load(stores[0], table, who))
    await eventually(lambda: table.loads)
    second = asyncio.create_task(_load(stores[1], table, who))
    await asyncio.sleep(3.2)  # more than a lease
    table.gate.set()
    assert (await first, await second) == (Profile("ann"), Profile("ann"))
    assert table.loads == 1


async def test_a_loaders_error_is_raised_to_its_callers(store: Store) -> None:
    """Without a stale value all callers that share the load get its error, and the next call tries again."""
    table, who = Table(), user()
    table.broken = True
    results = await asyncio.gather(*(_load(store, table, who) for _ in range(5)), return_exceptions=True)
    assert {type(result) for result in results} == {LookupError}
    assert table.loads == 1
    table.broken = False
    table.rows[who] = Profile("ann")
    assert await _load(store, table, who) == Profile("ann")


async def test_a_loaders_connection_error_is_not_taken_for_ours(store: Store) -> None:
    """A loader that raises ConnectionFailed is called once, and not again without the server."""
    loads = 0

    async def load(user_id: str) -> Profile:
        nonlocal loads
        loads += 1
        raise Unavailable("elsewhere", "it is the loader's own server")

    with pytest.raises(Unavailable, match="elsewhere"):
        await store[PLAIN].get_or_load(load, user_id=user())
    assert loads == 1


async def test_a_cancelled_caller_leaves_the_load_to_others(store: Store) -> None:
    """The first caller is cancelled; the second, and the cache, still get the value."""
    table, who = Table(), user()
    table.rows[who] = Profile("ann")
    table.gate.clear()
    first = asyncio.create_task(_load(store, table, who))
    second = asyncio.create_task(_load(store, table, who))
    await eventually(lambda: table.loads)
    first.cancel()
    table.gate.set()
    assert await second == Profile("ann")
    assert first.cancelled()
    assert table.loads == 1


async def test_soft_and_hard_timeouts(store: Store) -> None:
    """With a stale value a caller waits until the soft timeout; without one the hard timeout fails it."""
    table, who = Table(), user()
    table.rows[who] = Profile("new")
    for cache in (PATIENT, SOFT):
        await store[cache].put(Profile("old"), user_id=who)
        await store[cache].expire(user_id=who)
    assert await store[PATIENT].get_or_load(table.load, user_id=who) == Profile("new")
    table.gate.clear()
    assert await store[SOFT].get_or_load(table.load, user_id=who) == Profile("old")
    with pytest.raises(LoadTimeout, match="not loaded within"):
        await store[SOFT].get_or_load(table.load, user_id=user())


async def test_a_refresh_from_before_an_invalidation_is_not_shared(stores: tuple[Store, Store]) -> None:
    """A caller that finds a newer stale value gets that, and not a refresh that began before the change."""
    store, other = stores
    table, elsewhere, who = Table(), Table(), user()
    table.rows[who] = Profile("first")
    await store[PATIENT].get_or_load(table.load, user_id=who)
    await store[PATIENT].expire(user_id=who)
    table.rows[who], elsewhere.rows[who] = Profile("second"), Profile("third")
    table.gate.clear()
    before = asyncio.create_task(store[PATIENT].get_or_load(table.load, user_id=who))
    await eventually(lambda: table.loads == 2)
    await other[PATIENT].delete(user_id=who)
    await other[PATIENT].get_or_load(elsewhere.load, user_id=who)
    await other[PATIENT].expire(user_id=who)
    after = asyncio.create_task(store[PATIENT].get_or_load(table.load, user_id=who))
    await store.call("PING")
    table.gate.set()
    await before
    assert await after == Profile("third")


async def test_a_backoff_without_a_stale_value_is_ignored(store: Store) -> None:
    """After a failed refresh and an invalidation of the stale entry, the next caller loads at once."""
    table, who = Table(), user()
    table.rows[who] = Profile("old")
    await store[TAGGED].get_or_load(table.load, user_id=who)
    await store[TAGGED].expire(user_id=who)
    table.broken = True
    assert await store[TAGGED].get_or_load(table.load, user_id=who) == Profile("old")
    marker = TAGGED.load_tokens.key(user_id=who)
    while await store.call("GET", marker) != b"-":
        await asyncio.sleep(0.001)
    await store.call("PEXPIRE", marker, 60_000)
    table.broken, table.rows[who] = False, Profile("new")
    await store[TAGGED].invalidate_tag("red")
    async with asyncio.timeout(60):
        assert await store[TAGGED].get_or_load(table.load, user_id=who) == Profile("new")


async def test_an_expensive_load_is_refreshed_early(server: Valkey) -> None:
    """Near the end of an entry that took long to load, readers refresh it before it is stale."""
    dear = Catalogue("dear")
    cache = Cache(
        dear,
        "dear:{n}",
        int,
        fresh=timedelta(seconds=20),
        loading=Loading(early_refresh=100),
        purpose="Dear to load",
    )
    loads = 0

    async def load(n: str) -> int:
        nonlocal loads
        loads += 1
        await asyncio.sleep(0.2)
        return loads

    async with keyspace.connect(server.url, dear) as store:
        assert await store[cache].get_or_load(load, n=user()) == 1
        name = user()
        await store[cache].get_or_load(load, n=name)

        async def read() -> bool:
            return await store[cache].get_or_load(load, n=name) > 2

        while not await read():
            await asyncio.sleep(0.002)
        assert store[cache].stats.misses == 2


async def test_background_refreshes_are_bounded(store: Store) -> None:
    """Of many stale entries only `max_refreshes` are refreshed at once; the others are served stale."""
    table = Table()
    people = [user() for _ in range(30)]
    for who in people:
        table.rows[who] = Profile("old")
        await _load(store, table, who)
        await store[PLAIN].expire(user_id=who)
    table.gate.clear()
    for who in people:
        assert await _load(store, table, who) == Profile("old")
    await eventually(lambda: table.at_once == PLAIN.loading.max_refreshes)
    table.gate.set()
    await eventually(lambda: table.at_once == 0)
    assert table.loads == 30 + PLAIN.loading.max_refreshes


async def test_closing_the_store_ends_loads(server: Valkey) -> None:
    """Callers that wait for a load when the store closes get StoreClosed, and no task is left."""
    table, who = Table(), user()
    table.gate.clear()
    async with keyspace.connect(server.url, CATALOGUE) as store:
        waiting = asyncio.create_task(_load(store, table, who))
        await eventually(lambda: table.loads)
    with pytest.raises(StoreClosed):
        await waiting
