"""Batches between Redis and SQL: the shards they come from, and the port that a database implements.

A shard is a number, and the hash tag of its keys. On a cluster the shards spread over the nodes, and since
their numbers are known, no key is ever searched for. Things that belong together (a counter, or records with
the same partition key) are always in the same shard.

A batch is identified by name, shard, epoch and number. The numbers of one shard only grow, and a shard has
at most one sealed batch at a time. So a database needs to remember one number per shard: a batch whose
number is not larger has been applied already. The scripts give a sealed batch to one flusher at a time, for
as long as its claim lasts. That only saves work: two flushers with the same batch do no harm, because SQL
applies it once and it is removed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias
from zlib import crc32

from ephemera._stored_numbers import stored_int
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Keyspace, check_declaration, fixed, permanent
from ephemera.wire import Client, Script

SEAL = Script.load("ephemera.patterns.write_behind", "seal")
ACKNOWLEDGE = Script.load("ephemera.patterns.write_behind", "acknowledge")
RENUMBER = Script.load("ephemera.patterns.write_behind", "renumber")

IDS_KEPT = timedelta(days=7)
"""How long a database remembers ids: longer than callers retry, and than a backlog waits for its flush."""
_LONGEST_ENTRY = 200  # characters of an entry that are part of its id
_MOVED_PER_CALL = 500  # counters that one call of `seal` moves: it blocks the server for 1 or 2 ms

UNTIL_IN_SQL = permanent(reason="it is not in SQL yet; a flush removes it")
IN_SHARD: dict[str, Any] = {"hash_tag": "shard", "role": "queue"}

Row: TypeAlias = tuple[Any, ...]
"""The values of one row, in the order of its batch's columns."""


