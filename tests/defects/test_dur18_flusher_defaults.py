"""DUR18: leaving a flusher's block left the backlog, and its defaults could count a batch twice."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.patterns.write_behind import Applied, Batch, Flusher, Row
from tests.patterns.lock_fixtures import until
from tests.patterns.write_behind_fixtures import CATALOGUE, CLICKS, NO_DELAY, empty_backlog


class _Kept:
    """A sink that keeps the batches, or fails."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.batches: list[Batch] = []
        self.problem = problem

    async def apply(self, batch: Batch) -> Applied:
        """Keep it."""
        if self.problem:
            raise self.problem
        self.batches.append(batch)
        return Applied()

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row], ids: Sequence[str] = ()) -> bool:
        """Not used here."""
        raise NotImplementedError


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with an empty backlog."""
    async with connect(server.url, CATALOGUE) as opened:
        await empty_backlog(opened)
        yield opened


async def test_dur18_leaving_the_block_flushes(store: Store) -> None:
    """What is not due yet is flushed when the block ends."""
    sink = _Kept()
    async with Flusher(store[CLICKS], sink, **NO_DELAY):
        await store[CLICKS].add(page="p", day="mon", clicks=3)
    assert [batch.rows for batch in sink.batches] == [[("p", "mon", 3, 0)]]
    assert await store[CLICKS].backlog() == 0


async def test_dur18_a_failing_last_flush_hides_nothing(store: Store) -> None:
    """When SQL fails at the end, the error of the block is raised and the backlog stays."""
    flusher = Flusher(store[CLICKS], _Kept(OSError("no SQL")), **NO_DELAY)
    await store[CLICKS].add(page="p", day="mon", clicks=3)
    with pytest.raises(RuntimeError, match="the body's"):
        async with flusher:
            raise RuntimeError("the body's")
    assert str(flusher.failure) == "no SQL"
    assert await store[CLICKS].backlog() == 1


async def test_dur18_a_batch_waits_by_default(store: Store) -> None:
    """Without the option, a batch is written two seconds after its seal: appendfsync everysec has it then."""
    default = inspect.signature(Flusher).parameters["write_delay"].default
    assert default == timedelta(seconds=2)
    await store[CLICKS].add(page="p", day="mon", clicks=3)
    sink = _Kept()
    flushing = asyncio.create_task(Flusher(store[CLICKS], sink).flush())
    sealed = CLICKS.sealed.key(shard=CLICKS.shards.of("p:mon"))

    async def is_sealed() -> bool:
        return bool(await store.call("EXISTS", sealed))

    await until(is_sealed)
    assert not sink.batches
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)


async def test_dur18_a_batch_that_waited_already_is_written_at_once(store: Store) -> None:
    """A batch that another flusher sealed long ago is on disk, and is not delayed again."""
    await store[CLICKS].add(page="p", day="mon", clicks=3)
    shard = CLICKS.shards.of("p:mon")
    await store[CLICKS]._queue.seal(shard, "dead", 1, "e", 0)
    state = CLICKS.shards.state.key(shard=shard)
    await store.call("HINCRBY", state, "sealed", -3600 * 1_000_000)
    sink = _Kept()
    flusher = Flusher(store[CLICKS], sink, write_delay=timedelta(seconds=600))

    async def written() -> bool:
        return bool(await asyncio.wait_for(flusher.flush(), 60)) and bool(sink.batches)

    await until(written)
