"""Write-behind: additions are buffered within limits and reach SQL once, on servers and a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Literal

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, Store, keyspace
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import (
    BacklogFull,
    InvalidDeclaration,
    InvalidField,
    InvalidValue,
    ServerError,
    StoreClosed,
    UndeclaredKeyspace,
    WrongFields,
)
from ephemera.patterns.write_behind import (
    Batch,
    CounterTable,
    DeferredCounters,
    DeferredRecords,
    Flushed,
    Flusher,
    RecordTable,
)
from ephemera.patterns.write_behind._batches import Sealed, shard_of
from ephemera.patterns.write_behind._records import row_maker
from tests.patterns.lock_fixtures import until
from tests.patterns.write_behind_fixtures import (
    CATALOGUE,
    CLICKED,
    CLICKS,
    EVENTS,
    FEW,
    HAPPENED,
    NO_DELAY,
    SHARES,
    VIEWS,
    VOTED,
    VOTES,
    Event,
    Vote,
    empty_backlog,
    prepare_database,
    rows,
)

AT_ONCE = timedelta(milliseconds=1)
"""A claim timeout that does not wait for the other flusher."""


@pytest.fixture(params=["server", "redis7", "cluster"])
async def any_store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store with an empty backlog, on every kind of server."""
    async with keyspace.connect(request.getfixturevalue(request.param).url, CATALOGUE) as store:
        await empty_backlog(store)
        yield store


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with an empty backlog, on Valkey."""
    async with keyspace.connect(server.url, CATALOGUE) as store:
        await empty_backlog(store)
        yield store


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on a database with all tables, empty."""
    engine = await prepare_database(postgres)
    yield engine
    await engine.dispose()


def _clicks(store: Store, engine: AsyncEngine, **options: Any) -> Flusher:
    return Flusher(store[CLICKS], CounterTable(engine, CLICKED, CLICKS), **{**NO_DELAY, **options})


def _events(store: Store, engine: AsyncEngine, **options: Any) -> Flusher:
    return Flusher(store[EVENTS], RecordTable(engine, HAPPENED), **{**NO_DELAY, **options})


async def test_counters_are_flushed_to_sql(any_store: Store, engine: AsyncEngine) -> None:
    """After a flush SQL has the sums, and Redis has nothing left."""
    add = any_store[CLICKS].add
    await asyncio.gather(*(add(page=f"p{n % 20}", day="mon", clicks=1, spent=n) for n in range(100)))
    await add(page="p0", day="a:b{c}%", clicks=7)
    assert await any_store[CLICKS].pending(page="p0", day="mon") == {"clicks": 5, "spent": 200}
    flushed = await _clicks(any_store, engine).flush()
    assert (flushed.rows, flushed.rejected, flushed.duplicates) == (21, 0, 0)
    found = {(page, day): (clicks, spent) for page, day, clicks, spent in await rows(engine, CLICKED)}
    assert found.pop(("p0", "a:b{c}%")) == (7, 0)
    assert found == {(f"p{n}", "mon"): (5, 5 * n + 200) for n in range(20)}
    assert await any_store[CLICKS].backlog() == 0
    assert await any_store[CLICKS].pending(page="p0", day="mon") == {"clicks": 0, "spent": 0}
    assert await _clicks(any_store, engine).flush() == Flushed()


async def test_records_are_flushed_in_order_and_in_batches(any_store: Store, engine: AsyncEngine) -> None:
    """Records are written oldest first, in batches, with nested values as JSON."""
    events = [Event(number, f"t{number}", {"n": number}) for number in range(45)]
    await any_store[EVENTS].append(*events[:40], partition_key="one")
    await any_store[EVENTS].append(*events[40:], partition_key="one")
    assert await any_store[EVENTS].backlog() == 45
    assert await any_store[EVENTS].backlog_age() > 0
    orders: list[list[int]] = []

    async def noted(batch: Batch) -> None:
        orders.append([row["number"] for row in batch.records()])

    flushed = await _events(any_store, engine, on_applied=noted).flush()
    assert (flushed.batches, flushed.rows) == (5, 45)
    assert orders == [list(range(first, min(first + 10, 45))) for first in range(0, 45, 10)]
    assert await rows(engine, HAPPENED) == [(n, f"t{n}", {"n": n}) for n in range(45)]
    assert (await any_store[EVENTS].backlog(), await any_store[EVENTS].backlog_age()) == (0, 0)


