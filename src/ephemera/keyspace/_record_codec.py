"""A record as the fields of a hash or of a stream's entry, readable with a command line.

Each field is stored as `_scalars` describes: text as it is, numbers in decimal, everything else as JSON. The
field `_v` holds the version of this layout, and is there in every whole record. A hash without it is a miss,
and so is one that lacks a required field or holds one that cannot be decoded. A missing field takes its
default, and unknown fields are ignored, so two versions of a type read each other's records. Names that
start with `_` are reserved for patterns (a fencing token, an epoch).

A record that is not a Struct (`_record_types`) takes a slower path: it is turned into JSON-compatible values,
and its fields are validated together when it is read, so that a model's own validators run.

`encode_some` encodes single fields, so that one HSET can change one of them; `_v` stays as it is.

A stream's entry that is not one record, such as a union of Structs, is stored whole in the field `d`, in the
envelope of `_codec`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, call, itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace._codec import Codec, check_storable, type_name
from ephemera.keyspace._record_types import RecordChanges, RecordField, is_record, record_class, record_fields
from ephemera.keyspace._scalars import DECODE_ERRORS, Decode, Encode, field_codec, json_codec, scalar_codec
from ephemera.keyspace._type_nodes import refuse_infinity
from ephemera.keyspace._value_types import convert, is_model, storable, to_builtins

S = TypeVar("S")

V = TypeVar("V")

_WHOLE = b"d"
"""The field of an entry that holds its one value."""

LAYOUT_FIELD = b"_v"
"""The field that every whole record has."""

RECORD_LAYOUT = b"1"
"""Its content: the version of this layout."""


class _FieldCodec(NamedTuple):
    name: bytes
    encode: Encode
    decode: Decode


class RecordCodec(Generic[S]):
    """Encodes a Struct as field, value, field, value, and decodes it from a dict of bytes."""

    __slots__ = (
        "_decoders",
        "_encoders",
        "_fetch",
        "_fields",
        "_frame",
        "_make",
        "_values_of",
        "pattern",
        "record",
        "stored_names",
    )  # fmt: skip

    def __init__(self, pattern: str, record: type[S]) -> None:
        fields = _checked_fields(pattern, record)
        self.pattern = pattern
        self.record = record
        self._fields = {
            field.name: _FieldCodec(field.stored_name.encode(), *field_codec(storable(field.type)))
            for field in fields
        }
        self.stored_names = (*(each.name for each in self._fields.values()), LAYOUT_FIELD)
        """The names of the fields of a whole record, as HMGET takes them."""
        # A getter of one name returns no tuple, so both get one name more; `map` stops before it.
        self._values_of = attrgetter(*self._fields, "__class__")
        self._fetch = itemgetter(*self.stored_names)
        self._encoders = [each.encode for each in self._fields.values()]
        self._decoders = [each.decode for each in self._fields.values()]
        self._frame = [part for name in self.stored_names for part in (name, RECORD_LAYOUT)]
        self._make: Callable[..., S] = record if _takes_positions(record) else self._make_by_name

    def encode(self, record: S) -> list[bytes]:
        """All fields of a record and its layout, flat, as HSET and XADD take them."""
        if not isinstance(record, self.record):
            raise InvalidValue(self.pattern, self.record.__name__, type(record).__name__)
        flat = self._frame.copy()
        try:
            flat[1:-1:2] = map(call, self._encoders, self._values_of(record))
        except DECODE_ERRORS:
            self._flat((name, getattr(record, name)) for name in self._fields)  # names the field
            raise
        return flat

    def encode_some(self, changes: Mapping[str, Any]) -> list[bytes]:
        """Some fields, flat; `InvalidValue` for an unknown field or a value of another type."""
        if not changes or changes.keys() - self._fields.keys():
            fields = f"{self.record.__name__} with the fields {', '.join(self._fields)}"
            raise InvalidValue(self.pattern, fields, ", ".join(changes) or "no field")
        return self._flat(changes.items())

    def decode(self, stored: Mapping[bytes, bytes]) -> S | None:
        """The record, or None when these fields are not one."""
        try:
            values = self._fetch(stored)
            if values[-1] != RECORD_LAYOUT:
                return None
            return self._make(*map(call, self._decoders, values))
        except KeyError:
            return self._decode_incomplete(stored)
        except DECODE_ERRORS:
            return None

    def decode_values(self, values: Sequence[Any]) -> S | None:
        """As `decode`, from the values of `stored_names`, where an absent field is None."""
        if None in values:
            return self.decode(self._by_name(values))
        try:
            return self._make(*map(call, self._decoders, values)) if values[-1] == RECORD_LAYOUT else None
        except DECODE_ERRORS:
            return None

    def _by_name(self, values: Sequence[bytes | None]) -> dict[bytes, bytes]:
        named = zip(self.stored_names, values, strict=True)
        return {name: value for name, value in named if value is not None}

    def _decode_incomplete(self, stored: Mapping[bytes, bytes]) -> S | None:
        """A record with missing fields, which take their defaults."""
        if stored.get(LAYOUT_FIELD) != RECORD_LAYOUT:
            return None
        try:
            return self.record(
                **{
                    name: each.decode(stored[each.name])
                    for name, each in self._fields.items()
                    if each.name in stored
                }
            )
        except DECODE_ERRORS:
            return None

    def _flat(self, changes: Iterable[tuple[str, Any]]) -> list[bytes]:
        flat: list[bytes] = []
        for name, value in changes:
            try:
                flat += (self._fields[name].name, self._fields[name].encode(value))
            except DECODE_ERRORS:
                expected = f"{self.record.__name__} whose {name!r} can be read back as it is declared"
                raise InvalidValue(self.pattern, expected, type_name(type(value))) from None
        return flat

    def _make_by_name(self, *values: Any) -> S:
        return self.record(**dict(zip(self._fields, values, strict=True)))


class AdaptedRecordCodec(RecordCodec[S]):
    """The same for a pydantic model, a dataclass, an attrs class or a TypedDict."""

    __slots__ = ("_changes",)

    def __init__(self, pattern: str, record: type[S]) -> None:
        self.pattern = pattern
        self.record = record
        self._fields = {
            field.name: _FieldCodec(field.stored_name.encode(), *_builtin_codec(record, field))
            for field in _checked_fields(pattern, record)
        }
        self.stored_names = (*(each.name for each in self._fields.values()), LAYOUT_FIELD)
        self._changes = RecordChanges(pattern, record)

    def encode(self, record: S) -> list[bytes]:
        """All fields of a record and its layout, flat, as HSET and XADD take them."""
        expected = self.record.__name__
        if not isinstance(record, record_class(self.record)):
            raise InvalidValue(self.pattern, expected, type_name(type(record)))
        try:
            refuse_infinity(record)
            values = to_builtins(record, builtin_types=(bytes,))
            if values.keys() - self._fields.keys():
                raise ValueError("it has fields that are not declared, which a hash would lose")
            flat = self._encode_fields(values)
            self._decode(dict(zip(flat[::2], flat[1::2], strict=True)))
        except DECODE_ERRORS:
            given = f"a {type_name(type(record))} that could not be read back"
            raise InvalidValue(self.pattern, expected, given) from None
        return [*flat, LAYOUT_FIELD, RECORD_LAYOUT]

    def encode_some(self, changes: Mapping[str, Any]) -> list[bytes]:
        """Some fields, flat; `InvalidValue` for an unknown field or a value of another type."""
        return self._encode_fields(to_builtins(self._changes.checked(changes), builtin_types=(bytes,)))

    def decode(self, stored: Mapping[bytes, bytes]) -> S | None:
        """The record, or None when these fields are not one."""
        if stored.get(LAYOUT_FIELD) != RECORD_LAYOUT:
            return None
        try:
            return self._decode(stored)
        except DECODE_ERRORS:
            return None

    def decode_values(self, values: Sequence[Any]) -> S | None:
        """As `decode`, from the values of `stored_names`, where an absent field is None."""
        return self.decode(self._by_name(values))

    def _decode(self, stored: Mapping[bytes, bytes]) -> S:
        fields = self._fields.items()
        values = {name: each.decode(stored[each.name]) for name, each in fields if each.name in stored}
        record: S = convert(values, self.record)
        return record

    def _encode_fields(self, values: Mapping[str, Any]) -> list[bytes]:
        known = self._fields.items()
        return [
            part for name, each in known if name in values for part in (each.name, each.encode(values[name]))
        ]


def record_codec(pattern: str, record: type[S]) -> RecordCodec[S]:
    """The codec of a hash or a stream of records."""
    given: Any = record
    is_struct = isinstance(given, type) and issubclass(given, msgspec.Struct)
    return (RecordCodec if is_struct else AdaptedRecordCodec)(pattern, record)


def _builtin_codec(record: Any, field: RecordField) -> tuple[Encode, Decode]:
    """The codec of a field's JSON-compatible value; types and limits are checked with the whole record."""
    is_plain = field.type in (str, int, float, bool) or (field.type is bytes and not is_model(record))
    return (scalar_codec(field.type) if is_plain else None) or json_codec(Any)


