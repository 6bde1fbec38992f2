"""Pydantic models, dataclasses, attrs classes and TypedDicts as values and records, beside Structs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import (
    Catalogue,
    Store,
    choose_codec,
    connect,
    field_value,
    fixed,
    record_fields,
    replaced,
)
from ephemera.keyspace._record_codec import record_codec
from tests.keyspace.record_flavours import FLAVOURS, ModelUser, make, value_of

CATALOGUE = Catalogue("value-types")
HOUR = fixed(hours=1)
HASHES = {
    name: CATALOGUE.hash(f"vt_hash_{name}:{{id}}", each, lifetime=HOUR, purpose="x")
    for name, each in FLAVOURS.items()
}
VALUES = {
    (name, codec): CATALOGUE.value(f"vt_{codec}_{name}:{{id}}", each, codec=codec, lifetime=HOUR, purpose="x")
    for name, each in FLAVOURS.items()
    for codec in ("json", "msgpack")
}
MAPPINGS = {
    name: CATALOGUE.mapping(f"vt_map_{name}:{{id}}", each, lifetime=HOUR, purpose="x")
    for name, each in FLAVOURS.items()
}
STREAMS = {
    name: CATALOGUE.stream(f"vt_stream_{name}:{{id}}", each, lifetime=HOUR, purpose="x")
    for name, each in FLAVOURS.items()
}
flavours = pytest.mark.parametrize("flavour", FLAVOURS)


@pytest.fixture
async def users(url: str) -> AsyncIterator[Store]:
    """A store of users, declared in every way."""
    async with connect(url, CATALOGUE) as opened:
        yield opened


@flavours
async def test_every_kind_returns_what_was_put(users: Store, flavour: str, key: str) -> None:
    """A record comes back equal, as a hash, as a value in either codec, in a mapping and in a stream."""
    user = make(flavour)
    await users[HASHES[flavour]].put(user, id=key)
    assert await users[HASHES[flavour]].get(id=key) == user
    for codec in ("json", "msgpack"):
        values: Any = users[VALUES[flavour, codec]]
        await values.put(user, id=key)
        assert await values.get(id=key) == user
    await users[MAPPINGS[flavour]].set({"one": user}, id=key)
    assert await users[MAPPINGS[flavour]].get_all(id=key) == {"one": user}
    await users[STREAMS[flavour]].append(user, id=key)
    assert [entry for _, entry in await users[STREAMS[flavour]].range(id=key)] == [user]


@flavours
async def test_a_hash_is_readable_and_is_changed_in_part(users: Store, flavour: str, key: str) -> None:
    """Text and numbers are stored as they are, under field names; `update` changes the fields it names."""
    hashes = users[HASHES[flavour]]
    await hashes.put(make(flavour), id=key)
    stored = await users.call("HGETALL", hashes.key(id=key))
    assert stored[b"user_id"] == b"ann"
    assert stored[b"age"] == b"30"
    assert stored[b"_v"] == b"1"
    assert stored[b"tags"] == b'["a","b"]'
    assert await hashes.update({"age": 31, "admin": True}, id=key)
    changed = await hashes.get(id=key)
    assert (value_of(changed, "age"), value_of(changed, "admin")) == (31, True)
    assert value_of(changed, "tags") == ["a", "b"]
    for wrong in ({"age": -1}, {"age": "old"}, {"unknown": 1}, {}):
        with pytest.raises(InvalidValue):
            await hashes.update(wrong, id=key)
    assert await hashes.get(id=key) == changed


@flavours
async def test_records_evolve(users: Store, flavour: str, key: str) -> None:
    """Unknown fields are ignored and missing ones take their defaults; a missing required field is a miss."""
    hashes, values = users[HASHES[flavour]], users[VALUES[flavour, "json"]]
    await hashes.put(make(flavour), id=key)
    await users.call("HSET", hashes.key(id=key), "added", "1")
    await users.call("HDEL", hashes.key(id=key), "tags")
    found = await hashes.get(id=key)
    assert value_of(found, "user_id") == "ann"
    if flavour != "typeddict":
        assert value_of(found, "tags") == []
    await users.call("HDEL", hashes.key(id=key), "age")
    assert await hashes.get(id=key) is None
    fields = {"user_id": "ann", "id": str(UUID(int=7)), "age": 30, "seen": "2026-11-18T09:30:00Z"}
    await users.call("SET", values.key(id=key), msgspec.json.encode(["1", {**fields, "added": {}}]))
    assert value_of(await values.get(id=key), "age") == 30
    await users.call("SET", values.key(id=key), msgspec.json.encode(["1", {**fields, "seen": "yesterday"}]))
    assert await values.get(id=key) is None
    assert values.stats.undecodable == 1


@flavours
def test_what_could_not_be_read_back_is_refused(flavour: str) -> None:
    """A value beyond its limits, an infinity that JSON would make None, and another type are not written."""
    codecs: list[Any] = [choose_codec("x:{id}", FLAVOURS[flavour]), record_codec("x:{id}", FLAVOURS[flavour])]
    infinite = make(flavour, score=float("inf"))
    wrong = make(flavour)
    if flavour == "attrs":
        object.__setattr__(wrong, "age", -1)
    elif flavour == "typeddict":
        wrong["age"] = -1
    else:
        wrong.age = -1
    for codec in codecs:
        for refused in (infinite, wrong, "ann", 7, {"user_id": "ann"}):
            with pytest.raises(InvalidValue):
                codec.encode(refused)


@flavours
@given(
    junk=st.binary(max_size=60) | st.sampled_from([b"[" * 100_000, b'["1",' + b"[" * 100_000, b'["1",null]'])
)
def test_no_bytes_raise(flavour: str, junk: bytes) -> None:
    """Whatever a server holds is a value or a miss, never an exception."""
    assert choose_codec("x:{id}", FLAVOURS[flavour]).decode(junk) is None
    codec = record_codec("x:{id}", FLAVOURS[flavour])
    user = codec.encode(make(flavour))
    stored = dict(zip(user[::2], user[1::2], strict=True))
    for name in stored:
        codec.decode({**stored, name: junk})


def test_a_field_cannot_smuggle_another() -> None:
    """The JSON of one stored field stays that field's, whatever it holds."""
    codec = record_codec("x:{id}", ModelUser)
    flat = codec.encode(make("pydantic"))
    stored = dict(zip(flat[::2], flat[1::2], strict=True))
    assert codec.decode({**stored, b"tags": b'[],"admin":true'}) is None