class Undecodable(NamedTuple):
    """A stored value that does not match the declaration, and why."""

    data: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are applied to SQL together, exactly once."""

    name: str
    shard: int
    epoch: str
    number: int
    columns: tuple[str, ...]
    rows: list[Row]
    undecodable: tuple[Undecodable, ...] = ()
    ids: Mapping[int, str] = field(default_factory=dict)
    """Ids of rows, by their position: the database leaves out a row whose id it has."""

    def rows_except(self, known: Collection[str]) -> list[Row]:
        """Return the rows, without those whose id is known or comes again."""
        seen, rows = set(known), list[Row]()
        for position, row in enumerate(self.rows):
            if (identity := self.ids.get(position)) is None:
                rows.append(row)
            elif identity not in seen:
                seen.add(identity)
                rows.append(row)
        return rows

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as dicts by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def __repr__(self) -> str:
        return f"<Batch {self.number} of {self.name!r}, shard {self.shard}: {len(self.rows)} rows>"


@dataclass(frozen=True, slots=True)
class Applied:
    """A sink has the batch: it wrote it now, or had it already (`duplicate`)."""

    duplicate: bool = False
    rejected: int = 0
    repeated: int = 0
    """Rows that were left out because the database has their id."""


@dataclass(frozen=True, slots=True)
class SequenceRegressed:
    """A sink knows a larger number of another epoch: Redis lost its own, and its clock was set back."""

    last_number: int


class Sink(Protocol):
    """The port to a database. `CounterTable` and `RecordTable` implement it for PostgreSQL."""

    async def apply(self, batch: Batch) -> Applied | SequenceRegressed:
        """Write the rows and the batch's number in one transaction, unless the number is already there.

        The number is there when the shard's last one is at least as large and of the same epoch. If it is of
        another epoch, return `SequenceRegressed`. Store rows that the database rejects with the reason, in
        the same transaction. Store the ids of `batch.ids` there too, for a week, and leave out the rows whose
        id is stored already. Any exception means that nothing was written as far as is known: the flusher
        brings the batch again.
        """

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row], ids: Sequence[str] = ()) -> bool:
        """Write rows immediately, without a batch: the fallback of callers while Redis is down.

        With `ids`, one for each row, store them and leave out rows whose id is stored, as in `apply`; False
        when that left nothing to write.
        """


def shard_of(text: str, shards: int) -> int:
    """The shard of a text, the same in every process. A CRC alone would not spread similar texts."""
    return (crc32(text.encode("utf-8", "surrogateescape")) * 0x9E3779B1 & 0xFFFFFFFF) * shards >> 32


class Shards:
    """The limits that counters and records share, and the keys each shard has besides its contents."""

    def __init__(
        self,
        catalogue: Catalogue,
        name: str,
        *,
        shards: int,
        flush_every: timedelta,
        batch: int,
        backlog: int,
        idempotency_ttl: timedelta,
    ) -> None:
        check_declaration(catalogue, name, flush_every=flush_every, idempotency_ttl=idempotency_ttl)
        if not 1 <= shards <= 1024 or batch < 1 or backlog < shards:
            raise InvalidDeclaration(
                name,
                f"{shards} shards, batches of {batch}, a backlog of {backlog}",
                "use 1 to 1024 shards, a batch of at least 1, and a backlog of at least 1 per shard",
            )
        if flush_every <= timedelta(0) or idempotency_ttl <= timedelta(0):
            raise InvalidDeclaration(
                name,
                f"flush_every={flush_every}, idempotency_ttl={idempotency_ttl}",
                "give positive durations",
            )
        self.name = name
        self.count = shards
        self.flush_every = flush_every
        self.batch = batch
        self.capacity = backlog // shards
        """The backlog limit of one shard."""
        self.idempotency_ttl = str(round(idempotency_ttl.total_seconds() * 1000))
        self.state = catalogue.mapping(
            f"{name}:state:{{shard}}",
            str,
            lifetime=permanent(reason="one small hash per shard; it numbers the batches"),
            purpose="The numbers of a shard's last batch and of its sealed one",
            if_lost="numbers continue from the server's clock; the backlog is due at once",
            **IN_SHARD,
        )
        self.idempotency = catalogue.flag(
            f"{name}:idempotency:{{shard}}:{{idempotency_key}}",
            lifetime=fixed(seconds=idempotency_ttl.total_seconds(), outlives="the retries of one addition"),
            purpose="An addition with this idempotency key was made",
            if_lost="a retried addition counts again",
            **IN_SHARD,
        )

    def keys(self, *keyspaces: Keyspace[Any]) -> list[tuple[str, ...]]:
        """Return the keys of these keyspaces, shard by shard."""
        return [tuple(each.key(shard=shard) for each in keyspaces) for shard in range(self.count)]

    def of(self, text: str) -> int:
        """Return the number of the shard that a text belongs to."""
        return shard_of(text, self.count)

    def id_of(self, shard: int, entry: str) -> str:
        """Return the id under which a database remembers an entry with an idempotency key.

        A long entry, which no index of a database takes, is replaced by its digest. That has no colon, and
        every entry has one.
        """
        if len(entry) > _LONGEST_ENTRY:
            entry = blake2b(entry.encode(), digest_size=32).hexdigest()
        return f"{self.name}:{shard}:{entry}"


class Sealed(NamedTuple):
    """A sealed batch whose rows have not been read yet."""

    shard: int
    epoch: str
    number: int
    size: int
    fresh: bool  # sealed by this call, not by an earlier one
    more: bool  # entries that were pending then may be left
    age: float  # seconds since it was sealed


NotSealed: TypeAlias = Literal["nothing due", "claimed elsewhere"]
Fetch: TypeAlias = Callable[[Sealed], Awaitable["Fetched"]]


class Fetched(NamedTuple):
    """The contents of a sealed batch: rows, what is none, and the ids of rows by their position."""

    rows: list[Row]
    undecodable: tuple[Undecodable, ...]
    ids: dict[int, str]


class ShardQueue:
    """The shards of one declaration on a server: what a flusher works with.

    `kind` is the Redis type that holds the contents, `fetch` reads and decodes those of a sealed batch.
    """

    def __init__(
        self,
        shards: Shards,
        client: Client,
        kind: Literal["hash", "list"],
        keys: list[tuple[str, ...]],
        columns: tuple[str, ...],
        fetch: Fetch,
    ) -> None:
        self.shards = shards
        self._client = client
        self._kind = kind
        self._keys = keys
        self._states = shards.keys(shards.state)
        self._columns = columns
        self._fetch = fetch

    async def seal(
        self, shard: int, flusher: str, claim: int, epoch: str, max_age: int, *, new_pass: bool = True
    ) -> Sealed | NotSealed:
        """Seal a batch of a shard's contents, or claim the one that is sealed already.

        `claim` is how long no other flusher is given the batch, `max_age` the age at which the contents are
        due, both in milliseconds. `epoch` is used when the shard's state has to be created. A new pass takes
        all counters that are pending now, batch by batch, until a batch says that there are no more.
        """
        keys = (*self._states[shard], *self._keys[shard])
        limits = (flusher, claim, epoch, max_age, self.shards.batch, _MOVED_PER_CALL)
        reply = await self._client.run(SEAL, keys, (*limits, int(new_pass)))
        while reply == 1:
            reply = await self._client.run(SEAL, keys, (*limits, 0))
        if not isinstance(reply, list):
            return "nothing due" if reply is None else "claimed elsewhere"
        known_epoch, number, count, fresh, more, age = reply
        return Sealed(shard, known_epoch.decode(), number, count, bool(fresh), bool(more), age / 1000)

    async def read(self, sealed: Sealed) -> Batch:
        """Read the rows of a sealed batch."""
        fetched = await self._fetch(sealed)
        identity = (self.shards.name, sealed.shard, sealed.epoch, sealed.number)
        return Batch(*identity, self._columns, *fetched)

    async def acknowledge(self, batch: Batch) -> bool:
        """Remove a batch that is in SQL; False when it was removed before."""
        keys = (*self._states[batch.shard], self._keys[batch.shard][-1])
        arguments = (batch.epoch, batch.number, self._kind)
        return bool(await self._client.run(ACKNOWLEDGE, keys, arguments))

    async def renumber(self, batch: Batch, above: int) -> bool:
        """Give a batch a larger number; False when it was removed before."""
        arguments = (batch.epoch, batch.number, above)
        return bool(await self._client.run(RENUMBER, self._states[batch.shard], arguments))

    async def age(self) -> float:
        """Return the age in seconds of the oldest entry in all shards, a sealed batch from its sealing."""
        states = (self._client.call("HMGET", *state, "since", "sealed") for state in self._states)
        clock, *found = await asyncio.gather(self._client.call("TIME"), *states)
        oldest = now = int(clock[0]) * 1_000_000 + int(clock[1])
        for since, sealed in found:
            oldest = min(oldest, (stored_int(since) or 0) * 1000 or now, stored_int(sealed) or now)
        return (now - oldest) / 1e6
