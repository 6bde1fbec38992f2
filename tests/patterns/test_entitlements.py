"""Entitlements: read through a loader, invalidated at once, fenced, and bounded when Redis is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest

from ephemera.embedded import valkey
from ephemera.errors import ConnectionFailed, InvalidDeclaration
from ephemera.keyspace import Catalogue, FieldValue, Store, connect, fixed, sliding
from ephemera.patterns.entitlements import Entitlements
from tests.patterns.session_fixtures import new_user
from tests.wire.conditions import eventually


class PlanLimits(msgspec.Struct):
    plan_name: str
    storage_gb: int = 1
    features: dict[str, bool] = {}


CATALOGUE = Catalogue("plans")
LIMITS = Entitlements(
    CATALOGUE,
    "plan_limits:{organization_id}",
    PlanLimits,
    lifetime=fixed(seconds=300),
    max_concurrent_loads=3,
)
FEATURE = Entitlements(
    CATALOGUE, "gl:entitlements:{plan_id}:{feature}", bool, lifetime=fixed(seconds=60), kind="value"
)
NAME = Entitlements(CATALOGUE, "plan_name:{x}", str, lifetime=fixed(seconds=60), kind="value")
_SOME_BYTES: Any = Annotated[bytes, msgspec.Meta(min_length=1)]
BADGE = Entitlements[bytes](CATALOGUE, "badge:{x}", _SOME_BYTES, lifetime=fixed(seconds=60), kind="value")
SLOW = Entitlements(
    CATALOGUE, "slow:{x}", PlanLimits, lifetime=fixed(seconds=60), max_load_time=timedelta(milliseconds=50)
)


class Table:
    """A fake SQL table: rows that change, a gate that delays a load, and a count of loads."""

    def __init__(self) -> None:
        self.rows: dict[str, PlanLimits] = {}
        self.loads = 0
        self.at_once = 0
        self.most_at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, organization_id: str) -> PlanLimits | None:
        """Return the row as it is when the load begins, once the gate is open."""
        self.loads += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        row = self.rows.get(organization_id)
        await self.gate.wait()
        self.at_once -= 1
        return row


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for entitlements."""
    async with connect(url, CATALOGUE) as opened:
        yield opened


async def test_a_value_is_loaded_once_and_then_read(store: Store) -> None:
    """The second reader does not load, and the cached value has the declared lifetime."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("team", 50, {"api": True})
    for _ in range(3):
        found = await store[LIMITS].get(table.load, organization_id=organization)
        assert found == table.rows[organization]
    assert table.loads == 1
    assert 240_000 < await store.call("PTTL", f"plan_limits:{organization}") <= 300_000
    stats = store.stats[LIMITS.keyspace]
    assert (stats.hits, stats.misses, stats.writes) == (2, 1, 1)


async def test_a_flag_that_is_off_is_cached_too(store: Store) -> None:
    """False is a value like any other."""
    loads = 0

    async def load(plan_id: str, feature: str) -> bool:
        nonlocal loads
        loads += 1
        return feature == "search"

    plan = new_user()
    for _ in range(2):
        assert await store[FEATURE].get(load, plan_id=plan, feature="search") is True
        assert await store[FEATURE].get(load, plan_id=plan, feature="export") is False
    assert loads == 2
    assert await store.call("GET", f"gl:entitlements:{plan}:export") == b"0"


@pytest.mark.parametrize(
    ("declared", "value"),
    [(LIMITS, PlanLimits("pro")), (FEATURE, False), (NAME, "pro"), (BADGE, b"\x89PNG")],
    ids=["hash", "bool", "str", "bytes"],
)
async def test_a_value_being_loaded_reads_as_a_miss(
    store: Store, declared: Entitlements[Any], value: object
) -> None:
    """Other accessors read nothing during a load, even where values are any text; then the value."""
    seen = []

    async def load(**fields: FieldValue) -> object:
        seen.append(await store[declared.keyspace].get(**fields))
        return value

    fields = dict.fromkeys(declared.keyspace.template.fields, new_user())
    for _ in range(2):
        assert await store[declared].get(load, **fields) == value
    assert seen == [None]
    assert await store[declared.keyspace].get(**fields) == value


async def test_a_change_is_seen_at_once(store: Store) -> None:
    """After an invalidation the next reader has the new row."""
    table, organization = Table(), new_user()
    for plan in ("free", "team", "pro"):
        table.rows[organization] = PlanLimits(plan)
        await store[LIMITS].invalidate(organization_id=organization)
        found = await store[LIMITS].get(table.load, organization_id=organization)
        assert found == PlanLimits(plan)


async def test_a_read_after_a_change_does_not_share_an_older_load(store: Store) -> None:
    """A load that began before an invalidation serves only callers from before it."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("old")
    table.gate.clear()
    before = asyncio.create_task(store[LIMITS].get(table.load, organization_id=organization))
    await eventually(lambda: table.loads == 1)
    table.rows[organization] = PlanLimits("new")
    await store[LIMITS].invalidate(organization_id=organization)
    after = asyncio.create_task(store[LIMITS].get(table.load, organization_id=organization))
    await eventually(lambda: table.loads == 2)
    table.gate.set()
    assert (await before, await after) == (PlanLimits("old"), PlanLimits("new"))
    assert await store[LIMITS].get(table.load, organization_id=organization) == PlanLimits("new")
    assert table.loads == 2


