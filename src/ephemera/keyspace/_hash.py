"""Hashes: a Struct a key, each of its fields a field of the hash.

`put` replaces the whole hash: what an earlier shape left behind is gone with it. `update` changes some
fields of a hash that is there and has the Struct's present shape, and otherwise does nothing: a late update
can never bring back half of what was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from ephemera.keyspace._accessor import Accessor
from ephemera.keyspace._field_values import FieldValue
from ephemera.keyspace._keyspace import REDIS_ERRORS, Keyspace
from ephemera.keyspace._lifetime import Instant
from ephemera.keyspace._template import Fields
from ephemera.wire import Arg, Client

if TYPE_CHECKING:
    from ephemera.keyspace._record_codec import RecordCodec

S = TypeVar("S", bound=msgspec.Struct)


class HashAccessor(Accessor, Generic[S]):
    """One Struct a key, field by field."""

    __slots__ = ("_ask_for", "_codec", "_decode")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        self._codec = cast("RecordCodec[S]", keyspace.codec)
        self._decode = self._codec.decode
        self._ask_for = self._asking("HGETALL")

    async def get(self, /, **fields: FieldValue) -> S | None:
        """The record, or None: not there, incomplete, or not of this shape."""
        if self._renewal is not None:
            return self._decoded(await self._read("HGETALL", self._render(fields)))
        try:
            stored = await self._ask_for(fields)
        except REDIS_ERRORS:
            self.stats.errors += 1
            raise
        if stored:
            record = self._decode(stored)
            if record is not None:
                stats = self.stats
                stats.hits += 1
                stats.bytes_read += sum(map(len, stored.values()))
                return record
        self._missed(stored)
        return None

    async def get_many(self, keys: Iterable[Fields], /) -> list[S | None]:
        """The records of several keys in one trip, each None as in `get`."""
        rendered = self._rendered(keys)
        return [self._decoded(stored) for stored in await self._read_all("HGETALL", rendered)]

    async def put(self, record: S, /, *, until: Instant | None = None, **fields: FieldValue) -> bool:
        """Replace the whole hash, for its lifetime; False when `until` has passed."""
        return await self.put_many([(fields, record)], until=until) > 0

    async def put_many(self, items: Iterable[tuple[Fields, S]], /, *, until: Instant | None = None) -> int:
        """Replace several hashes in one trip; how many were stored."""
        rule = self.keyspace.lifetime.on_put
        prepared = [
            (key, self._codec.encode(record), await self._end(until, record))
            for key, record in self._paired(items)
        ]
        replies = await self._all(
            self._writing(rule, key, [("UNLINK",), ("HSET", *flat)], end) for key, flat, end in prepared
        )
        stored = sum(reply is not None for reply in replies)
        self.stats.writes += stored
        return stored

    async def update(
        self, changes: Mapping[str, Any], /, *, until: Instant | None = None, **fields: FieldValue
    ) -> bool:
        """Change some fields of a hash that is there; False, and nothing written, when it is not.

        In an `until` space the hash keeps its end unless another is given.
        """
        write: list[Arg] = ["HSET", *self._codec.encode_some(changes)]
        key, shape = self._render(fields), self._codec.shape
        return await self._change_existing(key, write, until=until, guard=shape) is not None

    def _decoded(self, stored: dict[bytes, bytes]) -> S | None:
        record = self._decode(stored) if stored else None
        if record is None:
            self._missed(stored)
            return None
        self.stats.hits += 1
        self.stats.bytes_read += sum(map(len, stored.values()))
        return record

    def _missed(self, stored: dict[bytes, bytes]) -> None:
        self.stats.misses += 1
        self.stats.undecodable += bool(stored)
        self.stats.bytes_read += sum(map(len, stored.values()))
