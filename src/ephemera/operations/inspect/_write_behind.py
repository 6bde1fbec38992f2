"""The write-behind backlog: how much waits for SQL, its age, and the last flush.

It is read from the state of the shards in one round trip per declaration, without a search. When Redis is
down, it raises `ConnectionFailed`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec

from ephemera._stored_numbers import stored_int, stored_time
from ephemera.keyspace import Store
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords
from ephemera.wire import Client

_STATE = ("sealed", "count", "claimed_by", "flushed_at", "flushed_count")


class FlushingBatch(msgspec.Struct, frozen=True):
    """A batch that a flusher is writing to SQL."""

    shard: int
    size: int
    by: str
    since: datetime


class Backlog(msgspec.Struct, frozen=True):
    """The backlog of one declaration."""

    name: str
    holds: str
    """`counters` or `records`."""
    waiting: int
    limit: int
    oldest_age: float
    """Seconds that the oldest entry has waited."""
    flush_every: float
    """Seconds after which a flush is due, as declared."""
    shards: int
    last_flush: datetime | None
    """When the last batch was committed to SQL; None when the server knows of none."""
    last_flush_size: int
    """Entries in that batch."""
    flushing: tuple[FlushingBatch, ...]


async def backlog(store: Store, declared: DeferredCounters | DeferredRecords[Any]) -> Backlog:
    """Read the backlog of deferred counters or records."""
    bound: Any = store[declared]
    shards = declared.shards
    waiting, oldest, states = await asyncio.gather(
        bound.backlog(), bound.backlog_age(), _states(store.client("queue"), shards.keys(shards.state))
    )
    last = max((_number(flushed), _number(brought)) for _, _, _, flushed, brought in states)
    return Backlog(
        name=declared.name,
        holds="records" if isinstance(declared, DeferredRecords) else "counters",
        waiting=waiting,
        limit=shards.capacity * shards.count,
        oldest_age=oldest,
        flush_every=shards.flush_every.total_seconds(),
        shards=shards.count,
        last_flush=stored_time(last[0] / 1000) if last[0] else None,
        last_flush_size=last[1],
        flushing=tuple(
            FlushingBatch(shard, _number(count), (by or b"").decode("utf-8", "replace"), _moment(sealed))
            for shard, (sealed, count, by, _, _) in enumerate(states)
            if sealed
        ),
    )


async def _states(client: Client, keys: list[tuple[str, ...]]) -> list[list[bytes | None]]:
    asked = (client.call("HMGET", *state, *_STATE) for state in keys)
    return [*await asyncio.gather(*asked)]


def _number(text: bytes | None) -> int:
    return max(0, stored_int(text) or 0)


def _moment(number: bytes) -> datetime:
    """When a batch was sealed: its number is the server's time in microseconds."""
    return stored_time(_number(number) / 1e6) or datetime.max.replace(tzinfo=UTC)