async def test_concurrent_misses_load_once(store: Store) -> None:
    """A hundred concurrent callers share one load, and a cancelled one does not end it for the others."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("team")
    table.gate.clear()
    asking = [
        asyncio.create_task(store[LIMITS].get(table.load, organization_id=organization)) for _ in range(100)
    ]
    await eventually(lambda: table.loads == 1)
    asking[0].cancel()
    table.gate.set()
    replies = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(replies[0], asyncio.CancelledError)
    assert replies[1:] == [PlanLimits("team")] * 99
    assert table.loads == 1


async def test_none_is_not_cached(store: Store) -> None:
    """None is loaded again, and a row that is created is seen at once."""
    table, organization = Table(), new_user()
    assert await store[LIMITS].get(table.load, organization_id=organization) is None
    table.rows[organization] = PlanLimits("free")
    assert await store[LIMITS].get(table.load, organization_id=organization) == PlanLimits("free")


async def test_a_loaders_error_is_raised_to_its_callers(store: Store) -> None:
    """A failed load is raised to all waiting callers, and the next caller tries again."""
    organization, attempts = new_user(), 0

    async def load(organization_id: str) -> PlanLimits:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise LookupError(organization_id)
        return PlanLimits("free")

    with pytest.raises(LookupError):
        await store[LIMITS].get(load, organization_id=organization)
    assert await store[LIMITS].get(load, organization_id=organization) == PlanLimits("free")


async def test_any_delete_is_an_invalidation(store: Store) -> None:
    """A DEL while a value is being loaded also prevents storing it."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("old")
    table.gate.clear()
    before = asyncio.create_task(store[LIMITS].get(table.load, organization_id=organization))
    await eventually(lambda: table.loads == 1)
    assert await store.call("DEL", f"plan_limits:{organization}") == 1
    table.gate.set()
    await before
    assert await store.call("EXISTS", f"plan_limits:{organization}") == 0


async def test_a_load_that_takes_too_long_is_not_cached(store: Store) -> None:
    """A fence lives as long as a load may take; the value of a slower load is not stored."""
    name = new_user()

    async def load(x: str) -> PlanLimits:
        while await store.call("EXISTS", f"slow:{x}"):
            await asyncio.sleep(0.001)
        return PlanLimits("slow")

    assert await store[SLOW].get(load, x=name) == PlanLimits("slow")
    assert await store.call("EXISTS", f"slow:{name}") == 0


async def test_a_value_of_another_shape_is_loaded_again(store: Store) -> None:
    """Values of an older Struct or of other programs are replaced."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("team")
    await store.call("HSET", f"plan_limits:{organization}", "_v", "older", "plan", "x")
    for _ in range(2):
        found = await store[LIMITS].get(table.load, organization_id=organization)
        assert found == PlanLimits("team")
    assert table.loads == 1


async def test_a_key_of_another_type_does_not_fail_the_request(store: Store) -> None:
    """A key of another Redis type is loaded around, and counted as an error."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("team")
    await store.call("SADD", f"plan_limits:{organization}", "x")
    assert await store[LIMITS].get(table.load, organization_id=organization) == PlanLimits("team")
    assert store.stats[LIMITS.keyspace].errors == 1


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_sql_serves_with_bounded_loads_in_an_outage(how: str) -> None:
    """Every reader gets a value; loads are shared and at most three run at once; an invalidation raises."""
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            table, names = Table(), [new_user() for _ in range(10)]
            table.rows = {name: PlanLimits(name) for name in names}
            getattr(server, how)()
            await _down(store)
            table.gate.clear()
            asking = [
                asyncio.create_task(store[LIMITS].get(table.load, organization_id=name))
                for name in names * 20
            ]
            await eventually(lambda: table.loads == 3)
            table.gate.set()
            assert await asyncio.gather(*asking) == [PlanLimits(name) for name in names] * 20
            assert (table.loads, table.most_at_once) == (10, 3)
            with pytest.raises(ConnectionFailed):
                await store[LIMITS].invalidate(organization_id=names[0])
            server.resume()


async def _down(store: Store) -> None:
    """Return once the store has noticed that its server is down."""
    while store.client("cache").up:
        with suppress(ConnectionFailed):
            await store.call("PING")


async def test_loads_end_with_the_store() -> None:
    """Closing a store cancels loads in progress; their callers get an error."""
    table = Table()
    table.gate.clear()
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            asking = asyncio.create_task(store[LIMITS].get(table.load, organization_id="x"))
            await eventually(lambda: table.loads == 1)
        with pytest.raises(asyncio.CancelledError):
            await asking


@pytest.mark.parametrize(
    "options",
    [{"lifetime": sliding(seconds=5)}, {"max_concurrent_loads": 0}, {"max_load_time": timedelta(0)}],
)
def test_invalid_declarations_are_refused(options: dict[str, Any]) -> None:
    """A sliding lifetime, no loads at all and no load time are errors."""
    with pytest.raises(InvalidDeclaration):
        Entitlements(Catalogue("x"), "e:{x}", PlanLimits, **{"lifetime": fixed(seconds=60), **options})
