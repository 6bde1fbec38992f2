"""Counters that wait for SQL: adding to them, and reading what waits.

A row's counters are fields of its shard's hash: the values of the key columns and the measure, as in
`acme:2026-11:tokens`. Amounts are whole numbers; money is counted in millionths (`ephemera.patterns.usage`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ephemera.errors import InvalidField, InvalidValue, Unavailable, WrongFields
from ephemera.keyspace import FieldCodec, FieldValue, Stats
from ephemera.patterns.write_behind._batches import Batch, Row, Sink, Unread
from ephemera.patterns.write_behind._coalescing import Addition, Answer, Gathering, Pace, Shard
from ephemera.patterns.write_behind._queues import Queue, Sealed, shard_of
from ephemera.wire import Client, Script, ScriptPrefix, pack_argument

if TYPE_CHECKING:
    from ephemera.patterns.write_behind._declaration import DeferredCounters

COUNT = Script.load("ephemera.patterns.write_behind", "count")
MOST = 2**53 - 1
"""The largest amount of one addition: scripts are exact up to here."""
_KNOWN = 10_000  # additions whose place is remembered
_FIELD = FieldCodec(":")


class BoundCounters:
    """The counters of one store: what `store[COUNTERS]` gives."""

    def __init__(self, declared: DeferredCounters, client: Client, stats: Stats) -> None:
        self.declared = declared
        self.columns = (*declared.key, *declared.measures)
        self.stats = stats
        shards = declared.shards
        self.queue = Queue(shards, client, "hash", shards.keys(declared.pending, declared.sealed))
        self._client = client
        self._keys = shards.keys(declared.pending, declared.sealed, shards.state)
        self._limits = (shards.most, shards.once_kept)
        self._pace = Pace()
        self._shards = [self._shard(number) for number in range(shards.count)]
        self._filling: list[Shard] = []
        self._known: dict[tuple[FieldValue, ...], tuple[Shard, Addition]] = {}
        self._new_answer: Callable[[], Answer]

    def add(
        self, /, *, once: str | None = None, otherwise: Sink | None = None, **values: FieldValue
    ) -> Awaitable[bool]:
        """Add to the counters of a row, in one trip.

            await store[VIEWS].add(presentation_id="p1", view_count=1)

        With `once`, an id of the addition, it counts once however often it is made, for as long as
        `once_kept`; False when it was counted before. `BacklogFull` when there is no room. When Redis is
        down, `Unavailable`, unless `otherwise` is a sink to write to at once.
        """
        shard, addition = self._known.get((*values, *values.values())) or self._place(values)
        if once is not None or otherwise is not None:
            return self._add(shard, addition, values, once, otherwise)
        answers = shard.answers
        if not answers:
            self._fill(shard)
        answer = self._new_answer()
        shard.additions.append(addition)
        answers.append(answer)
        if len(answers) >= self._pace.together:
            shard.leave()
        return answer

    async def pending(self, /, **key: FieldValue) -> dict[str, int]:
        """What of a row is not in SQL yet, as far as Redis knows: a batch on its way counts."""
        row = row_name(self.declared, [key[name] for name in self._named(key)])
        pending, sealed, _ = self._keys[self.shard_of(row)]
        fields = [f"{row}:{measure}" for measure in self.declared.measures]
        calls = (self._client.call("HMGET", name, *fields) for name in (pending, sealed))
        waits, leaves = await asyncio.gather(*calls)
        sums = (int(one or 0) + int(two or 0) for one, two in zip(waits, leaves, strict=True))
        return dict(zip(self.declared.measures, sums, strict=True))

    async def waiting(self) -> int:
        """How many counters wait for SQL, in all shards."""
        calls = (self._client.call("HLEN", key) for keys in self._keys for key in keys[:2])
        return sum(await asyncio.gather(*calls))

    def shard_of(self, row: str) -> int:
        """Where a row's counters wait."""
        return shard_of(row, self.declared.shards.count)

    async def read(self, sealed: Sealed) -> Batch:
        """The rows of a sealed batch."""
        key = self._keys[sealed.shard][1]
        stored: Mapping[bytes, bytes] = await self._client.call("HGETALL", key)
        rows, unread = self._rows(stored)
        name = self.declared.name
        return Batch(name, sealed.shard, sealed.epoch, sealed.number, self.columns, rows, unread)

    def _shard(self, number: int) -> Shard:
        beginning = ScriptPrefix(COUNT, self._keys[number], self._limits)
        return Shard(self.declared, number, self._client, beginning, self._pace, self.stats)

    async def _add(
        self,
        shard: Shard,
        addition: Addition,
        values: dict[str, FieldValue],
        once: str | None,
        otherwise: Sink | None,
    ) -> bool:
        beginning = None
        if once is not None:
            flag = self.declared.shards.once.key(shard=shard.number, addition=once)
            beginning = ScriptPrefix(COUNT, (*self._keys[shard.number], flag), self._limits)
        answer: Answer = asyncio.get_running_loop().create_future()
        Gathering(shard, [addition], [answer]).leave(beginning)
        try:
            return await answer
        except Unavailable:
            if otherwise is None:
                raise
        key, amounts = self._split(values)
        await otherwise.write(self.columns, [(*key, *(amounts.get(m, 0) for m in self.declared.measures))])
        return True

    def _place(self, values: dict[str, FieldValue]) -> tuple[Shard, Addition]:
        """The shard and the counters of an addition; those of frequent ones are remembered."""
        key, amounts = self._split(values)
        row = row_name(self.declared, key)
        addition = tuple((pack_argument(f"{row}:{measure}"), amount) for measure, amount in amounts.items())
        if len(self._known) >= _KNOWN:
            self._known.clear()
        place = self._known[*values, *values.values()] = self._shards[self.shard_of(row)], addition
        return place

    def _fill(self, shard: Shard) -> None:
        """Have a shard that is about to take its first addition leave with this tick."""
        if not self._filling:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._leave)
            self._new_answer = loop.create_future
        self._filling.append(shard)

    def _leave(self) -> None:
        filling, self._filling = self._filling, []
        for shard in filling:
            shard.leave()

    def _split(self, values: dict[str, FieldValue]) -> tuple[list[FieldValue], dict[str, int]]:
        """The key's values in order, and the amounts."""
        declared = self.declared
        amounts = {name: values[name] for name in declared.measures if name in values}
        key = {name: value for name, value in values.items() if name not in amounts}
        if not amounts:
            raise WrongFields(declared.name, self.columns, tuple(values))
        return [key[name] for name in self._named(key)], checked(declared.name, amounts)

    def _named(self, key: Mapping[str, FieldValue]) -> tuple[str, ...]:
        if key.keys() != set(self.declared.key):
            raise WrongFields(self.declared.name, self.declared.key, tuple(key))
        return self.declared.key

    def _rows(self, stored: Mapping[bytes, bytes]) -> tuple[list[Row], tuple[Unread, ...]]:
        """Rows out of the fields of a hash; what is no counter of ours is put aside."""
        places = {measure: place for place, measure in enumerate(self.declared.measures)}
        rows: dict[str, tuple[list[str], list[int]]] = {}
        unread = []
        for field, amount in stored.items():
            try:
                row, _, measure = field.decode().rpartition(":")
                place, added = places[measure], int(amount)
                if row not in rows:
                    rows[row] = (key_of(row, len(self.declared.key)), [0] * len(places))
                rows[row][1][place] = added
            except (KeyError, ValueError):
                unread.append(Unread(b"%s=%s" % (field, amount), "it is no counter of this declaration"))
        return [(*key, *amounts) for key, amounts in rows.values()], tuple(unread)


def row_name(declared: DeferredCounters, key: list[FieldValue]) -> str:
    """How a row is written in the hash."""
    try:
        return ":".join(map(_FIELD.encode, key))
    except (TypeError, ValueError) as problem:
        raise InvalidField(declared.name, ", ".join(declared.key), str(problem)) from None


def key_of(row: str, parts: int) -> list[str]:
    """The key's values, as they were given; ValueError when there are not so many."""
    values = [value for value in map(_FIELD.decode, row.split(":")) if value is not None]
    if len(values) != parts or row.count(":") != parts - 1:
        raise ValueError(row)
    return values


def checked(name: str, amounts: Mapping[str, object]) -> dict[str, int]:
    """Amounts that are whole numbers which scripts can add exactly."""
    for measure, amount in amounts.items():
        if type(amount) is not int or not -MOST <= amount <= MOST:
            expected = f"{measure} as a whole number up to 2**53 (money: see usage.micros)"
            raise InvalidValue(name, expected, repr(amount))
    return {measure: amount for measure, amount in amounts.items() if isinstance(amount, int)}
