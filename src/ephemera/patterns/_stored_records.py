"""A Struct in one key, as a hash or a JSON value: how it is written, read, and changed in part by a script.

A change names some fields and is checked against their types before anything is sent. In a hash it is one
HSET of those fields; in a JSON value the script splices the new members into the stored text (`lua/json.lua`)
and leaves every other byte as it is. Either way two concurrent changes of different fields both survive, and
what is stored in another shape is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec

from ephemera.errors import InvalidValue
from ephemera.keyspace import Codec, Keyspace, RecordCodec, json_head, type_name
from ephemera.wire import Arg, Script

S = TypeVar("S", bound=msgspec.Struct)

RecordKind: TypeAlias = Literal["hash", "value"]
"""`hash`: a field of the hash for each of the Struct's. `value`: one JSON text."""


class RecordFormat(Protocol[S]):
    """A way of storing a Struct."""

    read: str
    """The command that reads the whole record, also inside a script."""

    def write(self, record: S) -> list[Arg]:
        """Return the command that stores a record in a new key: its name, then what follows the key."""

    def decode(self, reply: Any) -> S | None:
        """Decode what `read` returned inside a script; None when it is not of this shape."""

    def change(self, changes: Mapping[str, Any]) -> list[Arg]:
        """Return the arguments of `change` in `lua/json.lua`: the kind, the shape, then name, value, ..."""


class HashFormat(Generic[S]):
    """A hash with a field for each field of the Struct."""

    read = "HGETALL"

    def __init__(self, keyspace: Keyspace[Any]) -> None:
        self._codec = cast("RecordCodec[S]", keyspace.codec)
        self._fields = _Fields(keyspace.pattern, self._codec.struct)

    def write(self, record: S) -> list[Arg]:
        """Return an HSET of all fields."""
        return ["HSET", *self._codec.encode(record)]

    def decode(self, reply: Any) -> S | None:
        """Decode a script's flat reply, or a map."""
        if not isinstance(reply, dict):
            parts = iter(reply)
            reply = dict(zip(parts, parts, strict=True))
        return self._codec.decode(reply)

    def change(self, changes: Mapping[str, Any]) -> list[Arg]:
        """Return some fields, as the hash stores them."""
        return ["hash", self._codec.shape, *self._codec.encode_some(self._fields.checked(changes))]


class JsonFormat(Generic[S]):
    """A JSON text in the envelope of the keyspace's codec."""

    read = "GET"

    def __init__(self, keyspace: Keyspace[Any]) -> None:
        codec = cast("Codec[S]", keyspace.codec)
        self._encode, self.decode = codec.encode, codec.decode
        self._head = json_head(keyspace.pattern, codec.value_type)
        self._fields = _Fields(keyspace.pattern, codec.value_type)

    def write(self, record: S) -> list[Arg]:
        """Return a SET of the whole text."""
        return ["SET", self._encode(record)]

    def change(self, changes: Mapping[str, Any]) -> list[Arg]:
        """Return some members of the JSON object, each as its quoted name and its raw text."""
        flat: list[Arg] = ["value", self._head]
        for name, value in self._fields.checked(changes).items():
            flat += (msgspec.json.encode(self._fields.stored_names[name]), msgspec.json.encode(value))
        return flat


class _Fields:
    """The fields of a Struct by name, to check changes against."""

    def __init__(self, pattern: str, struct: type[msgspec.Struct]) -> None:
        fields = msgspec.structs.fields(struct)
        self._pattern = pattern
        self._struct = struct
        self._types = {field.name: field.type for field in fields}
        self.stored_names = {field.name: field.encode_name for field in fields}

    def checked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes, each of its field's type; `InvalidValue` when one is not, or names no field."""
        if not changes or changes.keys() - self._types.keys():
            fields = f"{self._struct.__name__} with the fields {', '.join(self._types)}"
            raise InvalidValue(self._pattern, fields, ", ".join(changes) or "no field")
        return {name: self._converted(name, value) for name, value in changes.items()}

    def _converted(self, name: str, value: Any) -> Any:
        try:
            return msgspec.convert(value, self._types[name])
        except msgspec.ValidationError:
            expected = f"{self._struct.__name__} whose {name!r} is of another type"
            raise InvalidValue(self._pattern, expected, type_name(type(value))) from None


def record_format(keyspace: Keyspace[Any]) -> RecordFormat[Any]:
    """Return how a declared keyspace of Structs stores them."""
    return HashFormat(keyspace) if keyspace.kind == "hash" else JsonFormat(keyspace)


def load_change_script(package: str, name: str) -> Script:
    """Load the script `lua/<name>.lua` of a package that changes a record, with `lua/json.lua` before it."""
    return Script.load(package, name, shared=("ephemera.patterns:json",))
