"""Streams whose entries are one value of any type, written by a codec."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import pytest

from ephemera import Catalogue, Keyspace, connect, fixed
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import StreamAccessor
from ephemera.operations.audit import decodability_reader
from ephemera.operations.documentation import describe


class Begun(msgspec.Struct, tag=True):
    """Something has begun."""

    at: int


class Over(msgspec.Struct, tag=True):
    """Something is over."""


Event: TypeAlias = Begun | Over
_EVENT: Any = Event  # `type[V]` accepts no union

CATALOGUE = Catalogue("test-entries")
STREAM: Keyspace[StreamAccessor[Event]] = CATALOGUE.stream(
    "events:{name}",
    _EVENT,
    codec="json",
    max_length=3,
    lifetime=fixed(minutes=1),
    purpose="Events of several types",
)


async def test_entries_of_several_types_round_trip(server: Valkey, key: str) -> None:
    """A union of Structs is stored whole, in one field, and decoded to the same value."""
    async with connect(server.url, CATALOGUE) as store:
        await store[STREAM].append(Begun(1), name=key)
        await store[STREAM].append(Over(), name=key)
        assert [entry for _, entry in await store[STREAM].range(name=key)] == [Begun(1), Over()]


async def test_an_entry_of_another_shape_is_a_miss(server: Valkey, key: str) -> None:
    """An entry with another field, or of another shape, is skipped and counted."""
    async with connect(server.url, CATALOGUE) as store:
        stream = STREAM.key(name=key)
        await store.call("XADD", stream, "*", "other", "field")
        await store.call("XADD", stream, "*", "d", '["1other",{}]')
        assert await store[STREAM].range(name=key) == []
        assert store[STREAM].stats.undecodable == 2
        wrong: Any = "text"
        with pytest.raises(InvalidValue):
            await store[STREAM].append(wrong, name=key)


def test_an_ambiguous_type_is_refused() -> None:
    """Several Structs without tags are ambiguous, and None would look like a miss."""
    wrong: Any
    for wrong in (Begun | None, dict[str, object] | list[int] | None):
        with pytest.raises(InvalidDeclaration):
            Catalogue("wrong").stream(
                "e:{n}",
                wrong,
                codec="json",
                lifetime=fixed(minutes=1),
                purpose="?",
            )


def test_tools_can_decode_such_streams() -> None:
    """The audit can decode them, and the documentation names their types."""
    assert callable(decodability_reader(STREAM))
    (entry,) = [each for each in describe(CATALOGUE) if each.pattern == STREAM.pattern]
    assert "Begun" in entry.holds
