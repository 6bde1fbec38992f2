"""Records that are flushed to SQL: their declaration, appending them, and reading a batch of them.

A record is stored as JSON by field name, without a fingerprint of its type: pending records may have been
written by the previous version of the program. New fields take their defaults, removed fields are ignored,
and anything that still does not decode is stored in SQL as rejected, with the reason.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from operator import itemgetter
from typing import Any, Generic, TypeVar

import msgspec

from ephemera.errors import BacklogFull, InvalidValue, Unavailable
from ephemera.keyspace import Catalogue, Stats, Store
from ephemera.patterns.write_behind._batches import (
    IN_SHARD,
    UNTIL_IN_SQL,
    Row,
    Sealed,
    ShardQueue,
    Shards,
    Sink,
    Undecodable,
)
from ephemera.wire import Client, Script

S = TypeVar("S", bound=msgspec.Struct)

APPEND = Script.load("ephemera.patterns.write_behind", "append")
_PER_RANGE = 5000  # records that one LRANGE reads


class DeferredRecords(Generic[S]):
    """Records that reach a table of SQL in batches. `store[RECORDS]` is a `BoundRecords`.

    - `record`: a msgspec Struct; its fields are the columns.
    - `flush_every`: the age at which pending records are due.
    - `batch`: the number of records at which a shard is due whatever its age, and the most that one
      transaction writes.
    - `backlog`: the number of records at which new ones are refused with `BacklogFull`.
    - `shards`: lists that the records are spread over.
    - `idempotency_ttl`: how long idempotency keys are remembered.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        name: str,
        record: type[S],
        *,
        purpose: str,
        flush_every: timedelta = timedelta(seconds=5),
        batch: int = 20_000,
        backlog: int = 1_000_000,
        shards: int = 4,
        idempotency_ttl: timedelta = timedelta(hours=1),
    ) -> None:
        self.record = record
        self.shards = Shards(
            catalogue,
            name,
            shards=shards,
            flush_every=flush_every,
            batch=batch,
            backlog=backlog,
            idempotency_ttl=idempotency_ttl,
        )
        self.pending = catalogue.list(
            f"{name}:pending:{{shard}}",
            bytes,
            lifetime=UNTIL_IN_SQL,
            purpose=purpose,
            saves="an INSERT for each record",
            invalidated_by=("its flush",),
            if_lost="what was recorded since the last flush is lost",
            **IN_SHARD,
        )
        catalogue.patterns.append(self)

    @property
    def name(self) -> str:
        """The prefix of the keys, and the name of the batches in SQL."""
        return self.shards.name

    def bind(self, store: Store) -> BoundRecords[S]:
        """Return the records of a store; `store[RECORDS]` calls it."""
        for keyspace in (self.pending, self.shards.state, self.shards.idempotency):
            store[keyspace]  # refuses a store without it
        return BoundRecords(self, store.client("queue"), store[self.pending].stats)

    def __repr__(self) -> str:
        return f"<DeferredRecords {self.name!r} of {self.record.__name__}>"


