"""Traps S4 and S5: readers that miss earlier entries or do not notice a loss; trust in pub/sub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.patterns.progress import Missed
from tests.patterns.progress_fixtures import (
    CATALOGUE,
    PROGRESS,
    SHORT,
    Done,
    JobDatabase,
    SlideDone,
    collect,
    shown,
)


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store for progress."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


async def test_s4_earlier_events_are_not_missed(store: Store, key: str) -> None:
    """`XREAD ... $` skips existing entries; ours replays them and continues progress."""
    naive = f"naive:{key}"
    await store.call("XADD", naive, "*", "d", "slide 0")
    assert await store.call("XREAD", "BLOCK", 50, "STREAMS", naive, "$") is None
    await store.call("DEL", naive)

    progress, truth = store[PROGRESS], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    listening = asyncio.create_task(collect(progress.listen(job_id=key, snapshot=truth.snapshot)))
    await progress.append(Done(1), job_id=key)
    assert await listening == [0, "done"]


async def test_s4_a_lost_stream_is_noticed(store: Store, key: str) -> None:
    """A plain position cannot distinguish a new stream from the old one; ours says `recovered: false`."""
    naive = f"naive:{key}"
    last = await store.call("XADD", naive, "*", "d", "slide 0")
    await store.call("XADD", naive, "*", "d", "slide 1, which is never read")
    await store.call("DEL", naive)
    while await _milliseconds(store) <= int(last.partition(b"-")[0]):
        pass  # in the same millisecond the new stream would even use the old one's ids
    await store.call("XADD", naive, "*", "d", "slide 2")
    found = await store.call("XREAD", "STREAMS", naive, last)
    assert [entry[1][1] for entry in found[naive.encode()]] == [b"slide 2"]  # as if nothing were missing
    await store.call("DEL", naive)

    progress, truth = store[PROGRESS], JobDatabase()
    last = await progress.append(SlideDone(0), job_id=key)
    await progress.append(SlideDone(1), job_id=key)
    await store[PROGRESS.keyspace].delete(job_id=key)
    truth.slides = 2
    await progress.append(SlideDone(2), job_id=key)
    async with progress.listen(job_id=key, after=last, snapshot=truth.snapshot) as updates:
        missed = await anext(updates)
        assert isinstance(missed, Missed)
        assert not missed.recovered
        assert missed.snapshot.state == {"job": key, "slides": 2}
        assert shown(await anext(updates)) == 2


async def test_s5_a_lost_message_loses_no_event(store: Store, server: Valkey, key: str) -> None:
    """Pub/sub messages are lost when the connection breaks; ours only wake listeners, which read a stream."""
    naive = f"naive:{key}"
    async with store.subscribe(naive) as messages:
        _cut_subscriptions(server)
        await store.call("PUBLISH", naive, "slide 0")
        await store.call("PUBLISH", naive, "slide 1")
        first = await anext(messages)
        assert first.lost  # the wire reports it; the two messages are lost
        await store.call("PUBLISH", naive, "slide 2")
        assert (await anext(messages)).data == b"slide 2"

    progress, truth = store[PROGRESS], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    async with progress.listen(job_id=key, snapshot=truth.snapshot) as updates:
        assert shown(await anext(updates)) == 0
        _cut_subscriptions(server)
        await progress.append(SlideDone(1), job_id=key)
        await progress.append(SlideDone(2), job_id=key)
        assert [shown(await anext(updates)) for _ in range(2)] == [1, 2]
    assert truth.asked == 0


async def test_s5_a_lost_wake_up_costs_a_second(store: Store, key: str) -> None:
    """An entry without a wake-up is found by polling."""
    progress, truth = store[PROGRESS], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    async with progress.listen(job_id=key, snapshot=truth.snapshot) as updates:
        assert shown(await anext(updates)) == 0
        stream = PROGRESS.key(job_id=key)
        await store.call("XADD", stream, "2-9999999999999999", "d", PROGRESS.encode(SlideDone(1)))
        async with asyncio.timeout(60):
            assert shown(await anext(updates)) == 1


async def test_s5_the_end_is_in_sql(store: Store, key: str) -> None:
    """A naive listener waits forever for a lost message; ours asks SQL, and ends."""
    naive = f"naive:{key}"
    await store.call("PUBLISH", naive, "done")
    async with store.subscribe(naive) as messages:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await anext(messages)

    progress, truth = store[SHORT], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    truth.ended = True  # and its event never reached Redis
    async with asyncio.timeout(60):
        assert await collect(progress.listen(job_id=key, snapshot=truth.snapshot)) == [
            0,
            {"job": key, "slides": 0},
        ]


async def _milliseconds(store: Store) -> int:
    seconds, microseconds = await store.call("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


def _cut_subscriptions(server: Valkey) -> None:
    server.ask("CLIENT", "KILL", "TYPE", "pubsub")
