"""Counters that are flushed to SQL: their declaration, adding to them, and reading what is pending.

The counters of a row are fields of its shard's hash, named by the values of the key columns and the measure,
as in `acme:2026-11:tokens`. Amounts are whole numbers; money is counted in millionths
(`ephemera.patterns.usage`).

An addition with an idempotency key and a fallback may reach SQL on two ways: through Redis, and, when it is
retried during an outage, directly. Only SQL sees both. So it is a counter of its own, as in
`:call-17:acme:2026-11:tokens`, whose name is the id that SQL remembers, and SQL adds it once.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from ephemera._bounded_cache import BoundedCache
from ephemera._stored_numbers import stored_int
from ephemera.errors import InvalidDeclaration, InvalidField, InvalidValue, Unavailable, WrongFields
from ephemera.keyspace import Catalogue, FieldCodec, FieldValue, Stats, Store
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
from ephemera.patterns.write_behind._coalesced_calls import Addition, CallSizer, CoalescedCall, ShardBuffer
from ephemera.wire import Client, Script, ScriptPrefix, pack_argument

if TYPE_CHECKING:  # these need the extra `sql`
    from ephemera.patterns.write_behind._tables import SinkTables
    from ephemera.sql import SqlSchema

COUNT = Script.load("ephemera.patterns.write_behind", "count")
READ_PENDING = Script.load("ephemera.patterns.write_behind", "read_pending")
_MAX_AMOUNT = 2**53 - 1  # scripts are exact up to here
_PER_SCAN = 2000  # counters that one HSCAN reads
_SCANS = 3  # of a batch, when one returns less than was sealed: the server restarted in the middle of it
_MEMOIZED = 10_000  # additions whose shard and packed counters are remembered
_FORMAT = FieldCodec(":")
_RESERVED = frozenset({"idempotency_key", "fallback"})


class DeferredCounters:
    """Counters that reach rows of SQL in batches. `store[COUNTERS]` is a `BoundCounters`.

    Args:
        catalogue: The catalogue that declares the keys.
        name: The name of the counters: part of their keys, and of their rows in the sinks' tables.
        key: The columns that identify a row.
        measures: The columns that are added to.
        purpose: What is counted, in a few words, for the generated documentation.
        flush_every: The age at which pending amounts are due; by default a minute.
        batch: The number of pending counters at which a shard is due whatever its age, and the most that one
            transaction writes.
        backlog: The number of counters at which new ones are refused with `BacklogFull`. Counters that are
            pending already can still be added to.
        shards: One is best on a single server; on a cluster, several spread over the nodes.
        idempotency_ttl: How long idempotency keys are remembered; by default an hour.
        tables: The tables of the sinks for PostgreSQL; by default `write_behind_last_batches` and so on.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        name: str,
        *,
        key: Sequence[str],
        measures: Sequence[str],
        purpose: str,
        flush_every: timedelta = timedelta(minutes=1),
        batch: int = 20_000,
        backlog: int = 1_000_000,
        shards: int = 1,
        idempotency_ttl: timedelta = timedelta(hours=1),
        tables: SinkTables | None = None,
    ) -> None:
        self.tables = tables
        self.key, self.measures = tuple(key), tuple(measures)
        names = (*self.key, *self.measures)
        if not self.key or not self.measures or len(set(names)) < len(names):
            raise InvalidDeclaration(name, f"the columns {names}", "name at least one of each, none twice")
        if reserved := _RESERVED & set(names):
            raise InvalidDeclaration(name, f"{min(reserved)!r} cannot name a column", "rename it")
        self.shards = Shards(
            catalogue,
            name,
            shards=shards,
            flush_every=flush_every,
            batch=batch,
            backlog=backlog,
            idempotency_ttl=idempotency_ttl,
        )
        self.pending = catalogue.mapping(
            f"{name}:pending:{{shard}}",
            int,
            lifetime=UNTIL_IN_SQL,
            purpose=purpose,
            saves="an UPDATE for each addition",
            invalidated_by=("its flush",),
            if_lost="what was added since the last flush is lost",
            **IN_SHARD,
        )
        self.sealed = catalogue.mapping(
            f"{name}:sealed:{{shard}}",
            int,
            lifetime=UNTIL_IN_SQL,
            purpose="A batch of these counters that is being written to SQL",
            invalidated_by=("its acknowledgement",),
            if_lost="the batch is lost unless SQL has it",
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

    def bind(self, store: Store) -> BoundCounters:
        """Return the counters of a store; `store[COUNTERS]` calls it."""
        for keyspace in (self.pending, self.sealed, self.shards.state, self.shards.idempotency):
            store[keyspace]  # refuses a store without it
        return BoundCounters(self, store.client("queue"), store[self.pending].stats)

    def __repr__(self) -> str:
        return f"<DeferredCounters {self.name!r}>"


class CounterShard(NamedTuple):
    """The keys and limits of one shard, as the scripts take them."""

    number: int
    keys: tuple[str, ...]  # pending, sealed, state
    limits: tuple[int, str]  # the capacity, and the TTL of idempotency keys in milliseconds


class CounterLayout:
    """Where the counters of a declaration are in Redis: for scripts of other patterns that add to them."""

    def __init__(self, declared: DeferredCounters) -> None:
        self._declared = declared
        shards = declared.shards
        limits = (shards.capacity, shards.idempotency_ttl)
        keys = shards.keys(declared.pending, declared.sealed, shards.state)
        self.shards = [CounterShard(number, each, limits) for number, each in enumerate(keys)]

    def shard_of(self, text: str) -> CounterShard:
        """Return the shard that a text belongs to; the counters of a row are in the shard of its name."""
        return self.shards[self._declared.shards.of(text)]

    def idempotency_key(self, shard: int, key: str) -> str:
        """Return the Redis key that remembers an addition."""
        return self._declared.shards.idempotency.key(shard=shard, idempotency_key=key)

    def row_name(self, key: Sequence[FieldValue]) -> str:
        """Return the name of a row: its counters are the fields `<name>:<measure>`."""
        try:
            return ":".join(map(_FORMAT.encode, key))
        except (TypeError, ValueError) as problem:
            raise InvalidField(self._declared.name, ", ".join(self._declared.key), str(problem)) from None

    def check_amounts(self, amounts: Mapping[str, object]) -> dict[str, int]:
        """Return amounts that are whole numbers which scripts add exactly; otherwise `InvalidValue`."""
        checked: dict[str, int] = {}
        for measure, amount in amounts.items():
            if type(amount) is not int or not -_MAX_AMOUNT <= amount <= _MAX_AMOUNT:
                expected = f"{measure} as a whole number up to 2**53 (money: see usage.micros)"
                raise InvalidValue(self._declared.name, expected, repr(amount))
            checked[measure] = amount
        return checked


class BoundCounters:
    """The counters of one store: what `store[COUNTERS]` gives."""

    def __init__(self, declared: DeferredCounters, client: Client, stats: Stats) -> None:
        self.declared = declared
        self.stats = stats
        shards = declared.shards
        self._columns = (*declared.key, *declared.measures)
        keys = shards.keys(declared.pending, declared.sealed)
        self._queue = ShardQueue(shards, client, "hash", keys, self._columns, self._fetch)
        self._client = client
        self._layout = CounterLayout(declared)
        self._sizer = CallSizer()
        self._buffers = [self._buffer(shard) for shard in self._layout.shards]
        self._filling: list[ShardBuffer] = []
        self._memo = BoundedCache[tuple[tuple[str, FieldValue], ...], tuple[ShardBuffer, Addition]](_MEMOIZED)
        self._new_future: Callable[[], Future[bool]]

    def add(
        self, /, *, idempotency_key: str | None = None, fallback: Sink | None = None, **values: FieldValue
    ) -> Awaitable[bool]:
        """Add to the counters of a row, in one round trip.

            await store[VIEWS].add(presentation_id="p1", view_count=1)

        With an `idempotency_key` the addition counts once however often it is retried, for as long as
        `idempotency_ttl`; False when it was counted before. Raises `BacklogFull` when there is no room for a
        new counter. When Redis is down, raises `Unavailable`, or writes to the sink `fallback` if there is
        one. With both, it counts once whichever way it is retried, within a week; give the same fallback
        each time.
        """
        buffer, addition = self._memo.get(tuple(values.items())) or self._resolve(values)
        if idempotency_key is not None or fallback is not None:
            return self._add_alone(buffer, addition, values, idempotency_key, fallback)
        futures = buffer.futures
        if not futures:
            self._schedule(buffer)
        future = self._new_future()
        buffer.additions.append(addition)
        futures.append(future)
        if len(futures) >= self._sizer.size:
            buffer.send()
        return future

    async def pending(self, /, **key: FieldValue) -> dict[str, int]:
        """Return the amounts of a row that Redis holds, including those of a sealed batch.

        Not those with an idempotency key and a fallback: SQL decides whether they count.
        """
        row = self._layout.row_name([key[name] for name in self._key_names(key)])
        measures = self.declared.measures
        fields = [f"{row}:{measure}" for measure in measures]
        found = await self._client.run(READ_PENDING, self._layout.shard_of(row).keys[:2], fields)
        pairs = zip(found[: len(measures)], found[len(measures) :], strict=True)
        sums = ((stored_int(one) or 0) + (stored_int(two) or 0) for one, two in pairs)
        return dict(zip(measures, sums, strict=True))

    async def backlog(self) -> int:
        """Return how many counters are not in SQL yet, in all shards."""
        calls = (self._client.call("HLEN", key) for shard in self._layout.shards for key in shard.keys[:2])
        return sum(await asyncio.gather(*calls))

    async def backlog_age(self) -> float:
        """Return the age of the oldest pending addition in seconds, in one round trip."""
        return await self._queue.age()

    def _buffer(self, shard: CounterShard) -> ShardBuffer:
        prefix = ScriptPrefix(COUNT, shard.keys, shard.limits)
        name, capacity = self.declared.name, self.declared.shards.capacity
        return ShardBuffer(name, shard.number, capacity, self._client, prefix, self._sizer, self.stats)

    async def _add_alone(
        self,
        buffer: ShardBuffer,
        addition: Addition,
        values: dict[str, FieldValue],
        idempotency_key: str | None,
        fallback: Sink | None,
    ) -> bool:
        prefix, names = None, list[str]()
        if idempotency_key is not None:
            shard = self._layout.shards[buffer.number]
            flag = self._layout.idempotency_key(buffer.number, idempotency_key)
            prefix = ScriptPrefix(COUNT, (*shard.keys, flag), shard.limits)
            if fallback is not None:
                addition, names = self._counters_of_its_own(values, idempotency_key)
        future: Future[bool] = asyncio.get_running_loop().create_future()
        CoalescedCall(buffer, [addition], [future]).send(prefix)
        try:
            return await future
        except Unavailable:
            if fallback is None:
                raise
        key, amounts = self._split(values)
        measures = self.declared.measures
        if not names:
            return await fallback.write(self._columns, [(*key, *(amounts.get(m, 0) for m in measures))])
        rows = [(*key, *(amounts[m] if m == one else 0 for m in measures)) for one in amounts]
        ids = [self.declared.shards.id_of(buffer.number, name) for name in names]
        return await fallback.write(self._columns, rows, ids)

    def _counters_of_its_own(
        self, values: dict[str, FieldValue], idempotency_key: str
    ) -> tuple[Addition, list[str]]:
        """Return an addition whose counters are named for its idempotency key, and their names."""
        key, amounts = self._split(values)
        row = f"{_FORMAT.encode(idempotency_key)}:{self._layout.row_name(key)}"
        names = [f"{row}:{measure}" for measure in amounts]
        fields = (pack_argument(f":{name}") for name in names)
        return tuple(zip(fields, amounts.values(), strict=True)), names

    def _resolve(self, values: dict[str, FieldValue]) -> tuple[ShardBuffer, Addition]:
        """Find the shard and the counters of an addition, and remember them."""
        key, amounts = self._split(values)
        row = self._layout.row_name(key)
        addition = tuple((pack_argument(f"{row}:{measure}"), amount) for measure, amount in amounts.items())
        resolved = self._buffers[self._layout.shard_of(row).number], addition
        self._memo[tuple(values.items())] = resolved
        return resolved

    def _schedule(self, buffer: ShardBuffer) -> None:
        """Have a buffer that is about to take its first addition sent at the end of this tick."""
        if not self._filling:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._send_all)
            self._new_future = loop.create_future
        self._filling.append(buffer)

    def _send_all(self) -> None:
        filling, self._filling = self._filling, []
        for buffer in filling:
            buffer.send()

    def _split(self, values: dict[str, FieldValue]) -> tuple[list[FieldValue], dict[str, int]]:
        """Split the arguments of `add` into the key's values in order, and the amounts."""
        declared = self.declared
        amounts = {name: values[name] for name in declared.measures if name in values}
        key = {name: value for name, value in values.items() if name not in amounts}
        if not amounts:
            raise WrongFields(declared.name, self._columns, tuple(values))
        return [key[name] for name in self._key_names(key)], self._layout.check_amounts(amounts)

    def _key_names(self, key: Mapping[str, FieldValue]) -> tuple[str, ...]:
        if key.keys() != set(self.declared.key):
            raise WrongFields(self.declared.name, self.declared.key, tuple(key))
        return self.declared.key

    async def _fetch(self, sealed: Sealed) -> Fetched:
        """Read a sealed batch: rows out of the fields of a hash, and fields that are not counters of ours."""
        positions = {measure: position for position, measure in enumerate(self.declared.measures)}
        rows: dict[str, tuple[list[str], list[int]]] = {}
        ids: dict[str, str] = {}  # by the name of the row, which has the idempotency key in front then
        undecodable = []
        for field, amount in (await self._read_sealed(sealed)).items():
            try:
                name = field.decode()
                row, _, measure = name.rpartition(":")
                position, added = positions[measure], int(amount)
                if name[0] == ":":  # a row for each: the id is that of one counter
                    row, ids[name] = name, self.declared.shards.id_of(sealed.shard, name[1:])
                    rows[row] = (
                        _parse_row_name(name[1:], len(self.declared.key) + 2)[1:-1],
                        [0] * len(positions),
                    )
                elif row not in rows:
                    rows[row] = (_parse_row_name(row, len(self.declared.key)), [0] * len(positions))
                rows[row][1][position] = added
            except (KeyError, ValueError):
                data = b"%s=%s" % (field, amount)
                undecodable.append(Undecodable(data, "it is not a counter of this declaration"))
        found: list[Row] = [(*key, *amounts) for key, amounts in rows.values()]
        numbered = {position: ids[row] for position, row in enumerate(rows) if row in ids} if ids else {}
        return Fetched(found, tuple(undecodable), numbered)

    async def _read_sealed(self, sealed: Sealed) -> dict[bytes, bytes]:
        """Read the sealed hash in bounded pieces; it does not change, so a complete scan returns it all."""
        key = self._layout.shards[sealed.shard].keys[1]
        found: dict[bytes, bytes] = {}
        for _ in range(_SCANS):
            cursor: Any = b"0"
            while True:
                cursor, stored = await self._client.call("HSCAN", key, cursor, "COUNT", _PER_SCAN)
                found.update(zip(stored[::2], stored[1::2], strict=True))
                if cursor == b"0":
                    break
            if len(found) >= sealed.size:
                break
        return found


def _parse_row_name(row: str, parts: int) -> list[str]:
    """Return the key's values as they were given; ValueError when their number is wrong."""
    values = [value for value in map(_FORMAT.decode, row.split(":")) if value is not None]
    if len(values) != parts or row.count(":") != parts - 1:
        raise ValueError(row)
    return values
