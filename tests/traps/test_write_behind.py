"""Traps S11-S14, S20, S21 and L6: counts rounded away, lost, doubled or evicted; votes that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, Store, connect, embedded
from ephemera.embedded import Cluster, Postgres, Valkey
from ephemera.errors import CrossSlot
from ephemera.patterns.usage import BoundUsage, Usage, micros, money
from ephemera.patterns.write_behind import Batch, CounterTable, Flusher, RecordTable
from ephemera.patterns.write_behind._batches import Sealed
from tests.patterns import usage_fixtures
from tests.patterns.lock_fixtures import until
from tests.patterns.write_behind_fixtures import (
    CATALOGUE,
    CLICKED,
    CLICKS,
    NO_DELAY,
    SHARES,
    VIEWS,
    VOTED,
    VOTES,
    Vote,
    empty_backlog,
    prepare_database,
    rows,
)

SOON = timedelta(milliseconds=1)


class Crash(Exception):
    """The death of a process."""


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with an empty backlog."""
    async with connect(server.url, CATALOGUE) as opened:
        await empty_backlog(opened)
        yield opened


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on a database with all tables, empty, and a presentation."""
    engine = await prepare_database(postgres)
    await _execute(engine, sa.insert(SHARES).values(presentation_id="p1"))
    yield engine
    await engine.dispose()


async def _execute(engine: AsyncEngine, statement: Any) -> None:
    async with engine.begin() as connection:
        await connection.execute(statement)


async def _flush_all(flusher: Flusher, source: Any) -> None:
    async def empty() -> bool:
        await flusher.flush()
        return await _none_waits(source)

    await until(empty)


@pytest.fixture
async def usage(server: Valkey, engine: AsyncEngine) -> AsyncIterator[BoundUsage]:
    """The usage under test, with an empty backlog."""
    async with connect(server.url, usage_fixtures.CATALOGUE) as opened:
        counters = usage_fixtures.USAGE.counters
        for keys in counters.shards.keys(counters.pending, counters.sealed, counters.shards.state):
            for each in keys:
                await opened.client("queue").call("UNLINK", each)
        async with engine.begin() as connection:
            await connection.run_sync(usage_fixtures.METADATA.drop_all)
            await connection.run_sync(usage_fixtures.METADATA.create_all)
        yield usage_fixtures.bound_usage(opened, engine)


async def test_s11_costs_below_a_cent_are_counted(
    store: Store, engine: AsyncEngine, usage: BoundUsage, key: str
) -> None:
    """A thousand calls at 0.042 cents are zero in whole cents; ours are 0.42, including in SQL."""
    cost = 0.00042
    cents = (store.call("HINCRBY", key, "cost_cents", int(cost * 100)) for _ in range(1000))
    await asyncio.gather(*cents)
    assert await store.call("HGET", key, "cost_cents") == b"0"

    for place in range(0, 1000, 50):  # half of them by reservations, and a flush in the midst of it
        await asyncio.gather(
            *(usage.record(key, tokens=1, cost_micros=micros(cost)) for _ in range(25)),
            *(_settled(usage, key, cost) for _ in range(25)),
        )
        if place == 500:
            await _flush_all(usage.flusher(claim_timeout=SOON, **NO_DELAY), usage.counters)
    used = (await usage.totals(key)).used
    assert (used["tokens"], money(used["cost_micros"])) == (1000, Decimal("0.42"))
    await _flush_all(usage.flusher(claim_timeout=SOON, **NO_DELAY), usage.counters)
    ((*_, tokens, cost_micros),) = await rows(engine, usage_fixtures.RECORDS)
    assert (tokens, money(cost_micros)) == (1000, Decimal("0.42"))


async def _settled(usage: BoundUsage, organization: str, cost: float) -> None:
    async with await usage.reserve(organization, tokens=10, limits={"tokens": 10_000}) as reservation:
        await reservation.settle(tokens=1, cost_micros=micros(cost))


async def _naive_flush(store: Store, engine: AsyncEngine, key: str, crash_after: str = "") -> None:
    """The naive flush: read, add to SQL, reset."""
    read = await store.call("HGETALL", key)
    if crash_after == "read":
        await store.call("HINCRBY", key, "p1", 1)  # a concurrent count
    for page, views in read.items():
        adding = sa.update(SHARES).values(view_count=SHARES.c.view_count + int(views))
        await _execute(engine, adding.where(SHARES.c.presentation_id == page.decode()))
    if crash_after == "written":
        raise Crash
    await store.call("DEL", key)


async def _views(engine: AsyncEngine) -> int:
    return int((await rows(engine, SHARES))[0][1])


async def test_s12_a_flush_by_read_and_reset_doubles_and_loses(
    store: Store, engine: AsyncEngine, key: str
) -> None:
    """Read-then-reset counts twice after a crash, and drops what arrived in between; ours does neither."""
    await store.call("HINCRBY", key, "p1", 10)
    with pytest.raises(Crash):
        await _naive_flush(store, engine, key, "written")
    await _naive_flush(store, engine, key)
    assert await _views(engine) == 20  # 10 were counted
    await store.call("HINCRBY", key, "p1", 10)
    await _naive_flush(store, engine, key, "read")
    await _naive_flush(store, engine, key)
    assert await _views(engine) == 30  # 21 were counted: ten of them twice, one not at all

    source, sink = store[CLICKS], CounterTable(engine, CLICKED, CLICKS)
    await source.add(page="p1", day="mon", clicks=10)

    async def crash(_: Batch) -> None:
        await source.add(page="p1", day="mon", clicks=1)  # a concurrent count
        raise Crash

    with pytest.raises(Crash):
        await Flusher(source, sink, on_applied=crash, claim_timeout=SOON, **NO_DELAY).flush()
    await _flush_all(Flusher(source, sink, claim_timeout=SOON, **NO_DELAY), source)
    assert await rows(engine, CLICKED) == [("p1", "mon", 11, 0)]


async def test_s13_getset_and_update_loses_views(store: Store, engine: AsyncEngine, key: str) -> None:
    """GETSET then UPDATE loses the views when it dies in between; ours retries them."""
    await store.call("INCRBY", key, 7)
    with pytest.raises(Crash):
        await _getset_then_die(store, key)
    assert (await store.call("GET", key), await _views(engine)) == (b"0", 0)

    sink = CounterTable(engine, SHARES, VIEWS, insert=False)
    for _ in range(7):
        await store[VIEWS].add(presentation_id="p1", view_count=1)
    dying: Any = CounterTable(engine, SHARES, VIEWS, insert=False)
    dying.apply = _die
    with pytest.raises(Crash):
        await Flusher(store[VIEWS], dying, claim_timeout=SOON, **NO_DELAY).flush()
    async with Flusher(store[VIEWS], sink, claim_timeout=SOON, **NO_DELAY):  # as it runs in a service
        await until(lambda: _are(engine, 7))


async def _getset_then_die(store: Store, key: str) -> None:
    await store.call("GETSET", key, 0)
    raise Crash


async def _die(_: Batch) -> Any:
    raise Crash


async def _are(engine: AsyncEngine, views: int) -> bool:
    return await _views(engine) == views


async def test_s14_an_evicting_server_drops_unflushed_counters() -> None:
    """Counters among cached values are evicted with them; ours go to the server of the role queue."""
    evicting = {"maxmemory": "4mb", "maxmemory-policy": "allkeys-lru"}
    with embedded.valkey(config=evicting) as cache, embedded.valkey() as queue:
        async with connect(cache.url, CATALOGUE, queue_url=queue.url) as store:
            for page in range(100):
                await store.call("INCRBY", f"naive:{page}", 1)
                await store[CLICKS].add(page=f"{page}", day="mon", clicks=1)
            cached = (store.call("SET", f"cached:{n}", "x" * 1000, "EX", 60) for n in range(8000))
            await asyncio.gather(*cached)
            left = sum([await store.call("EXISTS", f"naive:{page}") for page in range(100)])
            assert left < 100
            assert await store[CLICKS].backlog() == 100


async def test_s20_the_interval_is_configurable_and_15_minutes_by_default(
    store: Store, engine: AsyncEngine
) -> None:
    """Usage flushes when it is 15 minutes old unless declared otherwise, and not before."""
    usual = Usage(Catalogue("a"), measures=["n"], purpose="p")
    assert usual.counters.shards.flush_every == timedelta(minutes=15)
    hourly = Usage(Catalogue("b"), measures=["n"], purpose="p", flush_every=timedelta(hours=1))
    assert hourly.counters.shards.flush_every == timedelta(hours=1)

    source = store[CLICKS]  # every minute
    await source.add(page="p", day="mon", clicks=1)
    shard = source.declared.shards.of("p:mon")
    assert await source._queue.seal(shard, "me", 1, "e", 60_000) == "nothing due"
    await store.call("HINCRBY", CLICKS.shards.state.key(shard=shard), "since", -60_001)
    assert isinstance(await source._queue.seal(shard, "me", 1, "e", 60_000), Sealed)


async def test_s21_scan_and_delete_by_pattern_does_not_work_on_a_cluster(
    cluster: Cluster, engine: AsyncEngine
) -> None:
    """SCAN sees one node and DEL one slot; ours does not search, because the shards are numbered."""
    async with connect(cluster.url, CATALOGUE) as store:
        await empty_backlog(store)
        for page in range(40):
            await store[CLICKS].add(page=f"p{page}", day="mon", clicks=1)
        there = [keys[0] for keys in CLICKS.shards.keys(CLICKS.pending)]
        found: list[bytes] = []
        cursor: Any = b"0"
        node = store.client("queue").nodes()[0]
        while True:
            cursor, keys = await node.call("SCAN", cursor, "MATCH", "clicks:pending:*")
            found += keys
            if cursor == b"0":
                break
        assert 0 < sum([await store.call("EXISTS", key) for key in there]) > len(found)
        with pytest.raises(CrossSlot):
            await store.call("DEL", *there)

        await _flush_all(
            Flusher(store[CLICKS], CounterTable(engine, CLICKED, CLICKS), claim_timeout=SOON, **NO_DELAY),
            store[CLICKS],
        )
        assert len(await rows(engine, CLICKED)) == 40


async def test_l6_votes_popped_from_a_list_are_lost(store: Store, engine: AsyncEngine, key: str) -> None:
    """A popped vote is lost with its writer; ours is acknowledged after the commit, and counts once."""
    await store.call("RPUSH", key, "u1 m1 home")
    with pytest.raises(Crash):
        await _pop_then_die(store, key)
    assert await store.call("LLEN", key) == 0

    bumped: list[str] = []

    async def bump(batch: Batch) -> None:
        bumped.extend({vote["match_id"] for vote in batch.records()})

    votes, sink = store[VOTES], RecordTable(engine, VOTED, unique=["user_id", "match_id"])
    for vote in (Vote("u1", "m1", "home"), Vote("u1", "m1", "away"), Vote("u2", "m1", "draw")):
        await votes.append(vote, partition_key=vote.match_id)
    dying: Any = RecordTable(engine, VOTED, unique=["user_id", "match_id"])
    dying.apply = _die
    with pytest.raises(Crash):
        await Flusher(votes, dying, claim_timeout=SOON, **NO_DELAY).flush()
    assert await votes.backlog() == 3
    async with Flusher(
        votes, sink, on_applied=bump, claim_timeout=SOON, **NO_DELAY
    ):  # as it runs in a service
        await until(lambda: _none_waits(votes))
    assert bumped == ["m1"]
    assert await rows(engine, VOTED) == [("u1", "m1", "home"), ("u2", "m1", "draw")]


async def _pop_then_die(store: Store, key: str) -> None:
    await store.call("LPOP", key)
    raise Crash


async def _none_waits(source: Any) -> bool:
    return bool(await source.backlog() == 0)
