"""CORE18: one added optional field made everything stored unreadable, in both directions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Store, fixed, sliding
from ephemera.patterns.cache import Cache, LocalCache, Storage
from ephemera.patterns.entitlements import Entitlements
from ephemera.patterns.preferences import Preferences
from ephemera.patterns.sessions import Sessions

HOUR = fixed(hours=1)


class Plan1(msgspec.Struct):
    """What the running version stores."""

    user_id: str = "ann"
    color: str = "red"
    seats: int = 1


class Plan2(msgspec.Struct):
    """What the next version stores: one field more, one less, and one that has become optional."""

    user_id: str = "ann"
    seats: int | None = 1
    regions: list[str] = []


class Version:
    """One version of a service: the same keys, with its own Struct."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.catalogue = catalogue = Catalogue("core18")
        values = ("json", "msgpack", "compressed")
        options: dict[str, dict[str, Any]] = {
            "json": {}, "msgpack": {"codec": "msgpack"},
            "compressed": {"codec": "msgpack", "compress_over": 0},
        }  # fmt: skip
        self.values = {
            name: catalogue.value(
                f"core18:{name}:{{n}}", plan, lifetime=HOUR, purpose="a test", **options[name]
            )
            for name in values
        }
        self.record = catalogue.hash("core18:hash:{n}", plan, lifetime=HOUR, purpose="a test")
        self.mapping = catalogue.mapping("core18:map:{n}", plan, lifetime=HOUR, purpose="a test")
        self.queue = catalogue.list("core18:list:{n}", plan, lifetime=HOUR, purpose="a test")
        self.stream = catalogue.stream("core18:stream:{n}", plan, lifetime=HOUR, purpose="a test")
        self.looks: Preferences[Any] = Preferences(catalogue, "core18:look:{n}", plan)
        self.limits = {
            kind: Entitlements(catalogue, f"core18:limit:{kind}:{{n}}", plan, lifetime=HOUR, kind=kind)
            for kind in ("hash", "value")
        }
        self.sessions = {
            kind: Sessions(
                catalogue, f"core18:session:{kind}:{{session_id}}", plan, user="user_id", kind=kind,
                lifetime=sliding(hours=1), index=f"core18:index:{kind}:{{user_id}}",
            )
            for kind in ("hash", "value")
        }  # fmt: skip
        self.caches = {
            codec: Cache(
                catalogue, f"core18:cache:{codec}:{{n}}", plan, fresh=timedelta(minutes=5), purpose="Plans",
                storage=Storage(codec=codec), local=LocalCache() if codec == "json" else None,
            )
            for codec in ("json", "msgpack")
        }  # fmt: skip


class Deployed(NamedTuple):
    """A version and its connection."""

    version: Version
    store: Store


@pytest.fixture
async def both(server: Valkey) -> AsyncIterator[tuple[Deployed, Deployed]]:
    """Two versions of a service on one server."""
    async with AsyncExitStack() as stack:
        versions = [Version(plan) for plan in (Plan1, Plan2)]
        stores = [await stack.enter_async_context(connect(server.url, each.catalogue)) for each in versions]
        await stores[0].call("FLUSHDB")
        one, two = map(Deployed, versions, stores)
        yield one, two


@pytest.mark.parametrize("turn", [1, -1], ids=["old to new", "new to old"])
async def test_core18_values_of_another_version_are_read(both: tuple[Deployed, Deployed], turn: int) -> None:
    """Unknown fields are ignored and missing ones take their defaults, for every kind of value."""
    writer, reader = both[::turn]
    written, expected = writer.version.plan(seats=5), reader.version.plan(seats=5)
    ours, theirs = writer.store, reader.store
    for name, keyspace in writer.version.values.items():
        await ours[keyspace].put(written, n=1)
        assert await theirs[reader.version.values[name]].get(n=1) == expected
    await ours[writer.version.record].put(written, n=1)
    assert await theirs[reader.version.record].get(n=1) == expected
    await ours[writer.version.mapping].put({"a": written}, n=1)
    assert await theirs[reader.version.mapping].get("a", n=1) == expected
    await ours[writer.version.queue].push(written, n=1)
    assert await theirs[reader.version.queue].pop(n=1) == expected
    await ours[writer.version.stream].append(written, n=1)
    assert [each for _, each in await theirs[reader.version.stream].range(n=1)] == [expected]


@dataclass
class Seats1:
    """The same as a dataclass: the running version."""

    color: str = "red"
    seats: int = 1


@dataclass
class Seats2:
    """The next version."""

    seats: int | None = 1
    regions: list[str] = field(default_factory=list)


