from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import RecordCodec


class Session(msgspec.Struct):
    user: str
    count: int
    admin: bool
    when: datetime
    roles: list[str]
    token: bytes = b""
    plan: str | None = None


SESSION = Session("ann: é", 3, True, datetime(2024, 5, 1, tzinfo=UTC), ["a"], b"\xff")
CODEC = RecordCodec("session:{sid}", Session)


def _stored(record: Any, codec: RecordCodec[Any] = CODEC) -> dict[bytes, bytes]:
    flat = codec.encode(record)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_fields_are_readable() -> None:
    """Text is itself, numbers are decimal, True is 1, the rest is JSON, and `_v` is the layout."""
    assert _stored(SESSION) == {
        b"user": "ann: é".encode(),
        b"count": b"3",
        b"admin": b"1",
        b"when": b'"2024-05-01T00:00:00Z"',
        b"roles": b'["a"]',
        b"token": b"\xff",
        b"plan": b"null",
        b"_v": b"1",
    }


def test_a_record_round_trips() -> None:
    """A record is decoded as it was encoded, and unknown fields are ignored."""
    assert CODEC.decode(_stored(SESSION)) == SESSION
    assert CODEC.decode({**_stored(SESSION), b"_fence": b"7"}) == SESSION


def test_missing_fields_take_their_defaults() -> None:
    """A field with a default may be missing; a missing required one is a miss."""
    stored = _stored(SESSION)
    del stored[b"plan"], stored[b"token"]
    assert CODEC.decode(stored) == Session("ann: é", 3, True, SESSION.when, ["a"])
    del stored[b"user"]
    assert CODEC.decode(stored) is None


@pytest.mark.parametrize(
    "damage",
    [{b"_v": b"other1"}, {b"count": b"many"}, {b"user": b"\xff"}, {b"when": b"{}"}, {b"admin": b"yes"}],
)
def test_damaged_records_are_misses(damage: dict[bytes, bytes]) -> None:
    """Another layout or an undecodable field is a miss, without an exception."""
    assert CODEC.decode({**_stored(SESSION), **damage}) is None


def test_hashes_of_other_programs_are_misses() -> None:
    """A hash without a layout was not written by this codec."""
    stored = _stored(SESSION)
    del stored[b"_v"]
    assert CODEC.decode(stored) is None
    assert CODEC.decode({}) is None


@pytest.mark.parametrize(
    "absent",
    [(), (b"plan", b"token"), (b"user",), (b"_v",), (b"plan", b"_v"), CODEC.stored_names],
)
@pytest.mark.parametrize("damage", [{}, {b"_v": b"other1"}, {b"count": b"many"}])
def test_values_are_decoded_as_the_hash(absent: tuple[bytes, ...], damage: dict[bytes, bytes]) -> None:
    """The values of the named fields, absent ones among them, give what the whole hash gives."""
    stored = {name: value for name, value in {**_stored(SESSION), **damage}.items() if name not in absent}
    values = [stored.get(name) for name in CODEC.stored_names]
    assert CODEC.decode_values(values) == CODEC.decode(stored)


def test_single_fields_can_be_written() -> None:
    """Single fields are encoded as in the whole record, by their names in the Struct."""
    codec = RecordCodec("a:{id}", msgspec.defstruct("A", [("last_seen", int), ("x", str)], rename="camel"))
    assert codec.encode_some({"last_seen": 5}) == [b"lastSeen", b"5"]


@pytest.mark.parametrize("changes", [{}, {"nope": 1}, {"count": "3"}, {"user": None}])
def test_wrong_changes_are_refused(changes: dict[str, Any]) -> None:
    """No change, an unknown field or one of another type fails with the pattern's name."""
    with pytest.raises(InvalidValue, match=r"'session:\{sid\}' holds Session"):
        CODEC.encode_some(changes)


_MAKE_SESSION: Any = Session


@pytest.mark.parametrize("record", [None, {"user": "x"}, _MAKE_SESSION("x", "3", True, SESSION.when, [])])
def test_wrong_records_are_refused(record: Any) -> None:
    """Another Struct, or one with a field of another type, is refused."""
    with pytest.raises(InvalidValue, match=r"'session:\{sid\}' holds Session"):
        CODEC.encode(record)


@pytest.mark.parametrize(
    "options", [{}, {"kw_only": True}, {"frozen": True}, {"array_like": True}, {"tag": "t"}]
)
def test_every_kind_of_struct_works(options: dict[str, Any]) -> None:
    """Keyword-only, frozen, positional and tagged Structs are decoded, with one field or several."""
    for fields in ([("a", int)], [("a", int), ("b", str)]):
        struct = msgspec.defstruct("T", fields, **options)
        codec = RecordCodec("t:{id}", struct)
        record = struct(**{"a": 1, "b": "x"} if len(fields) == 2 else {"a": 1})
        assert codec.decode(_stored(record, codec)) == record


@pytest.mark.parametrize(
    "struct", [dict, str, list[int], msgspec.defstruct("A", []), msgspec.defstruct("A", ["_v"])]
)
def test_types_without_fields_are_refused(struct: Any) -> None:
    """A hash holds a Struct with fields, none of which has a reserved name."""
    with pytest.raises(InvalidDeclaration, match=r"^'a:\{id\}': "):
        RecordCodec("a:{id}", struct)
