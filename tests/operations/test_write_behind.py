"""The write-behind backlog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Store, connect
from ephemera.operations.inspect import backlog
from ephemera.patterns.write_behind import Applied, Batch, Flusher
from ephemera.patterns.write_behind._batches import Sealed
from tests.patterns.write_behind_fixtures import CATALOGUE, CLICKS, EVENTS, VOTES, Event, Vote


class Taken:
    """A sink that accepts everything."""

    async def apply(self, batch: Batch) -> Applied:
        """It has it."""
        return Applied()

    async def write(self, columns: Any, rows: Any, ids: Any = ()) -> bool:
        """It has them."""
        return True


@pytest.fixture(params=["server", "cluster"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A server, and a cluster, with an empty backlog."""
    async with connect(request.getfixturevalue(request.param).url, CATALOGUE) as opened:
        of_each = (CLICKS.shards, CLICKS.pending, CLICKS.sealed), (VOTES.shards, VOTES.pending)
        for shards, *spaces in (*of_each, (EVENTS.shards, EVENTS.pending)):
            for key in (key for keys in shards.keys(*spaces, shards.state) for key in keys):
                await opened.call("UNLINK", key)
        yield opened


async def test_an_empty_backlog(store: Store) -> None:
    """Before the first addition everything is 0, and there is no last flush."""
    seen = await backlog(store, CLICKS)
    assert (seen.waiting, seen.oldest_age, seen.last_flush, seen.flushing) == (0, 0.0, None, ())
    assert (seen.holds, seen.limit, seen.shards, seen.flush_every) == ("counters", 1_000_000, 4, 60.0)


async def test_waiting_counters_and_the_last_flush(store: Store) -> None:
    """Counters in several shards wait, and after a flush its time and size are shown."""
    for page in range(20):
        await store[CLICKS].add(page=f"p{page}", day="mon", clicks=1, spent=2)
    waits = await backlog(store, CLICKS)
    assert waits.waiting == 40
    assert waits.oldest_age > 0
    await Flusher(store[CLICKS], Taken(), write_delay=timedelta(0)).flush()
    seen = await backlog(store, CLICKS)
    assert (seen.waiting, seen.flushing) == (0, ())
    assert seen.last_flush is not None
    assert abs(seen.last_flush - datetime.now(UTC)) < timedelta(minutes=2)
    assert seen.last_flush_size > 0


async def test_a_batch_being_flushed_is_shown(store: Store) -> None:
    """A sealed batch shows its shard, size, flusher and since when."""
    await store[VOTES].append(Vote("u1", "m1", "home"), Vote("u2", "m1", "unavailable"), partition_key="m1")
    sealed = [
        await store[VOTES]._queue.seal(shard, "host:1", 60_000, "e", 0) for shard in range(VOTES.shards.count)
    ]
    assert any(isinstance(each, Sealed) for each in sealed)
    seen = await backlog(store, VOTES)
    (batch,) = seen.flushing
    assert (batch.size, batch.by, seen.holds) == (2, "host:1", "records")
    assert abs(batch.since - datetime.now(UTC)) < timedelta(minutes=2)


async def test_the_limit_is_shown(store: Store) -> None:
    """A backlog near its limit shows both."""
    for number in range(5):
        await store[EVENTS].append(Event(number), partition_key="one")
    seen = await backlog(store, EVENTS)
    assert (seen.waiting, seen.limit) == (5, 200)


async def test_an_unavailable_server_raises() -> None:
    """With Redis down the call raises instead of showing an empty backlog."""
    async with connect("redis://127.0.0.1:1", CATALOGUE, required=False) as unavailable:
        with pytest.raises(ConnectionFailed):
            await backlog(unavailable, CLICKS)
