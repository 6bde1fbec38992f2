"""Hashes: a record per key, field by field, or a mapping whose field names are data.

`HashAccessor.put` replaces the whole hash, including fields that an earlier version of its type left
behind. `update` changes some fields of a hash that exists, and otherwise does nothing: a late update never
revives part of a deleted hash. It keeps the fields that another version of the type has added. A record is
read by the names of its fields: a list costs the client half of what a dictionary does.

A mapping holds entries of one type under names that callers choose, such as one counter per channel for each
user. An entry that cannot be decoded is left out. All entries of a key share its lifetime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, Never, TypeVar, cast

from ephemera.keyspace._accessor import Accessor, Command, in_chunks, payload_size
from ephemera.keyspace._codec import Codec
from ephemera.keyspace._field_types import FieldValue
from ephemera.keyspace._keyspace import Keyspace
from ephemera.keyspace._lifetime import Instant
from ephemera.keyspace._record_codec import RECORD_LAYOUT, RecordCodec
from ephemera.keyspace._template import Fields
from ephemera.wire import Arg, Client, Script

S = TypeVar("S")
V = TypeVar("V")

_REPLACE = Script.load("ephemera.keyspace", "replace")

_MOST_NAMED = 32
"""Fields of a record that is read by their names. The server looks for each among all fields of a small hash,
so for many fields it works less if it lists them all."""


class HashAccessor(Accessor, Generic[S]):
    """One record per key, field by field."""

    __slots__ = ("_arguments", "_codec", "_decode", "_name", "_put_ttl", "_send_get", "_values")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        self._codec = codec = cast("RecordCodec[S]", keyspace.codec)
        self._name = "HGETALL"
        self._arguments: tuple[bytes, ...] = ()
        self._decode: Callable[[Any], S | None] = codec.decode
        self._values: Callable[[Any], Iterable[bytes | None]] = dict.values
        if len(codec.stored_names) <= _MOST_NAMED:
            self._name, self._arguments = "HMGET", codec.stored_names
            self._decode, self._values = codec.decode_values, iter
        self._send_get = self._reader(client.send, client.call, self._name, *self._arguments)
        lifetime = keyspace.lifetime
        self._put_ttl = str(lifetime.milliseconds) if lifetime.on_put == "renew" else None

    async def get(self, /, *positional: Never, **fields: FieldValue) -> S | None:
        """The record, or None when the key is absent, incomplete or holds something else."""
        if positional:
            raise self._unnamed("get")
        if self._renewal is not None:
            return self._decoded(await self._read(self._name, self._render(fields), *self._arguments))
        with self.stats.counting_errors:
            stored = await self._send_get(fields)
        return self._decoded(stored)

    async def get_many(self, keys: Iterable[Fields], /) -> list[S | None]:
        """The records of several keys in one round trip, each None as in `get`."""
        rendered = self._render_all(keys)
        replies = await self._read_all(self._name, rendered, *self._arguments)
        return [self._decoded(stored) for stored in replies]

    async def put(
        self,
        record: S,
        /,
        *positional: Never,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Replace the whole hash and set its TTL; False when `until` has passed.

        `lifetime` is shorter than the declared one, for this write.
        """
        if positional:
            raise self._unnamed("put")
        key = self._render(fields)
        flat = self._codec.encode(record)
        if self._put_ttl is not None and until is None and lifetime is None:
            # The usual lifetime has a script of its own: half of the server's and the client's time.
            stats = self.stats
            stats.bytes_written += sum(map(len, flat))
            with stats.counting_errors:
                await self._run(_REPLACE, (key,), (self._put_ttl, *flat))
            stats.writes += 1
            return True
        writes: list[Command] = [("UNLINK",), ("HSET", *flat)]
        return await self._put(key, *writes, until=until, lifetime=lifetime, value=record) is not None

    async def put_many(
        self,
        items: Iterable[tuple[Fields, S]],
        /,
        *,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
    ) -> int:
        """Replace several hashes in one round trip; returns how many were stored.

        `until` is the instant at which they expire, where the keyspace has an `until` lifetime.
        `lifetime` is shorter than the declared one, for this write.
        """
        rule = self.keyspace.lifetime.on_put
        prepared = [
            (key, self._codec.encode(record), await self._end(until, record, lifetime))
            for key, record in self._render_pairs(items)
        ]
        replies = await self._all(
            self._send_write(rule, key, [("UNLINK",), ("HSET", *flat)], end) for key, flat, end in prepared
        )
        stored = sum(reply is not None for reply in replies)
        self.stats.writes += stored
        return stored

    async def update(
        self, changes: Mapping[str, Any], /, *, until: Instant | None = None, **fields: FieldValue
    ) -> bool:
        """Change some fields of an existing hash; False when it does not exist, and nothing is written.

        With an `until` lifetime the hash keeps its expiry unless another is given.
        """
        write: list[Arg] = ["HSET", *self._codec.encode_some(changes)]
        key = self._render(fields)
        return await self._change_existing(key, write, until=until, guard=RECORD_LAYOUT) is not None

    def _decoded(self, stored: Any) -> S | None:
        record, stats = self._decode(stored), self.stats
        stats.bytes_read += payload_size(self._values(stored))
        if record is None:
            stats.misses += 1
            stats.undecodable += any(each is not None for each in self._values(stored))
            return None
        stats.hits += 1
        return record


