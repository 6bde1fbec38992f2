"""Entitlements: read through a loader, dropped at once, fenced, and bounded when Redis is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
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
    CATALOGUE, "plan_limits:{organization_id}", PlanLimits, lifetime=fixed(seconds=300), most_loads=3
)
FEATURE = Entitlements(
    CATALOGUE, "gl:entitlements:{plan_id}:{feature}", bool, lifetime=fixed(seconds=60), kind="value"
)
NAME = Entitlements(CATALOGUE, "plan_name:{x}", str, lifetime=fixed(seconds=60), kind="value")
_SOME_BYTES: Any = Annotated[bytes, msgspec.Meta(min_length=1)]
BADGE = Entitlements[bytes](CATALOGUE, "badge:{x}", _SOME_BYTES, lifetime=fixed(seconds=60), kind="value")
SLOW = Entitlements(CATALOGUE, "slow:{x}", PlanLimits, lifetime=fixed(seconds=60), longest_load=50)


class Table:
    """SQL as a loader sees it: rows that change, a gate that holds a load up, and a count of loads."""

    def __init__(self) -> None:
        self.rows: dict[str, PlanLimits] = {}
        self.loads = 0
        self.at_once = 0
        self.most_at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, organization_id: str) -> PlanLimits | None:
        """The row as it is when the load begins, given when the gate is open."""
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
    """The second reader is spared the load, and the copy lives as long as declared."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("team", 50, {"api": True})
    for _ in range(3):
        found = await store[LIMITS].get(table.load, organization_id=organization)
        assert found == table.rows[organization]
    assert table.loads == 1
    assert 240_000 < await store.call("PTTL", f"plan_limits:{organization}") <= 300_000
    stats = store.stats[LIMITS.space]
    assert (stats.hits, stats.misses, stats.writes) == (2, 1, 1)


async def test_a_flag_that_is_off_is_cached_too(store: Store) -> None:
    """False is a value like any other, stored as a person would type it."""
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
async def test_what_is_being_loaded_is_a_miss_to_everybody(
    store: Store, declared: Entitlements[Any], value: object
) -> None:
    """Whoever reads the key during a load sees nothing, also where values are any text; then the value."""
    seen = []

    async def load(**fields: FieldValue) -> object:
        seen.append(await store[declared.space].get(**fields))
        return value

    fields = dict.fromkeys(declared.space.template.fields, new_user())
    for _ in range(2):
        assert await store[declared].get(load, **fields) == value
    assert seen == [None]
    assert await store[declared.space].get(**fields) == value


async def test_a_change_is_seen_at_once(store: Store) -> None:
    """After a drop the next reader has the new row."""
    table, organization = Table(), new_user()
    for plan in ("free", "team", "pro"):
        table.rows[organization] = PlanLimits(plan)
        await store[LIMITS].drop(organization_id=organization)
        found = await store[LIMITS].get(table.load, organization_id=organization)
        assert found == PlanLimits(plan)


async def test_who_asks_after_a_change_does_not_share_an_older_load(store: Store) -> None:
    """A load that began before a drop serves those who asked before it, and nobody who asks after."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("old")
    table.gate.clear()
    before = asyncio.create_task(store[LIMITS].get(table.load, organization_id=organization))
    await eventually(lambda: table.loads == 1)
    table.rows[organization] = PlanLimits("new")
    await store[LIMITS].drop(organization_id=organization)
    after = asyncio.create_task(store[LIMITS].get(table.load, organization_id=organization))
    await eventually(lambda: table.loads == 2)
    table.gate.set()
    assert (await before, await after) == (PlanLimits("old"), PlanLimits("new"))
    assert await store[LIMITS].get(table.load, organization_id=organization) == PlanLimits("new")
    assert table.loads == 2


async def test_who_misses_together_loads_once(store: Store) -> None:
    """A hundred callers of one process are one load, and one who gives up does not end it for the others."""
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


async def test_what_does_not_exist_is_not_cached(store: Store) -> None:
    """None is asked for again, and what comes into being is seen at once."""
    table, organization = Table(), new_user()
    assert await store[LIMITS].get(table.load, organization_id=organization) is None
    table.rows[organization] = PlanLimits("free")
    assert await store[LIMITS].get(table.load, organization_id=organization) == PlanLimits("free")


async def test_a_loaders_error_is_its_callers(store: Store) -> None:
    """A failed load is raised to all who waited for it, and the next caller tries again."""
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


async def test_anybodys_delete_is_a_change(store: Store) -> None:
    """An operator's DEL while a value is being loaded keeps the old value out, too."""
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
    """A fence lives only as long as a load may take; a slower one gives its value to its caller alone."""
    name = new_user()

    async def load(x: str) -> PlanLimits:
        while await store.call("EXISTS", f"slow:{x}"):
            await asyncio.sleep(0.001)
        return PlanLimits("slow")

    assert await store[SLOW].get(load, x=name) == PlanLimits("slow")
    assert await store.call("EXISTS", f"slow:{name}") == 0


async def test_what_is_of_another_shape_is_loaded_again(store: Store) -> None:
    """Leftovers of an older Struct, and of other programs, are replaced."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("team")
    await store.call("HSET", f"plan_limits:{organization}", "_v", "older", "plan", "x")
    for _ in range(2):
        found = await store[LIMITS].get(table.load, organization_id=organization)
        assert found == PlanLimits("team")
    assert table.loads == 1


async def test_a_foreign_type_in_its_place_is_loaded_around(store: Store) -> None:
    """A key of another type is an error of the server, and never one of the request."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("team")
    await store.call("SADD", f"plan_limits:{organization}", "x")
    assert await store[LIMITS].get(table.load, organization_id=organization) == PlanLimits("team")
    assert store.stats[LIMITS.space].errors == 1


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_sql_serves_and_is_not_stormed_when_redis_is_down_or_hung(how: str) -> None:
    """Every reader has an answer; loads are shared and at most three at once; a drop says that it failed."""
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
                await store[LIMITS].drop(organization_id=names[0])
            server.resume()


async def _down(store: Store) -> None:
    """Return once the store knows that its server is away."""
    while store.client("cache").up:
        with suppress(ConnectionFailed):
            await store.call("PING")


async def test_loads_end_with_the_store() -> None:
    """Closing a store ends the loads that are under way; their callers are told."""
    table = Table()
    table.gate.clear()
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            asking = asyncio.create_task(store[LIMITS].get(table.load, organization_id="x"))
            await eventually(lambda: table.loads == 1)
        with pytest.raises(asyncio.CancelledError):
            await asking


@pytest.mark.parametrize(
    "options", [{"lifetime": sliding(seconds=5)}, {"most_loads": 0}, {"longest_load": 0}]
)
def test_what_cannot_work_is_refused_when_declared(options: dict[str, Any]) -> None:
    """A copy that slides would never be as new as declared, and no load could ever run in no room."""
    with pytest.raises(InvalidDeclaration):
        Entitlements(Catalogue("x"), "e:{x}", PlanLimits, **{"lifetime": fixed(seconds=60), **options})