async def test_appended_records_and_their_bytes_are_counted(store: Store) -> None:
    """The statistics count appends, and the bytes that Redis has to keep."""
    stats = store[EVENTS].stats
    before = (stats.writes, stats.bytes_written)
    await store[EVENTS].append(Event(1, "one"), Event(2, "two"), partition_key="a")
    await store[EVENTS].append(Event(3), partition_key="a")
    pending = EVENTS.pending.key(shard=EVENTS.shards.of("a"))
    stored = await store.client("queue").call("LRANGE", pending, 0, -1)
    assert len(stored) == 3
    assert (stats.writes - before[0], stats.bytes_written - before[1]) == (2, sum(map(len, stored)))


async def test_an_addition_with_an_idempotency_key_counts_once(any_store: Store, engine: AsyncEngine) -> None:
    """Repeating an addition with the same key changes nothing, for counters and for records."""
    for expected in (True, False, False):
        assert (
            await any_store[CLICKS].add(page="p", day="mon", clicks=2, idempotency_key="addition:1")
            is expected
        )
        assert await any_store[EVENTS].append(Event(1), idempotency_key="addition:1") is expected
    assert await any_store[CLICKS].add(page="p", day="mon", clicks=2, idempotency_key="addition:2")
    assert await any_store[CLICKS].pending(page="p", day="mon") == {"clicks": 4, "spent": 0}
    assert await any_store[EVENTS].backlog() == 1


async def test_a_full_backlog_refuses_and_changes_nothing(any_store: Store) -> None:
    """New counters and records are refused with a clear error; pending counters can still be added to."""
    for page in "abc":
        await any_store[FEW].add(page=page, clicks=1)
    with pytest.raises(BacklogFull, match="its limit") as caught:
        await any_store[FEW].add(page="d", clicks=1)
    assert (caught.value.name, caught.value.shard, caught.value.limit) == ("few", 0, 3)
    await any_store[FEW].add(page="a", clicks=1)
    assert await any_store[FEW].pending(page="a") == {"clicks": 2}
    await any_store[EVENTS].append(*map(Event, range(99)), partition_key="one")
    with pytest.raises(BacklogFull):
        await any_store[EVENTS].append(Event(1), Event(2), partition_key="one")
    assert await any_store[EVENTS].append(Event(1), partition_key="one")
    assert (await any_store[FEW].backlog(), await any_store[EVENTS].backlog()) == (3, 100)


