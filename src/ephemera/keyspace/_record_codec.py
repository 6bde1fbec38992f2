"""A Struct as the fields of a hash or of a stream's entry, readable with a command line.

Each field is stored as `_scalars` describes: text as it is, numbers in decimal, everything else as JSON. The
field `_v` holds the fingerprint of the whole shape. A hash without it, or with another one, is a miss, and so
is one that lacks a required field or holds one that cannot be decoded. A missing field takes its default.
Unknown fields are ignored; names that start with `_` are reserved for patterns (a fencing token, an epoch).

`encode_some` encodes single fields, so that one HSET can change one of them; `_v` stays as it is.

A stream's entry that is not one Struct, such as a union of Structs, is stored whole in the field `d`, in the
envelope of `_codec`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, call, itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace._codec import Codec, shape_of, type_name
from ephemera.keyspace._scalars import DECODE_ERRORS, Decode, Encode, field_codec

S = TypeVar("S", bound=msgspec.Struct)

V = TypeVar("V")

_WHOLE = b"d"
"""The field of an entry that holds its one value."""

SHAPE_FIELD = b"_v"
"""The hash field that holds the fingerprint of the record's shape."""


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
        "shape",
        "struct",
    )  # fmt: skip

    def __init__(self, pattern: str, struct: type[S]) -> None:
        _check(pattern, struct)
        self.pattern = pattern
        self.struct = struct
        self.shape = shape_of(pattern, struct)
        self._fields = {
            field.name: _FieldCodec(field.encode_name.encode(), *field_codec(field.type))
            for field in msgspec.structs.fields(struct)
        }
        stored_names = [each.name for each in self._fields.values()]
        # A getter of one name returns no tuple, so both get one name more; `map` stops before it.
        self._values_of = attrgetter(*self._fields, "__class__")
        self._fetch = itemgetter(*stored_names, SHAPE_FIELD)
        self._encoders = [each.encode for each in self._fields.values()]
        self._decoders = [each.decode for each in self._fields.values()]
        self._frame = [part for name in (*stored_names, SHAPE_FIELD) for part in (name, self.shape)]
        self._make: Callable[..., S] = struct if _takes_positions(struct) else self._make_by_name

    def encode(self, record: S) -> list[bytes]:
        """All fields of a record and its fingerprint, flat, as HSET and XADD take them."""
        if not isinstance(record, self.struct):
            raise InvalidValue(self.pattern, self.struct.__name__, type(record).__name__)
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
            fields = f"{self.struct.__name__} with the fields {', '.join(self._fields)}"
            raise InvalidValue(self.pattern, fields, ", ".join(changes) or "no field")
        return self._flat(changes.items())

    def decode(self, stored: Mapping[bytes, bytes]) -> S | None:
        """The record, or None when these fields are not one of this shape."""
        try:
            values = self._fetch(stored)
            if values[-1] != self.shape:
                return None
            return self._make(*map(call, self._decoders, values))
        except KeyError:
            return self._decode_incomplete(stored)
        except DECODE_ERRORS:
            return None

    def _decode_incomplete(self, stored: Mapping[bytes, bytes]) -> S | None:
        """A record with missing fields, which take their defaults."""
        if stored.get(SHAPE_FIELD) != self.shape:
            return None
        try:
            return self.struct(
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
                expected = f"{self.struct.__name__} whose {name!r} is of another type"
                raise InvalidValue(self.pattern, expected, type_name(type(value))) from None
        return flat

    def _make_by_name(self, *values: Any) -> S:
        return self.struct(**dict(zip(self._fields, values, strict=True)))


def _check(pattern: str, struct: Any) -> None:
    if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
        raise InvalidDeclaration(
            pattern,
            f"{type_name(struct)} is not a msgspec.Struct",
            "a hash or a stream holds the fields of a Struct; use value() for other types",
        )
    names = [field.encode_name for field in msgspec.structs.fields(struct)]
    if not names or any(name.startswith("_") for name in names):
        raise InvalidDeclaration(
            pattern,
            f"{struct.__name__} has no fields, or one that starts with '_'",
            "names with a leading underscore are reserved, as '_v' is for the shape",
        )


def _takes_positions(struct: type[msgspec.Struct]) -> bool:
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
