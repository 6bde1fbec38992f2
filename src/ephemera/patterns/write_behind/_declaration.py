"""The declarations: counters and records that gather in Redis, and the keyspaces of their shards.

A shard is a number, and the hash tag of its keys: on a cluster shards spread over the nodes, and since their
numbers are known, nothing is ever searched for. What belongs together (a counter, records `by` the same text)
is always in the same shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Store, check_declaration, check_durations, fixed, permanent
from ephemera.patterns.write_behind._counters import BoundCounters
from ephemera.patterns.write_behind._records import BoundRecords

S = TypeVar("S", bound=msgspec.Struct)

_UNTIL_IN_SQL = permanent(reason="it is not in SQL yet; a flush removes it")
_IN_SHARD: dict[str, Any] = {"hash_tag": "shard", "role": "queue"}


class Shards:
    """The limits that counters and records share, and the keys of each shard beside what waits."""

    def __init__(
        self,
        catalogue: Catalogue,
        name: str,
        *,
        shards: int,
        flush_every: timedelta,
        batch: int,
        backlog: int,
        once_kept: timedelta,
    ) -> None:
        check_declaration(catalogue, name, flush_every=flush_every, once_kept=once_kept)
        if not 1 <= shards <= 1024 or batch < 1 or backlog < shards:
            raise InvalidDeclaration(
                name,
                f"{shards} shards, batches of {batch}, a backlog of {backlog}",
                "use 1 to 1024 shards, a batch of at least 1, and a backlog of at least one a shard",
            )
        if flush_every <= timedelta(0) or once_kept <= timedelta(0):
            raise InvalidDeclaration(
                name,
                f"flush_every={flush_every}, once_kept={once_kept}",
                "give positive durations",
            )
        self.name = name
        self.count = shards
        self.flush_every = flush_every
        self.batch = batch
        self.most = backlog // shards
        self.once_kept = str(round(once_kept.total_seconds() * 1000))
        self.state = catalogue.mapping(
            f"{name}:state:{{shard}}",
            str,
            lifetime=permanent(reason="one small hash a shard; it numbers the batches"),
            purpose="The number of a shard's last batch, and of the one on its way to SQL",
            if_lost="numbers go on from the server's clock; what waits is due at once",
            **_IN_SHARD,
        )
        self.once = catalogue.flag(
            f"{name}:once:{{shard}}:{{addition}}",
            lifetime=fixed(seconds=once_kept.total_seconds(), outlives="the repetitions of one addition"),
            purpose="That an addition with an id was made",
            if_lost="the same addition, made again, counts again",
            **_IN_SHARD,
        )

    def keys(self, *spaces: Any) -> list[tuple[str, ...]]:
        """The keys of these spaces, shard by shard."""
        return [tuple(space.key(shard=shard) for space in spaces) for shard in range(self.count)]


class DeferredCounters:
    """Counters that reach rows of SQL in batches: `store[COUNTERS]` gives the `BoundCounters` of a store.

    `key` names the columns that tell the rows apart, `measures` the columns that are added to. What waits
    reaches SQL when it is `flush_every` old, or when a shard has `batch` counters. At `backlog` counters
    further ones are refused with `BacklogFull`; those that wait already can still be added to. One shard is
    best on a server of its own; on a cluster, several spread over the nodes.
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
        batch: int = 10_000,
        backlog: int = 1_000_000,
        shards: int = 1,
        once_kept: timedelta = timedelta(hours=1),
    ) -> None:
        self.key, self.measures = tuple(key), tuple(measures)
        names = (*self.key, *self.measures)
        if not self.key or not self.measures or len(set(names)) < len(names):
            raise InvalidDeclaration(name, f"the columns {names}", "name at least one of each, none twice")
        if reserved := {"once", "otherwise"} & set(names):
            raise InvalidDeclaration(name, f"{reserved.pop()!r} cannot name a column", "rename it")
        self.shards = Shards(
            catalogue,
            name,
            shards=shards,
            flush_every=flush_every,
            batch=batch,
            backlog=backlog,
            once_kept=once_kept,
        )
        self.pending = catalogue.mapping(
            f"{name}:pending:{{shard}}",
            int,
            lifetime=_UNTIL_IN_SQL,
            purpose=purpose,
            saves="an UPDATE for each addition",
            invalidated_by=("its flush",),
            if_lost="what was added since the last flush is lost",
            **_IN_SHARD,
        )
        self.sealed = catalogue.mapping(
            f"{name}:sealed:{{shard}}",
            int,
            lifetime=_UNTIL_IN_SQL,
            purpose="A batch of these counters on its way to SQL",
            invalidated_by=("its arrival",),
            if_lost="the batch is lost unless SQL has it",
            **_IN_SHARD,
        )
        catalogue.patterns.append(self)

    @property
    def name(self) -> str:
        """What the keys begin with, and what SQL knows the batches by."""
        return self.shards.name

    def flush_each(self, every: timedelta) -> None:
        """Have this process flush what is so old, in place of what was declared: as a setting says."""
        check_durations(self.name, every=every)
        if every <= timedelta(0):
            raise InvalidDeclaration(self.name, f"flush_each({every})", "give a positive duration")
        self.shards.flush_every = every

    def bind(self, store: Store) -> BoundCounters:
        """The counters of a store that has their catalogue."""
        for space in (self.pending, self.sealed, self.shards.state, self.shards.once):
            store[space]  # refuses a store without it
        return BoundCounters(self, store.client("queue"), store[self.pending].stats)

    def __repr__(self) -> str:
        return f"<DeferredCounters {self.name!r}>"


class DeferredRecords(Generic[S]):
    """Records that reach a table of SQL in batches: `store[RECORDS]` gives the `BoundRecords` of a store.

    The fields of `record` are the columns. Records reach SQL when they are `flush_every` old, or when a shard
    has `batch` of them, which is also the most that one transaction writes. At `backlog` records further ones
    are refused with `BacklogFull`.
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
        once_kept: timedelta = timedelta(hours=1),
    ) -> None:
        self.record = record
        self.shards = Shards(
            catalogue,
            name,
            shards=shards,
            flush_every=flush_every,
            batch=batch,
            backlog=backlog,
            once_kept=once_kept,
        )
        self.waiting = catalogue.list(
            f"{name}:pending:{{shard}}",
            bytes,
            lifetime=_UNTIL_IN_SQL,
            purpose=purpose,
            saves="an INSERT for each record",
            invalidated_by=("its flush",),
            if_lost="what was recorded since the last flush is lost",
            **_IN_SHARD,
        )
        catalogue.patterns.append(self)

    @property
    def name(self) -> str:
        """What the keys begin with, and what SQL knows the batches by."""
        return self.shards.name

    def bind(self, store: Store) -> BoundRecords[S]:
        """The records of a store that has their catalogue."""
        for space in (self.waiting, self.shards.state, self.shards.once):
            store[space]  # refuses a store without it
        return BoundRecords(self, store.client("queue"), store[self.waiting].stats)

    def __repr__(self) -> str:
        return f"<DeferredRecords {self.name!r} of {self.record.__name__}>"