class Joined(pydantic.BaseModel):
    """An event, recognized by its `kind`."""

    kind: Literal["joined"] = "joined"
    user_id: str


class Left(pydantic.BaseModel):
    """Another one."""

    kind: Literal["left"] = "left"
    user_id: str


class Dot(pydantic.BaseModel):
    """Nothing tells it from a `Spot`."""

    at: int


class Spot(pydantic.BaseModel):
    """Nothing tells it from a `Dot`."""

    at: int


class Holder(msgspec.Struct):
    """A Struct with models in it."""

    users: list[Joined]
    last: Joined | None = None


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (Joined | Left, Left(user_id="ann")),
        (Annotated[Joined | Left, pydantic.Field(discriminator="kind")], Joined(user_id="ann")),
        (list[Joined], [Joined(user_id="ann")]),
        (dict[str, Joined | Left], {"a": Left(user_id="ann")}),
        (Holder, Holder([Joined(user_id="ann")], Joined(user_id="bob"))),
    ],
)
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_models_inside_other_types(value_type: Any, value: Any, codec: Any) -> None:
    """Unions, collections and Structs of models are read back as they were."""
    chosen = choose_codec("x:{id}", value_type, codec)
    assert chosen.decode(chosen.encode(value)) == value
    assert chosen.decode(b"[]") is None


