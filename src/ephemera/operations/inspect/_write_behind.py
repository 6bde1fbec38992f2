"""How much waits for SQL, for how long, and when the last flush was; one trip for each declaration.

The shards' own state says it (`patterns.write_behind`): nothing is searched for. With Redis down it raises
`ConnectionFailed`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec

from ephemera.keyspace import Store
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords
from ephemera.wire import Client

_STATE = ("sealed", "count", "by", "flushed", "brought")


class OnItsWay(msgspec.Struct, frozen=True):
    """A batch that a flusher brings to SQL."""

    shard: int
    size: int
    by: str
    since: datetime


class Backlog(msgspec.Struct, frozen=True):
    """How one declaration stands."""

    name: str
    holds: str
    """`counters` or `records`."""
    waiting: int
    limit: int
    oldest: float
    """Seconds that the oldest waits."""
    flush_every: float
    """Seconds after which what waits is due, as declared."""
    shards: int
    last_flush: datetime | None
    """When the last batch was in SQL and forgotten here; None when none was since the server had its data."""
    last_brought: int
    """How many it brought."""
    on_its_way: tuple[OnItsWay, ...]


async def backlog(store: Store, declared: DeferredCounters | DeferredRecords[Any]) -> Backlog:
    """How counters or records stand that wait for SQL."""
    live: Any = store[declared]
    shards = declared.shards
    waiting, oldest, states = await asyncio.gather(
        live.waiting(), live.queue.age(), _states(store.client("queue"), shards.keys(shards.state))
    )
    last = max((_number(flushed), _number(brought)) for _, _, _, flushed, brought in states)
    return Backlog(
        name=declared.name,
        holds="records" if isinstance(declared, DeferredRecords) else "counters",
        waiting=waiting,
        limit=shards.most * shards.count,
        oldest=oldest,
        flush_every=shards.flush_every.total_seconds(),
        shards=shards.count,
        last_flush=datetime.fromtimestamp(last[0] / 1000, UTC) if last[0] else None,
        last_brought=last[1],
        on_its_way=tuple(
            OnItsWay(shard, _number(count), (by or b"").decode("utf-8", "replace"), _moment(sealed))
            for shard, (sealed, count, by, _, _) in enumerate(states)
            if sealed
        ),
    )


async def _states(client: Client, keys: list[tuple[str, ...]]) -> list[list[bytes | None]]:
    asked = (client.call("HMGET", *state, *_STATE) for state in keys)
    return [*await asyncio.gather(*asked)]


def _number(text: bytes | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _moment(number: bytes) -> datetime:
    """When a batch was sealed: its number is the server's microseconds then."""
    return datetime.fromtimestamp(_number(number) / 1e6, UTC)