class MappingAccessor(Accessor, Generic[V]):
    """Named entries of one type under each key."""

    __slots__ = ("_decode", "_encode")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        codec = cast("Codec[V]", keyspace.codec)
        self._encode, self._decode = codec.encode, codec.decode

    async def get(self, name: str, /, **fields: FieldValue) -> V | None:
        """One entry, or None when it is absent."""
        return (await self.get_some([name], **fields)).get(name)

    async def get_some(self, names: Sequence[str], /, **fields: FieldValue) -> dict[str, V]:
        """Those of the named entries that exist."""
        stored = await self._read("HMGET", self._render(fields), *names)
        return self._decoded(zip(names, stored, strict=True))

    async def get_all(self, /, **fields: FieldValue) -> dict[str, V]:
        """All entries; empty when the key is absent."""
        stored = await self._read("HGETALL", self._render(fields))
        return self._decoded((_name(name), data) for name, data in stored.items())

    async def put(
        self,
        entries: Mapping[str, V],
        /,
        *,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Replace all entries; False when `until` has passed.

        `lifetime` is shorter than the declared one, for this write.
        """
        writes = [("UNLINK",), *in_chunks("HSET", self._flat(entries))]
        return await self._put(self._render(fields), *writes, until=until, lifetime=lifetime) is not None

    async def set(
        self, entries: Mapping[str, V], /, *, until: Instant | None = None, **fields: FieldValue
    ) -> bool:
        """Set some entries and keep the others; False when `until` has passed."""
        writes = in_chunks("HSET", self._flat(entries))
        return await self._change(self._render(fields), *writes, until=until) is not None

    async def increment(
        self, name: str, by: int = 1, /, *, until: Instant | None = None, **fields: FieldValue
    ) -> int:
        """Add to an entry that is a whole number; its new value, 0 when `until` has passed."""
        replies = await self._change(self._render(fields), ("HINCRBY", name, by), until=until)
        return replies[0] if replies else 0

    async def remove(self, /, *names: str, **fields: FieldValue) -> int:
        """Remove entries; returns how many of them existed."""
        replies = await self._change_existing(self._render(fields), *in_chunks("HDEL", names))
        return sum(replies or ())

    async def size(self, /, **fields: FieldValue) -> int:
        """The number of entries."""
        return int(await self._read("HLEN", self._render(fields)))

    def _flat(self, entries: Mapping[str, V]) -> list[str | bytes]:
        return [part for name, value in entries.items() for part in (name, self._encode(value))]

    def _decoded(self, stored: Iterable[tuple[str | None, bytes | None]]) -> dict[str, V]:
        """The entries that exist and can be decoded; each is a hit or a miss."""
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
    """The name of an entry; None when it is not UTF-8, so not written by Ephemera."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return None
