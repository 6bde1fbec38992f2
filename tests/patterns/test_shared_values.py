"""Callers of a cache cannot change each other's values: they are copied, or frozen, by choice."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from ephemera import Cache, Catalogue, LocalCache, Store, connect, embedded
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import mutable_part
from ephemera.patterns.cache import cache_engine

MINUTE = timedelta(minutes=1)
CATALOGUE = Catalogue("shared-values")


class Basket(msgspec.Struct):
    """A value that callers can change, even deep inside of it."""

    items: list[str]
    notes: dict[str, list[int]] = {}


class Price(msgspec.Struct, frozen=True):
    """An immutable value."""

    amount: int
    parts: tuple[str, ...] = ()


COPIED = Cache(CATALOGUE, "sv_copied:{id}", Basket, fresh=MINUTE, local=LocalCache(), purpose="x")
SHARED = Cache(
    CATALOGUE, "sv_shared:{id}", Basket, fresh=MINUTE, local=LocalCache(values="shared"), purpose="x"
)
FROZEN = Cache(
    CATALOGUE, "sv_frozen:{id}", Price, fresh=MINUTE, local=LocalCache(values="frozen"), purpose="x"
)
PLAIN = Cache(CATALOGUE, "sv_plain:{id}", Basket, fresh=MINUTE, purpose="x")


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with these caches."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


async def load_basket(**_: Any) -> Basket:
    """A new basket each time."""
    return Basket(["pear"], {"ann": [1]})


async def test_local_values_are_copied(store: Store, key: str) -> None:
    """What a caller does to a value is seen by no later caller, on the first read and on local hits."""
    for _ in range(4):
        basket = await store[COPIED].get_or_load(load_basket, id=key)
        assert basket == Basket(["pear"], {"ann": [1]})
        basket.items.append("fig")
        basket.notes["ann"].append(2)
    again = await store[COPIED].get(id=key)
    assert again == Basket(["pear"], {"ann": [1]})
    local: Any = cache_engine(store[COPIED]).entries.local
    assert len(local) == 1


async def test_values_of_one_load_are_copied(store: Store, key: str) -> None:
    """Callers that share a load get a value each, with a local cache and without one."""
    for cache in (COPIED, PLAIN):
        began = asyncio.Event()

        async def load(began: asyncio.Event = began, **_: Any) -> Basket:
            began.set()
            await asyncio.sleep(0)
            return Basket(["pear"])

        async def caller(cache: Cache[Basket] = cache) -> Basket:
            basket = await store[cache].get_or_load(load, id=f"{key}-one-load")
            seen = Basket(list(basket.items))
            basket.items.append("fig")
            return seen

        assert await asyncio.gather(*(caller() for _ in range(5))) == [Basket(["pear"])] * 5


async def test_offline_values_are_copied() -> None:
    """A value that was loaded while the server is down is kept in the process, and copied, too."""
    with embedded.valkey() as gone:
        url = gone.url
    async with connect(url, CATALOGUE, required=False) as store:
        for _ in range(3):
            basket = await store[COPIED].get_or_load(load_basket, id="offline")
            assert basket.items == ["pear"]
            basket.items.append("fig")


async def test_shared_and_frozen_values_are_the_same_object(store: Store, key: str) -> None:
    """Local hits of `shared` and `frozen` caches return one object, without work."""

    async def load_price(**_: Any) -> Price:
        return Price(5)

    for cache, load in ((SHARED, load_basket), (FROZEN, load_price)):
        bound: Any = store[cache]
        await bound.get_or_load(load, id=key)
        await bound.get_or_load(load, id=key)
        assert await bound.get(id=key) is await bound.get(id=key)


def test_frozen_needs_an_immutable_type() -> None:
    """The error names the part that could be changed, and what to do; an unknown choice is refused."""
    for refused, part in ((Basket, "Basket"), (list[int], "list"), (dict[str, Price], "dict")):
        with pytest.raises(InvalidDeclaration, match=f"{part} can be changed in place"):
            Cache(
                Catalogue("x"),
                "x:{id}",
                refused,
                fresh=MINUTE,
                local=LocalCache(values="frozen"),
                purpose="x",
            )
    wrong: Any = "mutable"
    with pytest.raises(InvalidDeclaration, match="'copied', 'frozen' or 'shared'"):
        LocalCache(values=wrong)


@dataclasses.dataclass(frozen=True)
class Point:
    """An immutable dataclass."""

    x: int


@attrs.frozen
class Size:
    """An immutable attrs class."""

    x: int


@attrs.define
class Loose:
    """A mutable attrs class."""

    x: int


class Frozen(pydantic.BaseModel, frozen=True):
    """An immutable model."""

    x: int
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class Leaky(pydantic.BaseModel, frozen=True):
    """A frozen model with a list in it."""

    x: list[int]


class Free(pydantic.BaseModel):
    """A mutable model."""

    x: int


class Row(TypedDict):
    """A dict."""

    x: int


class Pair(NamedTuple):
    """A tuple."""

    one: int
    other: str


@dataclasses.dataclass(frozen=True)
class Holds:
    """A frozen dataclass with a mutable part."""

    x: Loose


@pytest.mark.parametrize(
    "immutable",
    [str, bytes, int, UUID, datetime, Price, Point, Size, Frozen, Pair, tuple[int, ...], frozenset[str],
     Price | int, Literal["a"], tuple[Point, Size]],
)  # fmt: skip
def test_types_that_need_no_copy(immutable: Any) -> None:
    """Scalars, tuples, and frozen classes of such parts cannot be changed in place."""
    assert mutable_part(immutable) is None


@pytest.mark.parametrize(
    "mutable",
    [Basket, Loose, Leaky, Free, Row, Holds, list[int], dict[str, int], set[int], tuple[list[int], int], Any],
)
def test_types_that_are_copied(mutable: Any) -> None:
    """One mutable part anywhere makes a type mutable."""
    assert mutable_part(mutable) is not None