class BoundRecords(Generic[S]):
    """The records of one store: what `store[RECORDS]` gives."""

    def __init__(self, declared: DeferredRecords[S], client: Client, stats: Stats) -> None:
        self.declared = declared
        self.stats = stats
        shards = declared.shards
        self._columns = tuple(field.name for field in msgspec.structs.fields(declared.record))
        keys = shards.keys(declared.pending)
        self._queue = ShardQueue(shards, client, "list", keys, self._columns, self._fetch)
        self._client = client
        self._keys = shards.keys(declared.pending, shards.state)
        self._limits = (str(shards.capacity), shards.idempotency_ttl)
        self._encode = msgspec.json.Encoder().encode
        record: Any = declared.record
        self._decode_one = msgspec.json.Decoder(record).decode
        self._decode_all = msgspec.json.Decoder(list[record]).decode
        self._row = row_maker(declared.record)

    async def append(
        self,
        /,
        *records: S,
        partition_key: str | None = None,
        idempotency_key: str | None = None,
        fallback: Sink | None = None,
    ) -> bool:
        """Append records, all of them or none, in one round trip.

        Records with the same `partition_key` reach SQL in the order they were appended. With an
        `idempotency_key` (and the same `partition_key`) they are appended once however often that is
        retried, for as long as `idempotency_ttl`; False when they were appended before. Raises `BacklogFull`
        when there is no room. When Redis is down, raises `Unavailable`, or writes to the sink `fallback` if
        there is one.
        """
        data = [self._encoded(record) for record in records]
        shard = self._shard(partition_key if partition_key is not None else idempotency_key)
        try:
            return await self._append(data, shard, idempotency_key)
        except Unavailable:
            if fallback is None:
                raise
        await fallback.write(self._columns, [self._row(record) for record in records])
        return True

    async def backlog(self) -> int:
        """Return how many records are not in SQL yet, in all shards."""
        return sum(await asyncio.gather(*(self._client.call("LLEN", keys[0]) for keys in self._keys)))

    async def backlog_age(self) -> float:
        """Return the age of the oldest pending record in seconds, in one round trip."""
        return await self._queue.age()

    async def _fetch(self, sealed: Sealed) -> tuple[list[Row], tuple[Undecodable, ...]]:
        """Read the records of a sealed batch."""
        key = self._keys[sealed.shard][0]
        ranges = (
            self._client.call("LRANGE", key, first, min(first + _PER_RANGE, sealed.size) - 1)
            for first in range(0, sealed.size, _PER_RANGE)
        )
        rows: list[Row] = []
        undecodable: list[Undecodable] = []
        for stored in await asyncio.gather(*ranges):
            self._decode(stored, rows, undecodable)
        return rows, tuple(undecodable)

    def _decode(self, stored: list[bytes], rows: list[Row], undecodable: list[Undecodable]) -> None:
        try:  # all at once is several times as fast as one by one
            rows.extend(map(self._row, self._decode_all(b"[%s]" % b",".join(stored))))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            for data in stored:
                try:
                    rows.append(self._row(self._decode_one(data)))
                except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
                    reason = f"it is no {self.declared.record.__name__}: {problem}"
                    undecodable.append(Undecodable(data, reason))

    async def _append(self, data: list[bytes], shard: int, idempotency_key: str | None) -> bool:
        keys, shards = self._keys[shard], self.declared.shards
        if idempotency_key is not None:
            keys = (*keys, shards.idempotency.key(shard=shard, idempotency_key=idempotency_key))
        with self.stats.counting_errors:
            added = await self._client.run(APPEND, keys, (*self._limits, *data))
        if added < 0:
            raise BacklogFull(self.declared.name, shard, shards.capacity)
        self.stats.writes += added
        self.stats.bytes_written += sum(map(len, data))
        return bool(added)

    def _shard(self, partition_key: str | None) -> int:
        shards = self.declared.shards
        return random.randrange(shards.count) if partition_key is None else shards.of(partition_key)

    def _encoded(self, record: S) -> bytes:
        expected = self.declared.record
        if not isinstance(record, expected):
            raise InvalidValue(self.declared.name, expected.__name__, type(record).__name__)
        try:
            data = self._encode(record)
            self._decode_one(data)  # refuse here what could never be read back
        except (msgspec.MsgspecError, TypeError, UnicodeEncodeError) as problem:
            raise InvalidValue(self.declared.name, expected.__name__, f"one that is not: {problem}") from None
        return data


def row_maker(record: type[S]) -> Callable[[S], Row]:
    """Return what turns a record into a row: its values, as JSON where SQL has no type for them."""
    fields = msgspec.structs.fields(record)
    nested = [position for position, field in enumerate(fields) if not _has_sql_type(field.type)]
    as_tuple: Callable[[S], Row] = msgspec.structs.astuple
    if not nested:
        return as_tuple
    to_json = msgspec.json.encode

    def row(value: S) -> Row:
        values = list(as_tuple(value))
        for position in nested:
            if values[position] is not None:
                values[position] = to_json(values[position]).decode()
        return tuple(values)

    return row


def _has_sql_type(annotation: Any) -> bool:
    node = msgspec.inspect.type_info(annotation)
    choices = node.types if isinstance(node, msgspec.inspect.UnionType) else (node,)
    return all(isinstance(choice, _SQL_TYPES) for choice in choices)


_SQL_TYPES = itemgetter(
    "NoneType", "BoolType", "IntType", "FloatType", "StrType", "BytesType", "DateTimeType", "DateType",
    "TimeType", "TimeDeltaType", "UUIDType", "DecimalType", "LiteralType",
)(vars(msgspec.inspect))  # fmt: skip
