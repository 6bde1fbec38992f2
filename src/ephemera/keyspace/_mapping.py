"""Mappings: a hash whose field names are data, such as one counter a channel for each user.

Each entry is stored plainly, or as JSON, and has no shape of its own; an entry that cannot be decoded is
left out, as if it were not there. All entries of a key share its lifetime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ephemera.keyspace._accessor import Accessor, in_chunks
from ephemera.keyspace._field_values import FieldValue
from ephemera.keyspace._keyspace import Keyspace
from ephemera.keyspace._lifetime import Instant
from ephemera.wire import Client

if TYPE_CHECKING:
    from ephemera.keyspace._codec import Codec

V = TypeVar("V")


class MappingAccessor(Accessor, Generic[V]):
    """Named entries of one type under each key."""

    __slots__ = ("_decode", "_encode")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        codec = cast("Codec[V]", keyspace.codec)
        self._encode, self._decode = codec.encode, codec.decode

    async def get(self, name: str, /, **fields: FieldValue) -> V | None:
        """One entry, or None when it is not there."""
        return (await self.get_some([name], **fields)).get(name)

    async def get_some(self, names: Sequence[str], /, **fields: FieldValue) -> dict[str, V]:
        """Those of the named entries that are there."""
        stored = await self._read("HMGET", self._render(fields), *names)
        return self._decoded(zip(names, stored, strict=True))

    async def get_all(self, /, **fields: FieldValue) -> dict[str, V]:
        """All entries; empty when the key is not there."""
        stored = await self._read("HGETALL", self._render(fields))
        return self._decoded((_name(name), data) for name, data in stored.items())

    async def put(
        self, entries: Mapping[str, V], /, *, until: Instant | None = None, **fields: FieldValue
    ) -> bool:
        """Replace all entries; False when `until` has passed."""
        writes = [("UNLINK",), *in_chunks("HSET", self._flat(entries))]
        return await self._put(self._render(fields), *writes, until=until) is not None

    async def set(
        self, entries: Mapping[str, V], /, *, until: Instant | None = None, **fields: FieldValue
    ) -> bool:
        """Set some entries and leave the others; False when `until` has passed."""
        writes = in_chunks("HSET", self._flat(entries))
        return await self._change(self._render(fields), *writes, until=until) is not None

    async def increment(
        self, name: str, by: int = 1, /, *, until: Instant | None = None, **fields: FieldValue
    ) -> int:
        """Add to an entry that is a whole number; its new value, 0 when `until` has passed."""
        replies = await self._change(self._render(fields), ("HINCRBY", name, by), until=until)
        return replies[0] if replies else 0

    async def remove(self, /, *names: str, **fields: FieldValue) -> int:
        """Remove entries; how many of them were there."""
        replies = await self._change_existing(self._render(fields), *in_chunks("HDEL", names))
        return sum(replies or ())

    async def size(self, /, **fields: FieldValue) -> int:
        """How many entries there are."""
        return int(await self._read("HLEN", self._render(fields)))

    def _flat(self, entries: Mapping[str, V]) -> list[str | bytes]:
        return [part for name, value in entries.items() for part in (name, self._encode(value))]

    def _decoded(self, stored: Iterable[tuple[str | None, bytes | None]]) -> dict[str, V]:
        """The entries that are there and can be read; each is a hit or a miss."""
        entries: dict[str, V] = {}
        for name, data in stored:
            if data is None:
                self.stats.misses += 1
                continue
            self.stats.bytes_read += len(data)
            value = self._decode(data)
            if value is not None and name is not None:
                entries[name] = value
                self.stats.hits += 1
            else:
                self.stats.misses += 1
                self.stats.undecodable += 1
        return entries


def _name(stored: bytes) -> str | None:
    """The name of an entry; None for what is no text, which nobody here has written."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return None