class Dataclasses:
    """Every kind that takes dataclasses; hashes, streams and sessions hold Structs only."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.catalogue = catalogue = Catalogue("core18")
        options: dict[str, Any] = {"lifetime": HOUR, "purpose": "a test"}
        self.json = catalogue.value("core18:data:json:{n}", plan, **options)
        self.msgpack = catalogue.value("core18:data:msgpack:{n}", plan, codec="msgpack", **options)
        self.mapping = catalogue.mapping("core18:data:map:{n}", plan, **options)
        self.queue = catalogue.list("core18:data:list:{n}", plan, **options)
        self.cache: Cache[Any] = Cache(
            catalogue, "core18:data:cache:{n}", plan, fresh=timedelta(minutes=5), purpose="Plans"
        )


@pytest.mark.parametrize("turn", [1, -1], ids=["old to new", "new to old"])
async def test_core18_dataclasses_of_another_version_are_read(server: Valkey, turn: int) -> None:
    """They evolve as Structs do, for every kind of value that takes them."""
    writer, reader = [Dataclasses(plan) for plan in (Seats1, Seats2)][::turn]
    written, expected = writer.plan(seats=5), reader.plan(seats=5)

    async def load(n: int) -> Any:
        return writer.plan(seats=n)

    async def never(n: int) -> Any:
        raise AssertionError("loaded again")

    async with connect(server.url, writer.catalogue) as ours, connect(server.url, reader.catalogue) as theirs:
        await ours.call("FLUSHDB")
        for name in ("json", "msgpack"):
            await ours[getattr(writer, name)].put(written, n=1)
            assert await theirs[getattr(reader, name)].get(n=1) == expected
        await ours[writer.mapping].put({"a": written}, n=1)
        assert await theirs[reader.mapping].get("a", n=1) == expected
        await ours[writer.queue].push(written, n=1)
        assert await theirs[reader.queue].pop(n=1) == expected
        assert await ours[writer.cache].get_or_load(load, n=5) == written
        assert await theirs[reader.cache].get_or_load(never, n=5) == expected


@pytest.mark.parametrize("kind", ["set", "sorted_set"])
async def test_core18_members_of_sets_have_no_shape(server: Valkey, kind: str) -> None:
    """Members are compared byte by byte: what has fields is refused, plain ones are read by any version."""
    catalogues = [Catalogue("core18"), Catalogue("core18")]
    for refused in (Plan1, Seats1, tuple[int, str], list[int]):
        with pytest.raises(InvalidDeclaration, match="member of a set"):
            getattr(catalogues[0], kind)("core18:no:{n}", refused, lifetime=HOUR, purpose="a test")
    for member_type, member in ((str, "ann"), (int, 7), (bytes, b"\xff")):
        old, new = (
            getattr(each, kind)(
                f"core18:{kind}:{member_type.__name__}:{{n}}", member_type, lifetime=HOUR, purpose="a test"
            )
            for each in catalogues
        )
        async with connect(server.url, catalogues[0]) as ours, connect(server.url, catalogues[1]) as theirs:
            await ours[old].add(member if kind == "set" else {member: 1.5}, n=1)
            read = theirs[new]
            found = await read.members(n=1) if kind == "set" else dict(await read.range(0, -1, n=1))
            assert found == ({member} if kind == "set" else {member: 1.5})


async def test_core18_changes_keep_the_fields_of_another_version(both: tuple[Deployed, Deployed]) -> None:
    """A partial change by one version leaves what only the other version knows."""
    old, new = both
    await new.store[new.version.record].put(Plan2(regions=["eu"]), n=1)
    assert await old.store[old.version.record].update({"seats": 7}, n=1)
    assert await new.store[new.version.record].get(n=1) == Plan2(seats=7, regions=["eu"])
    await new.store[new.version.looks].merge({"regions": ["eu"]}, n=1)
    assert await old.store[old.version.looks].merge({"seats": 7}, n=1) == Plan1(seats=7)
    assert await new.store[new.version.looks].get(n=1) == Plan2(seats=7, regions=["eu"])


@pytest.mark.parametrize("kind", ["hash", "value"])
@pytest.mark.parametrize("turn", [1, -1], ids=["old to new", "new to old"])
async def test_core18_every_session_survives(both: tuple[Deployed, Deployed], kind: str, turn: int) -> None:
    """A session that one version created is read, changed, rotated and ended by the other."""
    one, two = both[::turn]
    token = await one.store[one.version.sessions[kind]].create(one.version.plan(seats=5))
    sessions = two.store[two.version.sessions[kind]]
    assert await sessions.get(token) == two.version.plan(seats=5)
    assert await sessions.update(token, seats=6)
    fresh = await sessions.rotate(token)
    assert fresh is not None
    assert await one.store[one.version.sessions[kind]].get(fresh) == one.version.plan(seats=6)
    assert await sessions.end_all("ann") == 1


@pytest.mark.parametrize("turn", [1, -1], ids=["old first", "new first"])
async def test_core18_two_versions_share_what_is_cached(both: tuple[Deployed, Deployed], turn: int) -> None:
    """Twenty reads of both versions load once, from caches and from entitlements."""
    loads = 0

    def loader(plan: Any) -> Any:
        async def load(n: int) -> Any:
            nonlocal loads
            loads += 1
            return plan(seats=n)

        return load

    for name in (*both[0].version.caches, *both[0].version.limits):
        loads = 0
        for each in both[::turn] * 10:
            load = loader(each.version.plan)
            if name in each.version.caches:
                found = await each.store[each.version.caches[name]].get_or_load(load, n=5)
            else:
                found = await each.store[each.version.limits[name]].get(load, n=5)
            assert found == each.version.plan(seats=5)
        assert loads == 1, name


async def test_core18_what_does_not_fit_is_a_miss(server: Valkey) -> None:
    """A required field that is missing, or a field of another type, is a miss and never a wrong value."""
    catalogues = [Catalogue("core18"), Catalogue("core18")]
    required = msgspec.defstruct("Required", [("user_id", str), ("regions", list[str])])
    plans: list[Any] = [Plan1, required]
    keyspaces: list[Any] = [
        (
            each.value("core18:json:{n}", plan, lifetime=HOUR, purpose="a test"),
            each.hash("core18:hash:{n}", plan, lifetime=HOUR, purpose="a test"),
        )
        for each, plan in zip(catalogues, plans, strict=True)
    ]
    async with connect(server.url, catalogues[0]) as old, connect(server.url, catalogues[1]) as new:
        for before, after in zip(*keyspaces, strict=True):
            await old[before].put(Plan1(), n=1)
            assert await new[after].get(n=1) is None
