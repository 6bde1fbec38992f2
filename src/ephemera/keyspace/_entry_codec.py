"""A stream's entry that is one value of any type, in one field, as a codec writes it.

A Struct's fields make the fields of an entry (`records`). What is not one Struct, such as a union of them,
stands whole in the field `d`, in the envelope of `codec`: what cannot be read is a miss here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ephemera.keyspace._codec import Codec

V = TypeVar("V")

WHOLE = b"d"
"""The field that holds the value."""


class EntryCodec(Generic[V]):
    """Writes a value as the one field of an entry, and reads it from a dict of bytes."""

    __slots__ = ("_codec", "name", "value_type")

    def __init__(self, codec: Codec[V]) -> None:
        self._codec = codec
        self.name = codec.name
        self.value_type: Any = codec.value_type

    def encode(self, value: V) -> list[bytes]:
        """The field and its value, as XADD takes them."""
        return [WHOLE, self._codec.encode(value)]

    def decode(self, stored: Mapping[bytes, bytes]) -> V | None:
        """The value, or None when these fields do not hold one."""
        data = stored.get(WHOLE)
        return None if data is None else self._codec.decode(data)
