"""Records that wait for SQL: appending them, and reading a batch of them.

A record is stored as JSON by the names of its fields, without a fingerprint of its shape: what waits may have
been written by the version of the program before this one. Fields that are new take their defaults, fields
that are gone are ignored, and what still is no such record is put aside with the reason.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ephemera.errors import BacklogFull, InvalidValue, Unavailable
from ephemera.keyspace import REDIS_ERRORS, Stats
from ephemera.patterns.write_behind._batches import Batch, Row, Sink, Unread
from ephemera.patterns.write_behind._queues import Queue, Sealed, shard_of
from ephemera.wire import Client, Script

if TYPE_CHECKING:
    from ephemera.patterns.write_behind._declaration import DeferredRecords

S = TypeVar("S", bound=msgspec.Struct)

APPEND = Script.load("ephemera.patterns.write_behind", "append")
_PIECE = 5000  # records that one command reads


class BoundRecords(Generic[S]):
    """The records of one store: what `store[RECORDS]` gives."""

    def __init__(self, declared: DeferredRecords[S], client: Client, stats: Stats) -> None:
        self.declared = declared
        self.columns = tuple(field.name for field in msgspec.structs.fields(declared.record))
        self.stats = stats
        shards = declared.shards
        self.queue = Queue(shards, client, "list", shards.keys(declared.waiting))
        self._client = client
        self._keys = shards.keys(declared.waiting, shards.state)
        self._limits = (str(shards.most), shards.once_kept)
        self._encode = msgspec.json.Encoder().encode
        self._decode_one = msgspec.json.Decoder(declared.record).decode
        self._decode_all = msgspec.json.Decoder(list[declared.record]).decode  # type: ignore[name-defined]
        self._row = row_maker(declared.record)

    async def append(
        self, /, *records: S, by: str | None = None, once: str | None = None, otherwise: Sink | None = None
    ) -> bool:
        """Append records, all of them or none, in one trip.

        Those with the same `by` reach SQL in the order they were appended. With `once`, an id of the
        addition, they are appended once however often that is asked, for as long as `once_kept` (with the
        same `by`); False when they were there. `BacklogFull` when there is no room. When Redis is down,
        `Unavailable`, unless `otherwise` is a sink to write to at once.
        """
        data = [self._encoded(record) for record in records]
        shard = self._shard(by if by is not None else once)
        try:
            return await self._append(data, shard, once)
        except Unavailable:
            if otherwise is None:
                raise
        await otherwise.write(self.columns, [self._row(record) for record in records])
        return True

    async def waiting(self) -> int:
        """How many records wait for SQL, in all shards; those on their way count."""
        return sum(await asyncio.gather(*(self._client.call("LLEN", keys[0]) for keys in self._keys)))

    async def read(self, sealed: Sealed) -> Batch:
        """The rows of a sealed batch."""
        key = self._keys[sealed.shard][0]
        pieces = (
            self._client.call("LRANGE", key, first, min(first + _PIECE, sealed.size) - 1)
            for first in range(0, sealed.size, _PIECE)
        )
        rows: list[Row] = []
        unread: list[Unread] = []
        for piece in await asyncio.gather(*pieces):
            self._read_piece(piece, rows, unread)
        name = self.declared.name
        return Batch(name, sealed.shard, sealed.epoch, sealed.number, self.columns, rows, tuple(unread))

    def _read_piece(self, stored: list[bytes], rows: list[Row], unread: list[Unread]) -> None:
        try:  # all at once is several times as fast as one by one
            rows.extend(map(self._row, self._decode_all(b"[%s]" % b",".join(stored))))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            for data in stored:
                try:
                    rows.append(self._row(self._decode_one(data)))
                except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
                    unread.append(Unread(data, f"it is no {self.declared.record.__name__}: {problem}"))

    async def _append(self, data: list[bytes], shard: int, once: str | None) -> bool:
        keys = self._keys[shard]
        if once is not None:
            keys = (*keys, self.declared.shards.once.key(shard=shard, addition=once))
        try:
            added = await self._client.run(APPEND, keys, (*self._limits, *data))
        except REDIS_ERRORS:
            self.stats.errors += 1
            raise
        if added < 0:
            raise BacklogFull(self.declared.name, shard, self.declared.shards.most)
        self.stats.writes += added
        self.stats.bytes_written += sum(map(len, data))
        return bool(added)

    def _shard(self, by: str | None) -> int:
        count = self.declared.shards.count
        return random.randrange(count) if by is None else shard_of(by, count)

    def _encoded(self, record: S) -> bytes:
        expected = self.declared.record
        if not isinstance(record, expected):
            raise InvalidValue(self.declared.name, expected.__name__, type(record).__name__)
        try:
            data = self._encode(record)
            self._decode_one(data)  # what could never be read again is refused here
        except (msgspec.MsgspecError, TypeError, UnicodeEncodeError) as problem:
            raise InvalidValue(self.declared.name, expected.__name__, f"one that is not: {problem}") from None
        return data


def row_maker(record: type[S]) -> Callable[[S], Row]:
    """What makes a row of a record: its values as they are, those that SQL has no type for as JSON."""
    fields = msgspec.structs.fields(record)
    nested = [place for place, field in enumerate(fields) if not _is_plain(field.type)]
    as_tuple: Callable[[S], Row] = msgspec.structs.astuple
    if not nested:
        return as_tuple
    to_json = msgspec.json.encode

    def row(value: S) -> Row:
        values = list(as_tuple(value))
        for place in nested:
            if values[place] is not None:
                values[place] = to_json(values[place]).decode()
        return tuple(values)

    return row


def _is_plain(annotation: Any) -> bool:
    node = msgspec.inspect.type_info(annotation)
    choices = node.types if isinstance(node, msgspec.inspect.UnionType) else (node,)
    return all(isinstance(choice, _PLAIN) for choice in choices)


_PLAIN = itemgetter(
    "NoneType", "BoolType", "IntType", "FloatType", "StrType", "BytesType", "DateTimeType", "DateType",
    "TimeType", "TimeDeltaType", "UUIDType", "DecimalType", "LiteralType",
)(vars(msgspec.inspect))  # fmt: skip