async def test_only_the_addition_without_room_fails(store: Store) -> None:
    """Coalesced additions are refused one by one, not all because of one."""
    for page in "ab":
        await store[FEW].add(page=page, clicks=1)
    outcomes = await asyncio.gather(
        *(store[FEW].add(page=page, clicks=1) for page in "abcda"), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [bool, bool, bool, BacklogFull, bool]
    assert await store[FEW].pending(page="a") == {"clicks": 3}


async def test_a_sum_beyond_2_53_is_refused_whole(store: Store) -> None:
    """When one of a row's sums would be inexact, none of them is changed; up to 2**53 sums are exact."""
    most = 2**53 - 1
    await store[CLICKS].add(page="p", day="mon", spent=most - 1)
    await store[CLICKS].add(page="p", day="mon", spent=1)
    for amount in (1, most):
        with pytest.raises(ServerError, match="p:mon:spent would exceed"):
            await store[CLICKS].add(page="p", day="mon", clicks=1, spent=amount)
    assert await store[CLICKS].pending(page="p", day="mon") == {"clicks": 0, "spent": most}


async def test_thousands_of_additions_in_one_tick(any_store: Store, engine: AsyncEngine) -> None:
    """However many tasks count at the same time, each addition counts once."""
    add = any_store[CLICKS].add
    await asyncio.gather(*(add(page=f"p{n % 6000}", day="mon", clicks=1) for n in range(9000)))
    flushed = await _clicks(any_store, engine).flush()
    assert flushed.rows == 6000
    assert sum(clicks for *_, clicks, _ in await rows(engine, CLICKED)) == 9000


async def test_a_closed_store_raises(server: Valkey) -> None:
    """An addition that cannot be sent does not wait forever."""
    async with keyspace.connect(server.url, CATALOGUE) as closed:
        add, append = closed[CLICKS].add, closed[EVENTS].append
    for attempt in (add(page="p", day="mon", clicks=1), append(Event(1))):
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(attempt, 60)


async def test_a_cancelled_caller_does_not_affect_the_others(store: Store) -> None:
    """Additions of one tick share a round trip, and not the cancellation of one caller."""
    first, second = (asyncio.ensure_future(store[CLICKS].add(page="p", day="mon", clicks=n)) for n in (1, 2))
    first.cancel()
    assert await second is True
    assert (await store[CLICKS].pending(page="p", day="mon"))["clicks"] in (2, 3)


async def test_rejected_rows_are_stored_and_the_rest_is_written(
    any_store: Store, engine: AsyncEngine
) -> None:
    """A bad row among good ones, and an entry that does not decode, do not delay the others."""
    for page in ("a", "forbidden", "b"):
        await any_store[CLICKS].add(page=page, day="mon", clicks=1)
    await any_store[EVENTS].append(
        Event(1, "fits"), Event(2, "far too long for it"), Event(3), partition_key="one"
    )
    client = any_store.client("queue")
    for keys in EVENTS.shards.keys(EVENTS.pending):
        if await client.call("EXISTS", keys[0]):
            await client.call("RPUSH", keys[0], b"\xff no record")
    assert (await _clicks(any_store, engine).flush()).rejected == 1
    flushed = await _events(any_store, engine).flush()
    assert (flushed.rows, flushed.rejected) == (2, 2)
    assert [page for page, *_ in await rows(engine, CLICKED)] == ["a", "b"]
    assert [number for number, *_ in await rows(engine, HAPPENED)] == [1, 3]
    sink = RecordTable(engine, HAPPENED)
    unread, long = await sink.rejected("events")
    assert unread.payload == b"\xff no record"
    assert (long.values()["number"], "too long" in long.reason) == (2, True)


async def test_records_of_an_older_version_still_decode(any_store: Store, engine: AsyncEngine) -> None:
    """Fields that an older version did not have take their defaults; removed fields are ignored."""
    key = EVENTS.pending.key(shard=0)
    await any_store.client("queue").call("RPUSH", key, b'{"number": 7, "gone": true}')
    await _events(any_store, engine).flush()
    assert await rows(engine, HAPPENED) == [(7, None, {})]


async def test_concurrent_flushers_share_the_work(any_store: Store, engine: AsyncEngine) -> None:
    """Many concurrent flushers write everything once."""
    await any_store[EVENTS].append(*map(Event, range(50)), partition_key="one")
    await any_store[EVENTS].append(*map(Event, range(50, 100)), partition_key="two")
    for number in range(50):
        await any_store[CLICKS].add(page=f"p{number}", day="mon", clicks=1)
    for takeover in (timedelta(seconds=30), AT_ONCE):
        flushers = [
            make(any_store, engine, claim_timeout=takeover) for make in (_clicks, _events) for _ in range(4)
        ]
        await asyncio.gather(*(flusher.flush() for flusher in flushers))
    assert [number for number, *_ in await rows(engine, HAPPENED)] == list(range(100))
    assert sum(clicks for *_, clicks, _ in await rows(engine, CLICKED)) == 50
    assert await any_store[EVENTS].backlog() == 0


async def test_a_claimed_batch_is_taken_over_after_its_timeout(any_store: Store, engine: AsyncEngine) -> None:
    """A batch whose flusher does not finish is claimed by another, under the same number."""
    await any_store[EVENTS].append(Event(1), partition_key="one")
    shard = shard_of("one", 2)
    assert isinstance(await any_store[EVENTS]._queue.seal(shard, "dead", 60_000, "e", 0), Sealed)
    assert await _events(any_store, engine).flush() == Flushed(skipped=1)
    await any_store[EVENTS]._queue.seal(shard, "dead", 1, "e", 0)
    await any_store[EVENTS].append(Event(2), partition_key="one")
    flusher = _events(any_store, engine)
    await until(lambda: _wrote(flusher, 2))
    assert [number for number, *_ in await rows(engine, HAPPENED)] == [1, 2]


async def _wrote(flusher: Flusher, batches: int) -> bool:
    return (await flusher.flush()).batches == batches


async def test_a_batch_that_sql_has_is_removed_and_not_written_again(
    any_store: Store, engine: AsyncEngine
) -> None:
    """When the flusher died between the commit and the acknowledgement, the next one only acknowledges."""
    await any_store[CLICKS].add(page="p", day="mon", clicks=3)
    source, sink = any_store[CLICKS], CounterTable(engine, CLICKED, CLICKS)
    sealed = await source._queue.seal(source.declared.shards.of("p:mon"), "dead", 1, "e", 0)
    assert isinstance(sealed, Sealed)
    await sink.apply(await source._queue.read(sealed))
    await any_store[CLICKS].add(page="p", day="mon", clicks=4)
    flusher = _clicks(any_store, engine)
    await until(lambda: _repeated(flusher))
    assert await rows(engine, CLICKED) == [("p", "mon", 7, 0)]


async def _repeated(flusher: Flusher) -> bool:
    return (await flusher.flush()).duplicates == 1


async def test_a_late_acknowledgement_removes_nothing(any_store: Store, engine: AsyncEngine) -> None:
    """A flusher that was overtaken does not remove the next batch instead of its own."""
    source = any_store[CLICKS]
    await source.add(page="p", day="mon", clicks=1)
    shard = source.declared.shards.of("p:mon")
    late: Any = await source._queue.seal(shard, "late", 1, "e", 0)
    old = await source._queue.read(late)
    flusher = _clicks(any_store, engine)
    await until(lambda: _wrote(flusher, 1))
    assert not await source._queue.acknowledge(old)
    await source.add(page="p", day="mon", clicks=1)
    await source._queue.seal(shard, "other", 1, "e", 0)
    assert not await source._queue.acknowledge(old)
    assert await source.backlog() == 1


async def test_numbers_continue_after_redis_lost_them_and_its_clock_went_back(
    any_store: Store, engine: AsyncEngine
) -> None:
    """A batch whose number is too small for SQL but of a new epoch is renumbered and written."""
    source = any_store[CLICKS]
    await source.add(page="p", day="mon", clicks=1)
    await _clicks(any_store, engine).flush()
    ahead = sa.text("UPDATE write_behind_last_batches SET number = number + 3600000000")
    async with engine.begin() as connection:
        await connection.execute(ahead)
    await empty_backlog(any_store)
    await source.add(page="p", day="mon", clicks=5)
    assert (await _clicks(any_store, engine).flush()).batches == 1
    assert await rows(engine, CLICKED) == [("p", "mon", 6, 0)]
    await source.add(page="p", day="mon", clicks=1)
    assert (await _clicks(any_store, engine).flush()).batches == 1
    assert await rows(engine, CLICKED) == [("p", "mon", 7, 0)]


async def test_the_background_flushes_by_age_and_by_size(any_store: Store, engine: AsyncEngine) -> None:
    """A flusher takes shards that have reached their age or their size, and leaves the rest until its end."""
    async with engine.begin() as connection:
        await connection.execute(sa.insert(SHARES).values(presentation_id="p1"))
    await any_store[VIEWS].add(presentation_id="p1", view_count=3)
    await any_store[EVENTS].append(*map(Event, range(10)), partition_key="full")
    elsewhere = next(key for key in "abcdef" if shard_of(key, 2) != shard_of("full", 2))
    await any_store[EVENTS].append(Event(99), partition_key=elsewhere)
    views = Flusher(any_store[VIEWS], CounterTable(engine, SHARES, VIEWS, insert=False), **NO_DELAY)
    async with views, _events(any_store, engine):
        await until(lambda: _is(rows(engine, SHARES), [("p1", 3)]))
        await until(lambda: _length(rows(engine, HAPPENED), 10))
        assert await any_store[EVENTS].backlog() == 1
    assert views.failure is None


async def _is(found: Any, expected: object) -> bool:
    return bool(await found == expected)


async def _length(found: Any, expected: int) -> bool:
    return len(await found) == expected


async def test_on_applied_is_called_at_least_once(any_store: Store, engine: AsyncEngine) -> None:
    """A batch whose `on_applied` fails is in SQL and brought again, but not written twice."""
    applied: list[list[dict[str, Any]]] = []

    async def bump(batch: Batch) -> None:
        applied.append(batch.records())
        if len(applied) == 1:
            raise RuntimeError("the bump failed")

    await any_store[VOTES].append(Vote("u", "m", "home"), partition_key="m")
    sink = RecordTable(engine, VOTED, unique=["user_id", "match_id"])
    flusher = Flusher(any_store[VOTES], sink, on_applied=bump, **NO_DELAY)
    with pytest.raises(RuntimeError, match="the bump failed"):
        await flusher.flush()
    assert await any_store[VOTES].backlog() == 1
    assert (await flusher.flush()).duplicates == 1
    assert applied == [[{"user_id": "u", "match_id": "m", "choice": "home"}]] * 2
    assert (await rows(engine, VOTED), await any_store[VOTES].backlog()) == ([("u", "m", "home")], 0)


async def test_a_batch_may_be_delayed_before_it_is_written(store: Store, engine: AsyncEngine) -> None:
    """With `write_delay` nothing is in SQL before the seal can be on the server's disk."""
    await store[CLICKS].add(page="p", day="mon", clicks=1)
    flushing = asyncio.create_task(_clicks(store, engine, write_delay=timedelta(milliseconds=300)).flush())
    shard = store[CLICKS].declared.shards.of("p:mon")
    await until(lambda: _exists(store, CLICKS.sealed.key(shard=shard)))
    assert await rows(engine, CLICKED) == []
    await flushing
    assert await rows(engine, CLICKED) == [("p", "mon", 1, 0)]
    for wrong in ({"write_delay": timedelta(seconds=-1)}, {"claim_timeout": timedelta(0)}):
        with pytest.raises(InvalidValue, match="a positive claim_timeout"):
            _clicks(store, engine, **wrong)
    with pytest.raises(InvalidValue, match="a positive flush_every"):
        _clicks(store, engine, flush_every=timedelta(0))


async def _exists(store: Store, key: str) -> bool:
    return bool(await store.call("EXISTS", key))


async def test_wrong_values_are_refused_before_anything_is_sent(store: Store) -> None:
    """Amounts are whole numbers, keys are complete, records are of the declared type."""
    add: Any = store[CLICKS].add
    for amount in (1.5, "1", True, 2**53, None):
        with pytest.raises(InvalidValue):
            await add(page="p", day="tue", clicks=amount)
    for values in ({"page": "p", "clicks": 1}, {"page": "p", "day": "d"}, {"other": 1, "clicks": 1}):
        with pytest.raises(WrongFields):
            await add(**values)
    with pytest.raises(InvalidField):
        await add(page=1.5, day="d", clicks=1)
    append: Any = store[EVENTS].append
    wrong_type: Any = "one"
    for record in ("text", Vote("u", "m", "c"), Event(wrong_type)):
        with pytest.raises(InvalidValue):
            await append(record)
    assert (await store[CLICKS].backlog(), await store[EVENTS].backlog()) == (0, 0)


def test_impossible_declarations_are_refused() -> None:
    """Invalid limits and columns fail at the declaration."""
    catalogue = Catalogue("wrong")
    sound: dict[str, Any] = {"key": ["page"], "measures": ["clicks"], "purpose": "p"}
    unsound: tuple[dict[str, Any], ...] = (
        {"key": []},
        {"measures": ["page"]},
        {"measures": ["fallback"]},
        {"shards": 0},
        {"batch": 0},
        {"backlog": 0},
        {"flush_every": timedelta(0)},
        {"idempotency_ttl": timedelta(0)},
    )
    for wrong in unsound:
        with pytest.raises(InvalidDeclaration):
            DeferredCounters(catalogue, "wrong", **{**sound, **wrong})
    with pytest.raises(InvalidDeclaration):
        DeferredRecords(catalogue, "wrong", Event, purpose="p", batch=0)


async def test_a_store_without_the_catalogue_is_refused(server: Valkey) -> None:
    """Counters and records can only be used on a store that declares them."""
    async with keyspace.connect(server.url, Catalogue("other")) as store:
        for declared in (CLICKS, EVENTS):
            with pytest.raises(UndeclaredKeyspace):
                store[declared]


def test_the_backlog_has_the_role_queue() -> None:
    """No key may be on a server that evicts, and every key of a shard is in its slot."""
    for space in CATALOGUE:
        assert (space.role, space.template.hash_tag) == ("queue", "shard")


def test_literals_are_text_columns() -> None:
    """A `Literal` field is text in SQL; values without an SQL type are JSON."""

    class Ballot(msgspec.Struct):
        choice: Literal["home", "away"] | None
        why: dict[str, int]

    assert row_maker(Ballot)(Ballot("home", {"a": 1})) == ("home", '{"a":1}')
    assert row_maker(Ballot)(Ballot(None, {})) == (None, "{}")