def _checked_fields(pattern: str, record: Any) -> tuple[RecordField, ...]:
    if not is_record(record):
        raise InvalidDeclaration(
            pattern,
            f"{type_name(record)} has no named fields",
            "a hash or a stream holds the fields of a Struct, a pydantic model, a dataclass, an attrs class "
            "or a TypedDict; use value() for other types",
        )
    fields = record_fields(pattern, record)
    if not fields or any(field.stored_name.startswith("_") for field in fields):
        raise InvalidDeclaration(
            pattern,
            f"{record.__name__} has no fields, or one that starts with '_'",
            "names with a leading underscore are reserved, as '_v' is for the layout",
        )
    check_storable(pattern, record)
    return fields


def _takes_positions(struct: type[Any]) -> bool:
    parameters = inspect.signature(struct).parameters.values()
    return all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)


class EntryCodec(Generic[V]):
    """Encodes a value as the only field of a stream entry, and decodes it from a dict of bytes."""

    __slots__ = ("_codec", "name", "value_type")

    def __init__(self, codec: Codec[V]) -> None:
        self._codec = codec
        self.name = codec.name
        self.value_type: Any = codec.value_type

    def encode(self, value: V) -> list[bytes]:
        """The field and its value, as XADD takes them."""
        return [_WHOLE, self._codec.encode(value)]

    def decode(self, stored: Mapping[bytes, bytes]) -> V | None:
        """The value, or None when these fields do not hold one."""
        data = stored.get(_WHOLE)
        return None if data is None else self._codec.decode(data)
