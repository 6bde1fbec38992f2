"""A record in one key, as a hash or a JSON value: how it is written, read, and changed in part by a script.

A change names some fields and is checked against their types before anything is sent. In a hash it is one
HSET of those fields; in a JSON value the script splices the new members into the stored text (`lua/json.lua`)
and leaves every other byte as it is. Either way two concurrent changes of different fields both survive, and
so do fields that another version of its type has added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from ephemera.keyspace import (
    JSON_HEAD,
    RECORD_LAYOUT,
    Codec,
    Keyspace,
    RecordChanges,
    RecordCodec,
    encode_json,
)
from ephemera.wire import Arg, Script

S = TypeVar("S")

RecordKind: TypeAlias = Literal["hash", "value"]
"""`hash`: a field of the hash for each of the record's. `value`: one JSON text."""


class RecordFormat(Protocol[S]):
    """A way of storing a record."""

    read: str
    """The command that reads the whole record, even inside a script."""

    def write(self, record: S) -> list[Arg]:
        """Return the command that stores a record in a new key: its name, then what follows the key."""

    def decode(self, reply: Any) -> S | None:
        """Decode what `read` returned inside a script; None when it is not one."""

    def change(self, changes: Mapping[str, Any]) -> list[Arg]:
        """Return the arguments of `change` in `lua/json.lua`: the kind, the layout, then name, value, ..."""


class HashFormat(Generic[S]):
    """A hash with a field for each field of the record."""

    read = "HGETALL"

    def __init__(self, keyspace: Keyspace[Any]) -> None:
        self._codec = cast("RecordCodec[S]", keyspace.codec)

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
        return ["hash", RECORD_LAYOUT, *self._codec.encode_some(changes)]


class JsonFormat(Generic[S]):
    """A JSON text in the envelope of the keyspace's codec."""

    read = "GET"

    def __init__(self, keyspace: Keyspace[Any]) -> None:
        codec = cast("Codec[S]", keyspace.codec)
        self._encode, self.decode = codec.encode, codec.decode
        self._fields = RecordChanges(keyspace.pattern, codec.value_type)

    def write(self, record: S) -> list[Arg]:
        """Return a SET of the whole text."""
        return ["SET", self._encode(record)]

    def change(self, changes: Mapping[str, Any]) -> list[Arg]:
        """Return some members of the JSON object, each as its quoted name and its raw text."""
        flat: list[Arg] = ["value", JSON_HEAD]
        for name, value in self._fields.checked(changes).items():
            flat += (encode_json(self._fields.stored_names[name]), encode_json(value))
        return flat


def record_format(keyspace: Keyspace[Any]) -> RecordFormat[Any]:
    """Return how a declared keyspace of records stores them."""
    return HashFormat(keyspace) if keyspace.kind == "hash" else JsonFormat(keyspace)


def load_change_script(package: str, name: str) -> Script:
    """Load the script `lua/<name>.lua` of a package that changes a record, with `lua/json.lua` before it."""
    return Script.load(package, name, shared=("ephemera.patterns:json",))