def test_models_that_nothing_distinguishes_are_refused_on_write() -> None:
    """A value that would come back as another model of its union is not written."""
    codec = choose_codec("x:{id}", Dot | Spot)
    assert codec.decode(codec.encode(Dot(at=1))) == Dot(at=1)
    with pytest.raises(InvalidValue):
        codec.encode(Spot(at=1))


def test_types_that_cannot_be_decoded_are_refused() -> None:
    """A union of a model and a Struct, an optional model and a custom class fail when declared."""
    for refused in (Joined | Holder, Joined | None, Joined | Left | None, object, list[object]):
        with pytest.raises(InvalidDeclaration):
            choose_codec("x:{id}", refused)


def test_a_model_validated_as_a_whole_is_not_changed_in_part() -> None:
    """Where a validator needs all fields, a partial change is refused, not stored unchecked."""

    class Range(pydantic.BaseModel):
        low: int
        high: int

        @pydantic.model_validator(mode="after")
        def ordered(self) -> Range:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    codec = record_codec("x:{id}", Range)
    assert codec.encode(Range(low=1, high=2))
    with pytest.raises(InvalidValue):
        codec.encode_some({"low": 9})


def test_a_frozen_model_is_changed_in_part() -> None:
    """What is frozen is the object of a program, not the stored record."""

    class Session(pydantic.BaseModel, frozen=True):
        user: str
        age: int = pydantic.Field(ge=0)

    codec = record_codec("x:{id}", Session)
    assert codec.encode_some({"age": 31}) == [b"age", b"31"]
    with pytest.raises(InvalidValue):
        codec.encode_some({"age": -1})


@flavours
def test_a_record_is_replaced(flavour: str) -> None:
    """A copy with some fields changed, of a frozen record too; the original stays as it is."""
    user = make(flavour)
    older = replaced(user, {"age": 31})
    assert (field_value(older, "age"), field_value(user, "age")) == (31, 30)
    assert older == make(flavour, age=31)
    assert [field.name for field in record_fields("x", FLAVOURS[flavour]) if field.required] == [
        "user_id", "id", "age", "seen",
    ]  # fmt: skip


def test_what_a_hash_would_lose_is_refused() -> None:
    """Undeclared fields of a model that allows them, and of a dict, are not dropped silently."""

    class Open(pydantic.BaseModel, extra="allow"):
        name: str

    opened: Any = Open
    with pytest.raises(InvalidValue):
        record_codec("x:{id}", Open).encode(opened(name="ann", more=1))
    codec = choose_codec("x:{id}", Open)
    assert codec.decode(codec.encode(opened(name="ann", more=1))) == opened(name="ann", more=1)
    with pytest.raises(InvalidValue):
        record_codec("x:{id}", FLAVOURS["typeddict"]).encode({**make("typeddict"), "more": 1})


def test_other_types_of_pydantic() -> None:
    """A root model is not a record; a pydantic dataclass is refused, since its validators would not run."""

    class Tags(pydantic.RootModel[list[str]]):
        pass

    @pydantic.dataclasses.dataclass
    class Point:
        x: int

    codec = choose_codec("x:{id}", Tags)
    assert codec.decode(codec.encode(Tags(["a"]))) == Tags(["a"])
    with pytest.raises(InvalidDeclaration, match="no named fields"):
        record_codec("x:{id}", Tags)
    for declare in (choose_codec, record_codec):
        with pytest.raises(InvalidDeclaration, match="use BaseModel"):
            declare("x:{id}", Point)


def test_the_core_does_not_import_pydantic() -> None:
    """A program without models never loads pydantic or attrs."""
    program = (
        "import sys, msgspec, ephemera.keyspace as k\n"
        "class S(msgspec.Struct):\n    a: int\n"
        "c = k.Catalogue('x')\n"
        "c.hash('x:{id}', S, lifetime=k.fixed(hours=1), purpose='x')\n"
        "c.value('y:{id}', list[S], lifetime=k.fixed(hours=1), purpose='x')\n"
        "print([name for name in ('pydantic', 'attr', 'attrs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
