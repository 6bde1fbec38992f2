"""What a type checker knows of a declared space: mypy checks this file, running it hardly matters."""

from __future__ import annotations

from typing import assert_type

import msgspec

from ephemera.keyspace import (
    Catalogue,
    CounterAccessor,
    FlagAccessor,
    HashAccessor,
    Keyspace,
    ListAccessor,
    MappingAccessor,
    SetAccessor,
    SortedSetAccessor,
    Store,
    StreamAccessor,
    ValueAccessor,
    fixed,
)


class Session(msgspec.Struct):
    user: str


catalogue = Catalogue("typing")
HOUR = fixed(hours=1)
HASH = catalogue.hash("hash:{id}", Session, lifetime=HOUR, purpose="x")
VALUE = catalogue.value("value:{id}", list[Session], codec="msgpack", lifetime=HOUR, purpose="x")
COUNTER = catalogue.counter("counter:{id}", lifetime=HOUR, purpose="x")
FLAG = catalogue.flag("flag:{id}", lifetime=HOUR, purpose="x")
SET = catalogue.set("set:{id}", int, lifetime=HOUR, purpose="x")
SORTED = catalogue.sorted_set("sorted:{id}", bytes, lifetime=HOUR, purpose="x")
LIST = catalogue.list("list:{id}", Session, lifetime=HOUR, purpose="x")
STREAM = catalogue.stream("stream:{id}", Session, lifetime=HOUR, purpose="x")
MAPPING = catalogue.mapping("mapping:{id}", float, lifetime=HOUR, purpose="x")
CHANNEL = catalogue.channel("channel:{id}", Session, purpose="x")


def test_a_keyspace_knows_its_accessor() -> None:
    """The declaration decides the type of `store[KEYSPACE]`."""
    assert_type(HASH, Keyspace[HashAccessor[Session]])
    assert_type(VALUE, Keyspace[ValueAccessor[list[Session]]])
    assert_type(COUNTER, Keyspace[CounterAccessor])
    assert_type(FLAG, Keyspace[FlagAccessor])
    assert_type(SET, Keyspace[SetAccessor[int]])
    assert_type(SORTED, Keyspace[SortedSetAccessor[bytes]])
    assert_type(LIST, Keyspace[ListAccessor[Session]])
    assert_type(STREAM, Keyspace[StreamAccessor[Session]])
    assert_type(MAPPING, Keyspace[MappingAccessor[float]])


async def what_reads_return(store: Store) -> None:
    """Each read returns the declared type, or None."""
    assert_type(await store[HASH].get(id="x"), Session | None)
    assert_type(await store[HASH].get_many([{"id": "x"}]), list[Session | None])
    assert_type(await store[VALUE].get(id="x"), list[Session] | None)
    assert_type(await store[COUNTER].add(id="x"), int)
    assert_type(await store[FLAG].is_set(id="x"), bool)
    assert_type(await store[SET].members(id="x"), set[int])
    assert_type(await store[SORTED].highest(3, id="x"), list[tuple[bytes, float]])
    assert_type(await store[LIST].pop(id="x"), Session | None)
    assert_type(await store[STREAM].range(id="x"), list[tuple[str, Session]])
    assert_type(await store[MAPPING].get_all(id="x"), dict[str, float])
    assert_type(store[CHANNEL].decode(b""), Session | None)


async def what_writes_refuse(store: Store) -> None:
    """A value of another type, or a declaration without a lifetime, is an error for the type checker."""
    await store[HASH].put("ann", id="x")  # type: ignore[arg-type]
    await store[SET].add("1", id="x")  # type: ignore[arg-type]
    catalogue.counter("never:{id}", purpose="x")  # type: ignore[call-arg]
    catalogue.counter("never:{id}", purpose="x", lifetime=HOUR, ttl=5)  # type: ignore[call-arg]
