"""Records that are flushed to SQL: their declaration, appending them, and reading a batch of them.

A record is stored as JSON by field name, without a fingerprint of its type: pending records may have been
written by the previous version of the program. New fields take their defaults, removed fields are ignored,
and anything that still does not decode is stored in SQL as rejected, with the reason.

Records with an idempotency key and a fallback may reach SQL on two ways, as in `_counters`. They are stored
with an id before the JSON (a NUL, the id, a NUL), which SQL remembers, so that it inserts each of them once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, is_typeddict

import msgspec

from ephemera.errors import BacklogFull, InvalidValue, Unavailable
from ephemera.keyspace import (
    Catalogue,
    FieldCodec,
    RecordField,
    Stats,
    Store,
    encode_json,
    json_decoder,
    record_fields,
    storable,
)
from ephemera.patterns.write_behind._batches import (
    IN_SHARD,
    UNTIL_IN_SQL,
    Fetched,
    Row,
    Sealed,
    ShardQueue,
    Shards,
    Sink,
    Undecodable,
)
from ephemera.wire import Client, Script

if TYPE_CHECKING:  # these need the extra `sql`
    from ephemera.patterns.write_behind._tables import SinkTables
    from ephemera.sql import SqlSchema

S = TypeVar("S")

APPEND = Script.load("ephemera.patterns.write_behind", "append")
_PER_RANGE = 5000  # records that one LRANGE reads
_FORMAT = FieldCodec(":")


class DeferredRecords(Generic[S]):
    """Records that reach a table of SQL in batches. `store[RECORDS]` is a `BoundRecords`.

    Args:
        catalogue: The catalogue that declares the keys.
        name: The name of the records: part of their keys, and of their rows in the sinks' tables.
        record: A msgspec Struct, a pydantic model, a dataclass, an attrs class or a TypedDict; its fields are
            the columns.
        purpose: What is recorded, in a few words, for the generated documentation.
        flush_every: The age at which pending records are due; by default 5 seconds.
        batch: The number of records at which a shard is due whatever its age, and the most that one
            transaction writes.
        backlog: The number of records at which new ones are refused with `BacklogFull`.
        shards: The number of lists that the records are spread over.
        idempotency_ttl: How long idempotency keys are remembered; by default an hour.
        tables: The tables of the sinks for PostgreSQL; by default `write_behind_last_batches` and so on.

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
        tables: SinkTables | None = None,
    ) -> None:
        self.tables = tables
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

    @property
    def sql_schema(self) -> SqlSchema:
        """The tables that the sinks for PostgreSQL need, which declarations can share."""
        from ephemera.patterns.write_behind._tables import default_tables  # it needs the extra `sql`

        return (self.tables or default_tables()).sql_schema

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
        self._columns = tuple(field.name for field in record_fields(declared.name, declared.record))
        keys = shards.keys(declared.pending)
        self._queue = ShardQueue(shards, client, "list", keys, self._columns, self._fetch)
        self._client = client
        self._keys = shards.keys(declared.pending, shards.state)
        self._limits = (str(shards.capacity), shards.idempotency_ttl)
        record: Any = declared.record
        self._class = dict if is_typeddict(record) else record
        self._decode_one, self._decode_all = json_decoder(record), json_decoder(list[record])
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
        there is one. With both, they are in SQL once whichever way that is retried, within a week; give the
        same fallback each time.
        """
        data = [self._encoded(record) for record in records]
        shard = self._shard(partition_key if partition_key is not None else idempotency_key)
        flag, entries = None, list[str]()
        if idempotency_key is not None:
            flag = self.declared.shards.idempotency.key(shard=shard, idempotency_key=idempotency_key)
        if idempotency_key is not None and fallback is not None:
            entries = [f"{_FORMAT.encode(idempotency_key)}:{position}" for position in range(len(records))]
            data = [b"\x00%s\x00%s" % (one.encode(), each) for one, each in zip(entries, data, strict=True)]
        try:
            return await self._append(data, shard, flag)
        except Unavailable:
            if fallback is None:
                raise
        ids = [self.declared.shards.id_of(shard, entry) for entry in entries]
        return await fallback.write(self._columns, [self._row(record) for record in records], ids)

    async def backlog(self) -> int:
        """Return how many records are not in SQL yet, in all shards."""
        return sum(await asyncio.gather(*(self._client.call("LLEN", keys[0]) for keys in self._keys)))

    async def backlog_age(self) -> float:
        """Return the age of the oldest pending record in seconds, in one round trip."""
        return await self._queue.age()

    async def _fetch(self, sealed: Sealed) -> Fetched:
        """Read the records of a sealed batch."""
        key = self._keys[sealed.shard][0]
        ranges = (
            self._client.call("LRANGE", key, first, min(first + _PER_RANGE, sealed.size) - 1)
            for first in range(0, sealed.size, _PER_RANGE)
        )
        fetched, undecodable = Fetched([], (), {}), list[Undecodable]()
        for stored in await asyncio.gather(*ranges):
            try:  # all at once is several times as fast as one by one
                fetched.rows.extend(map(self._row, self._decode_all(b"[%s]" % b",".join(stored))))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self._decode_each(stored, sealed.shard, fetched, undecodable)
        return fetched._replace(undecodable=tuple(undecodable))

    def _decode_each(
        self, stored: list[bytes], shard: int, fetched: Fetched, undecodable: list[Undecodable]
    ) -> None:
        for data in stored:
            entry, text = b"", data
            if data[:1] == b"\x00":
                entry, _, text = data[1:].partition(b"\x00")
            try:
                row = self._row(self._decode_one(text))
                if entry:
                    position = len(fetched.rows)
                    fetched.ids[position] = self.declared.shards.id_of(shard, entry.decode())
                fetched.rows.append(row)
            except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
                reason = f"it is no {self.declared.record.__name__}: {problem}"
                undecodable.append(Undecodable(data, reason))

    async def _append(self, data: list[bytes], shard: int, flag: str | None) -> bool:
        keys = self._keys[shard] if flag is None else (*self._keys[shard], flag)
        with self.stats.counting_errors:
            added = await self._client.run(APPEND, keys, (*self._limits, *data))
        if added < 0:
            raise BacklogFull(self.declared.name, shard, self.declared.shards.capacity)
        self.stats.writes += added
        self.stats.bytes_written += sum(map(len, data))
        return bool(added)

    def _shard(self, partition_key: str | None) -> int:
        shards = self.declared.shards
        return random.randrange(shards.count) if partition_key is None else shards.of(partition_key)

    def _encoded(self, record: S) -> bytes:
        expected = self.declared.record
        if not isinstance(record, self._class):
            raise InvalidValue(self.declared.name, expected.__name__, type(record).__name__)
        try:
            data = encode_json(record)
            self._decode_one(data)  # refuse here what could never be read back
        except (msgspec.MsgspecError, TypeError, ValueError) as problem:
            raise InvalidValue(self.declared.name, expected.__name__, f"one that is not: {problem}") from None
        return data


def row_maker(record: type[S]) -> Callable[[S], Row]:
    """Return what turns a record into a row: its values, as JSON where SQL has no type for them."""
    fields = record_fields("row", record)
    nested = [position for position, field in enumerate(fields) if not _has_sql_type(storable(field.type))]
    as_tuple: Any = msgspec.structs.astuple if issubclass(record, msgspec.Struct) else _getter(fields)
    if not nested:
        made: Callable[[S], Row] = as_tuple
        return made

    def row(value: S) -> Row:
        values = list(as_tuple(value))
        for position in nested:
            if values[position] is not None:
                values[position] = encode_json(values[position]).decode()
        return tuple(values)

    return row


def _getter(fields: tuple[RecordField, ...]) -> Callable[[Any], Row]:
    names = [field.name for field in fields]
    return lambda record: tuple(
        record.get(name) if isinstance(record, dict) else getattr(record, name) for name in names
    )


def _has_sql_type(annotation: Any) -> bool:
    node = msgspec.inspect.type_info(annotation)
    choices = node.types if isinstance(node, msgspec.inspect.UnionType) else (node,)
    return all(isinstance(choice, _SQL_TYPES) for choice in choices)


_SQL_TYPES = itemgetter(
    "NoneType", "BoolType", "IntType", "FloatType", "StrType", "BytesType", "DateTimeType", "DateType",
    "TimeType", "TimeDeltaType", "UUIDType", "DecimalType", "LiteralType",
)(vars(msgspec.inspect))  # fmt: skip
