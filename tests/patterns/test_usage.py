"""Usage: totals of SQL and pending amounts, reserved quotas, periods by the server's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, Store, keyspace
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import (
    BacklogFull,
    InvalidDeclaration,
    InvalidValue,
    QuotaExceeded,
    UndeclaredKeyspace,
    WrongFields,
)
from ephemera.patterns.usage import BoundUsage, Usage, micros, money
from ephemera.patterns.usage._units import period_at
from ephemera.patterns.write_behind import CounterTable
from ephemera.patterns.write_behind._batches import SEAL, Sealed
from tests.patterns.lock_fixtures import until
from tests.patterns.usage_fixtures import (
    BRIEFLY,
    CATALOGUE,
    DAILY,
    DAYS,
    MEASURES,
    METADATA,
    RECORDS,
    USAGE,
    bound_usage,
    table_of,
)
from tests.patterns.write_behind_fixtures import NO_DELAY, prepare_database, rows
from tests.resources import with_resources


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on a database with all tables, empty."""
    engine = await prepare_database(postgres)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.drop_all)
        await connection.run_sync(METADATA.create_all)
    yield engine
    await engine.dispose()


@pytest.fixture(params=["server", "redis7", "cluster"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store with an empty backlog."""
    async with keyspace.connect(request.getfixturevalue(request.param).url, CATALOGUE) as opened:
        for declared in (USAGE, DAILY):
            counters = declared.counters
            for keys in counters.shards.keys(counters.pending, counters.sealed, counters.shards.state):
                for key in keys:
                    await opened.client("queue").call("UNLINK", key)
        yield opened


@pytest.fixture
def organization(key: str) -> str:
    """An organization that only this test uses."""
    return key


@pytest.fixture
def usage(store: Store, engine: AsyncEngine) -> BoundUsage:
    """The usage under test."""
    return bound_usage(store, engine)


async def _tokens(usage: BoundUsage, organization: str) -> tuple[int, int]:
    """Return the tokens used and reserved."""
    totals = await usage.totals(organization)
    return totals.used["tokens"], totals.reserved["tokens"]


async def test_totals_are_the_same_before_during_and_after_a_flush(
    usage: BoundUsage, engine: AsyncEngine, organization: str
) -> None:
    """A total counts pending, sealed and flushed amounts once each."""
    await usage.record(organization, tokens=5, cost_micros=420)
    assert (await usage.totals(organization)).used == dict(zip(MEASURES, (0, 5, 420), strict=True))
    shard = usage.counters.declared.shards.of(organization)
    assert isinstance(await usage.counters._queue.seal(shard, "flusher", 1, "e", 0), Sealed)
    await usage.record(organization, tokens=2)
    assert await _tokens(usage, organization) == (7, 0)
    await until(lambda: _flushed(usage))
    await usage.record(organization, tokens=1)
    assert await _tokens(usage, organization) == (8, 0)
    assert await rows(engine, RECORDS) == [(organization, _this_month(), 0, 7, 420)]


@pytest.mark.parametrize("hostile", ["abc", "1.5", "0x10", "9" * 30, ""])
async def test_totals_that_are_no_numbers_are_rebuilt(
    usage: BoundUsage, store: Store, organization: str, hostile: str
) -> None:
    """Totals that another program wrote are lost totals: reading, counting and reserving keep working."""
    totals = usage._account(organization).own[0]
    for act in (
        lambda: usage.totals(organization),
        lambda: usage.record(organization, tokens=0),
        lambda: usage.reserve(organization, limits={"tokens": 100}, tokens=1, reservation_id="one"),
    ):
        await usage.record(organization, tokens=5)
        await store.client("queue").call("HSET", totals, "tokens", hostile)
        await act()
    assert await _tokens(usage, organization) == (15, 1)


@pytest.mark.parametrize("write", [("SET", "x"), ("HSET", "=tokens", "x"), ("HSET", "=tokens", "9" * 30)])
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_keys_of_another_program_refuse_no_organization(
    usage: BoundUsage, store: Store, organization: str, number: int, write: tuple[str, ...]
) -> None:
    """Totals or reservations of another type, or whose sums are no numbers, are lost ones."""
    own, queue, limits = usage._account(organization).own, store.client("queue"), {"tokens": 100}
    for act in ("totals", "record", "reserve", "settle", "release"):
        await queue.call("UNLINK", *own)
        held = await usage.reserve(organization, limits=limits, tokens=1)
        if write[0] == "SET" or number == 2:
            await queue.call("UNLINK", own[number])
        await queue.call(write[0], own[number], *write[1:])
        if act == "totals":
            await usage.totals(organization)
        elif act == "record":
            await usage.record(organization, tokens=0)
        elif act == "settle":
            await held.settle(tokens=0)
        elif act == "release":
            await held.release()
        await usage.reserve(organization, limits=limits, tokens=90)
    assert (await usage.totals(organization)).used["tokens"] == 0


async def _flushed(usage: BoundUsage) -> bool:
    await usage.flusher(claim_timeout=BRIEFLY, **NO_DELAY).flush()
    return await usage.counters.backlog() == 0


def _this_month() -> str:
    return datetime.now(UTC).strftime("%Y-%m")


@pytest.mark.parametrize("moment", ["pending", "filling", "sealed", "written", "forgotten"])
async def test_lost_totals_are_rebuilt_at_any_stage_of_a_flush(
    usage: BoundUsage, store: Store, engine: AsyncEngine, organization: str, moment: str
) -> None:
    """Lost totals are rebuilt from SQL and pending amounts, whatever the stage of the last batch."""
    await usage.record(organization, tokens=10)
    await until(lambda: _flushed(usage))
    await usage.record(organization, tokens=5)
    queue, shard = usage.counters._queue, usage.counters.declared.shards.of(organization)
    if moment == "filling":
        await usage.record(organization, presentations=1)
        counters = USAGE.counters
        keys = counters.shards.keys(counters.shards.state, counters.pending, counters.sealed)[shard]
        arguments = ("flusher", 1, "e", 0, 1000, 1, 1)  # move one of the two counters
        assert await store.client("queue").run(SEAL, keys, arguments) == 1
        assert await store.client("queue").call("HLEN", keys[2]) == 1
    elif moment != "pending":
        sealed: Any = await queue.seal(shard, "flusher", 1, "e", 0)
        batch = await usage.counters._queue.read(sealed)
        if moment != "sealed":
            await table_of(engine).apply(batch)
        if moment == "forgotten":
            assert await queue.acknowledge(batch)
    await usage.record(organization, tokens=2)
    assert await store[USAGE.totals].delete(
        organization_id=organization, period=_this_month(), shard=shard
    ) in (True, False)
    assert await _tokens(usage, organization) == (17, 0)
    await usage.record(organization, tokens=1)
    assert await _tokens(usage, organization) == (18, 0)


class Interrupted(CounterTable):
    """A table with an interruption between the read of SQL and the rebuild of the totals."""

    def __init__(self, engine: AsyncEngine, meanwhile: Any) -> None:
        super().__init__(engine, RECORDS, USAGE.counters)
        self.meanwhile = meanwhile

    async def totals(self, shard: int, key: Sequence[Any]) -> tuple[str, int, dict[str, int]]:
        """Return what SQL had before the interruption."""
        found = await super().totals(shard, key)
        await self.meanwhile()
        return found


@pytest.mark.parametrize("often", [1, 2])
async def test_a_flush_during_a_rebuild_is_noticed(
    usage: BoundUsage, store: Store, engine: AsyncEngine, organization: str, often: int
) -> None:
    """What a flush moves to SQL between the two reads is counted once."""
    left = [often]

    async def in_the_meantime() -> None:
        if left[0]:
            left[0] -= 1
            await until(lambda: _flushed(usage))
            await usage.record(organization, tokens=100)

    await usage.record(organization, tokens=5)
    watched = with_resources(store, {USAGE: Interrupted(engine, in_the_meantime)})[USAGE]
    assert await _tokens(watched, organization) == (5 + 100 * often, 0)


async def test_a_restored_backup_of_sql_is_accepted(
    usage: BoundUsage, store: Store, engine: AsyncEngine, organization: str
) -> None:
    """After a restore from a backup, totals are what SQL has, instead of an endless retry."""
    await usage.record(organization, tokens=5)
    await until(lambda: _flushed(usage))
    async with engine.begin() as connection:
        await connection.execute(sa.text("UPDATE write_behind_last_batches SET number = 1"))
        await connection.execute(sa.update(RECORDS).values(tokens=3))
    shard = usage.counters.declared.shards.of(organization)
    await store[USAGE.totals].delete(organization_id=organization, period=_this_month(), shard=shard)
    assert await _tokens(usage, organization) == (3, 0)


async def test_totals_stay_right_under_random_flushes_and_losses(
    usage: BoundUsage, store: Store, organization: str
) -> None:
    """While amounts are recorded and flushed and totals deleted, a reader always sees the right sum."""
    done = asyncio.Event()
    recorded, begun = [0], [0]
    shard = usage.counters.declared.shards.of(organization)

    async def record() -> None:
        for _ in range(150):
            begun[0] += 1
            await usage.record(organization, tokens=1)
            recorded[0] += 1
        done.set()

    async def flush() -> None:
        while not done.is_set():
            await usage.flusher(claim_timeout=BRIEFLY, **NO_DELAY).flush()

    async def lose() -> None:
        while not done.is_set():
            await store[USAGE.totals].delete(organization_id=organization, period=_this_month(), shard=shard)
            await asyncio.sleep(0.005)

    async def read() -> None:
        while not done.is_set():
            at_least = recorded[0]
            used, _ = await _tokens(usage, organization)
            assert at_least <= used <= begun[0]

    await asyncio.gather(record(), flush(), flush(), lose(), read())
    assert await _tokens(usage, organization) == (150, 0)


async def test_a_reservation_is_settled_with_the_actual_usage(usage: BoundUsage, organization: str) -> None:
    """A reservation counts against the limit until it is settled; then the actual usage counts."""
    async with await usage.reserve(organization, tokens=90, limits={"tokens": 100}) as reservation:
        assert await _tokens(usage, organization) == (0, 90)
        assert await reservation.settle(tokens=50, cost_micros=7)
        assert not await reservation.settle(tokens=50, cost_micros=7)
    totals = await usage.totals(organization)
    assert (totals.used, totals.reserved) == (
        {"presentations": 0, "tokens": 50, "cost_micros": 7},
        dict.fromkeys(MEASURES, 0),
    )


async def test_a_denied_reservation_takes_nothing(usage: BoundUsage, organization: str) -> None:
    """When one of several amounts does not fit, none is reserved, and the error says which and why."""
    await usage.record(organization, tokens=60)
    await usage.reserve(organization, tokens=30, limits={"tokens": 100})
    limits = {"tokens": 100, "presentations": 5}
    with pytest.raises(QuotaExceeded, match="60 tokens") as caught:
        await usage.reserve(organization, presentations=1, tokens=11, limits=limits)
    denied = caught.value
    assert (denied.measure, denied.requested, denied.limit, denied.used, denied.reserved) == (
        "tokens", 11, 100, 60, 30,
    )  # fmt: skip
    totals = await usage.totals(organization)
    assert (totals.used["presentations"], totals.reserved["presentations"]) == (0, 0)
    await usage.reserve(organization, presentations=5, tokens=10, limits=limits)
    await usage.reserve(organization, presentations=1000, limits={"presentations": None})


async def test_concurrent_reservations_never_exceed_the_limit(usage: BoundUsage, organization: str) -> None:
    """Of many concurrent reservations, exactly as many are granted as fit."""
    asked = (usage.reserve(organization, tokens=10, limits={"tokens": 95}) for _ in range(30))
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    denied = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert (len(outcomes) - len(denied), len(denied)) == (9, 21)
    assert await _tokens(usage, organization) == (0, 90)


async def test_released_and_expired_reservations_are_free_again(usage: BoundUsage, organization: str) -> None:
    """A release, the end of a block and an expiry each free the whole amount."""
    limits = {"tokens": 100}
    reservation = await usage.reserve(organization, tokens=100, limits=limits)
    assert await reservation.release()
    assert not await reservation.release()
    with pytest.raises(RuntimeError):
        async with await usage.reserve(organization, tokens=100, limits=limits):
            raise RuntimeError
    expiring = await usage.reserve(
        organization, tokens=100, limits=limits, expires_after=timedelta(milliseconds=1)
    )

    async def granted() -> bool:
        try:
            await usage.reserve(organization, tokens=100, limits=limits, reservation_id="next")
        except QuotaExceeded:
            return False
        return True

    await until(granted)
    assert await expiring.settle(tokens=3)  # the work was done
    assert await _tokens(usage, organization) == (3, 100)


async def test_a_reservation_with_an_id_may_be_retried(
    usage: BoundUsage, store: Store, engine: AsyncEngine, organization: str
) -> None:
    """A reservation whose reply was lost may be retried; another process may settle it."""
    for _ in range(2):
        made = await usage.reserve(organization, tokens=60, limits={"tokens": 100}, reservation_id="job-1")
    assert await _tokens(usage, organization) == (0, 60)
    elsewhere = bound_usage(store, engine).reservation(organization, "job-1", made.period)
    assert await elsewhere.settle(tokens=10)
    assert not await made.settle(tokens=10)
    assert await _tokens(usage, organization) == (10, 0)
    again = await usage.reserve(organization, tokens=60, limits={"tokens": 100}, reservation_id="job-1")
    assert not await again.settle(tokens=10)
    assert await _tokens(usage, organization) == (10, 0)


async def test_recording_with_an_idempotency_key_counts_once(usage: BoundUsage, organization: str) -> None:
    """A repeated record with the same key changes nothing."""
    assert await usage.record(organization, tokens=5, idempotency_key="call-1")
    assert not await usage.record(organization, tokens=5, idempotency_key="call-1")
    assert await _tokens(usage, organization) == (5, 0)


async def test_idempotency_keys_belong_to_one_organization(usage: BoundUsage, organization: str) -> None:
    """Keys of one organization do not affect another."""
    both = [organization, f"{organization}-other", f"{organization}-third"]
    for each in both:
        assert await usage.record(each, tokens=5, idempotency_key="call-1")
        reserved = await usage.reserve(each, tokens=60, limits={"tokens": 100}, reservation_id="job-1")
        assert await reserved.settle(tokens=10)
        assert await _tokens(usage, each) == (15, 0)


async def test_no_idempotency_key_collides_with_another_organization(
    usage: BoundUsage, organization: str
) -> None:
    """A key with colons does not collide with an organization whose name has colons."""
    same_shard = next(
        name
        for name in (f"{organization}:{number}" for number in range(1000))
        if usage.counters.declared.shards.of(name) == usage.counters.declared.shards.of(organization)
    )
    number = same_shard.rpartition(":")[2]
    assert await usage.record(organization, tokens=1, idempotency_key=f"{number}:call-1")
    assert await usage.record(same_shard, tokens=5, idempotency_key="call-1")
    assert not await usage.record(same_shard, tokens=5, idempotency_key="call-1")
    reserved = await usage.reserve(same_shard, tokens=9, limits={"tokens": 100}, reservation_id="job-1")
    assert await reserved.settle(tokens=7)
    assert await _tokens(usage, same_shard) == (12, 0)


@pytest.mark.parametrize("once", ["settled-job-1", "settled:job-1", ":settled:job-1", ":job-1", ""])
async def test_no_idempotency_key_collides_with_a_settlement(
    usage: BoundUsage, organization: str, once: str
) -> None:
    """Whatever key a record uses, a reservation can be settled, and counts."""
    reserved = await usage.reserve(organization, tokens=9, limits={"tokens": 100}, reservation_id="job-1")
    for each in (once, f":settled:{organization}:job-1", f"{organization}:job-1"):
        assert await usage.record(organization, tokens=1, idempotency_key=each)
    assert await reserved.settle(tokens=7)
    assert not await reserved.settle(tokens=7)
    assert await _tokens(usage, organization) == (10, 0)


@pytest.mark.parametrize("wrong", ["=tokens", "", "a b", "é"])
async def test_an_invalid_reservation_id_is_refused(usage: BoundUsage, organization: str, wrong: str) -> None:
    """An id that could be confused with a sum is refused, even for ending a reservation."""
    made = await usage.reserve(organization, tokens=60, limits={"tokens": 100})
    with pytest.raises(InvalidValue, match="an id in ASCII"):
        usage.reservation(organization, wrong, made.period)
    assert await _tokens(usage, organization) == (0, 60)


async def test_the_period_is_by_the_servers_clock(
    usage: BoundUsage, engine: AsyncEngine, organization: str
) -> None:
    """A process whose clock is months off counts for the server's month, and corrects its clock."""
    usage._clock._offset = -100 * 86_400
    calendar = USAGE.calendar
    usage._clock._periods[calendar] = period_at(0, calendar)
    await usage.record(organization, tokens=1)
    assert (await usage.totals(organization)).period == _this_month()
    usage._clock.synchronize(0)
    assert (await usage.totals(organization)).used["tokens"] == 1
    usage._clock.synchronize(0)
    assert (await usage.reserve(organization, tokens=1, limits={"tokens": 9})).period == _this_month()


async def test_a_past_period_can_be_read(usage: BoundUsage, engine: AsyncEngine, organization: str) -> None:
    """The totals of a past period come from SQL."""
    async with engine.begin() as connection:
        row = {"organization_id": organization, "period": "2020-01", **dict.fromkeys(MEASURES, 4)}
        await connection.execute(sa.insert(RECORDS).values(row))
    assert (await usage.totals(organization, period="2020-01")).used == dict.fromkeys(MEASURES, 4)


async def test_the_backlog_has_a_limit(store: Store, engine: AsyncEngine) -> None:
    """While SQL is down for too long, new rows are refused and pending ones can be added to."""
    daily_table = CounterTable(engine, DAYS, DAILY.counters)
    usage = with_resources(store, {DAILY: daily_table})[DAILY]
    await usage.record("a", calls=1)
    await usage.record("b", calls=1)
    with pytest.raises(BacklogFull):
        await usage.record("c", calls=1)
    await usage.record("a", calls=1)
    assert (await usage.totals("a")).used == {"calls": 2, "errors": 0}
    assert (await usage.totals("c")).used == {"calls": 0, "errors": 0}


async def test_the_last_room_of_the_backlog_is_used(store: Store, engine: AsyncEngine) -> None:
    """A record of a pending and a new counter needs room for one, and that may be the last."""
    usage = with_resources(store, {DAILY: CounterTable(engine, DAYS, DAILY.counters)})[DAILY]
    await usage.record("a", calls=1)
    await usage.record("a", calls=1, errors=1)
    with pytest.raises(BacklogFull):
        await usage.record("b", calls=1)


async def test_a_total_beyond_2_53_is_refused(usage: BoundUsage, organization: str) -> None:
    """Amounts stay exact: a sum above 2**53 is refused, and nothing of the record is counted."""
    await usage.record(organization, tokens=2**53 - 1)
    with pytest.raises(Exception, match="exceed 2"):
        await usage.record(organization, presentations=1, tokens=1)
    assert (await usage.totals(organization)).used["presentations"] == 0


async def test_a_flushed_total_counts_towards_2_53(usage: BoundUsage, organization: str) -> None:
    """What is in SQL already is part of the live total, so nothing more than fits is added to it."""
    await usage.record(organization, tokens=2**53 - 2)
    assert (await usage.totals(organization)).used["tokens"] == 2**53 - 2
    await until(lambda: _flushed(usage))
    await usage.record(organization, tokens=1)
    with pytest.raises(Exception, match="exceed 2"):
        await usage.record(organization, tokens=1)
    assert (await usage.totals(organization)).used["tokens"] == 2**53 - 1


async def test_wrong_amounts_are_refused(usage: BoundUsage, organization: str) -> None:
    """Only declared measures, whole numbers, and limits for all that is reserved."""
    reserve: Any = usage.reserve
    record: Any = usage.record
    with pytest.raises(WrongFields):
        await record(organization, unknown=1)
    with pytest.raises(WrongFields):
        await usage.record(organization)
    with pytest.raises(InvalidValue):
        await record(organization, tokens=1.5)
    with pytest.raises(InvalidValue, match="a limit"):
        await reserve(organization, tokens=1, limits={})
    with pytest.raises(InvalidValue, match="negative"):
        await reserve(organization, tokens=-1, limits={"tokens": 1})
    with pytest.raises(InvalidValue, match="an id"):
        await reserve(organization, tokens=1, limits={"tokens": 1}, reservation_id="=x")


def test_declarations_that_cannot_work_are_refused() -> None:
    """Periods and measures are checked when declared."""
    declare: Any = Usage
    for wrong in ({"period": "year"}, {"measures": ["idempotency_key"]}, {"measures": ["not a name"]}):
        with pytest.raises(InvalidDeclaration):
            declare(Catalogue("wrong"), **{"measures": ["tokens"], "purpose": "p", **wrong})


async def test_a_store_without_the_catalogue_is_refused(server: Valkey) -> None:
    """A usage needs a store that declares its keys."""
    async with keyspace.connect(server.url, Catalogue("other")) as store:
        with pytest.raises(UndeclaredKeyspace):
            store[USAGE]


def test_the_defaults_are_15_minutes_and_90_days() -> None:
    """The defaults are those of the specification, and all keys are of role queue."""
    assert USAGE.counters.shards.flush_every == timedelta(minutes=15)
    assert USAGE.totals.lifetime.milliseconds == 90 * 86_400_000
    assert {space.role for space in CATALOGUE} == {"queue"}
    assert USAGE.totals.key(organization_id="acme", period="2026-11", shard=2) == "usage:acme:2026-11:{2}"


@pytest.mark.parametrize(
    ("amount", "expected"),
    [("0.00042", 420), (Decimal("1.5"), 1_500_000), (0.1, 100_000), (3, 3_000_000), ("-2", -2_000_000)],
)
def test_money_is_counted_in_millionths(amount: Any, expected: int) -> None:
    """An amount becomes a whole number of millionths, and is read back exactly."""
    assert micros(amount) == expected
    assert money(expected) == Decimal(str(amount))


@pytest.mark.parametrize("amount", ["a lot", "nan", float("inf"), None])
def test_an_invalid_amount_of_money_is_refused(amount: Any) -> None:
    """Text, infinity and None are no amounts."""
    with pytest.raises(InvalidValue, match="amount of money"):
        micros(amount)


async def test_callers_that_miss_the_totals_share_a_read_of_sql(
    store: Store, engine: AsyncEngine, key: str
) -> None:
    """After a flush a thousand requests of one organization do not queue for the connections of the pool."""
    statements: list[str] = []
    sa.event.listen(engine.sync_engine, "before_cursor_execute", lambda *words: statements.append(words[2]))
    usage, limits = bound_usage(store, engine), {"tokens": 1000}
    await asyncio.gather(*(usage.reserve(key, tokens=1, limits=limits) for _ in range(1000)))
    assert (await usage.totals(key)).reserved["tokens"] == 1000
    assert 0 < sum(RECORDS.name in each for each in statements) < 10
