"""Progress: replayed and progress entries by position, and snapshots in place of missed ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ephemera import Catalogue, Store, keyspace, sliding
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, InvalidValue, StoreClosed
from ephemera.patterns.progress import (
    ENDED,
    Missed,
    Progress,
    ProgressEntry,
    Snapshot,
    entry_arguments,
    progress_script,
)
from ephemera.patterns.progress._entries import Position
from ephemera.wire import Script
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
from tests.wire.conditions import eventually
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for progress, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        yield opened


@pytest.fixture
async def alone(server: Valkey) -> AsyncIterator[Store]:
    """A store for progress on one server."""
    async with keyspace.connect(server.url, CATALOGUE) as opened:
        yield opened


async def test_a_listener_gets_past_and_future_events(store: Store, key: str) -> None:
    """A listener that joins in the middle gets all events once and in order, and then the end."""
    progress, truth = store[PROGRESS], JobDatabase()
    for number in range(5):
        await progress.append(SlideDone(number), job_id=key)
    listening = asyncio.create_task(collect(progress.listen(job_id=key, snapshot=truth.snapshot)))
    for number in range(5, 10):
        await progress.append(SlideDone(number), job_id=key)
    await progress.append(Done(10), job_id=key)
    assert await listening == [*range(10), "done"]
    assert truth.asked == 0


async def test_ids_count_and_a_stream_has_a_lifetime(store: Store, key: str) -> None:
    """Ids count from 1 with growing stamps; the stream keeps its newest entries, and each renews its TTL."""
    ids = [await store[SHORT].append(SlideDone(number), job_id=key) for number in range(5)]
    assert [int(each.partition("-")[0]) for each in ids] == [1, 2, 3, 4, 5]
    stamps = [int(each.partition("-")[2]) for each in ids]
    assert stamps == sorted(set(stamps))
    kept = await store[SHORT.keyspace].range(job_id=key)
    assert kept == [(ids[number], SlideDone(number)) for number in (2, 3, 4)]
    assert 7_190_000 < await store.call("PTTL", SHORT.key(job_id=key)) <= 7_200_000


async def test_a_reconnected_listener_gets_only_what_follows(store: Store, key: str) -> None:
    """A listener with the id of its last event gets only what follows."""
    progress, truth = store[PROGRESS], JobDatabase()
    ids = [await progress.append(SlideDone(number), job_id=key) for number in range(4)]
    await progress.append(Done(4), job_id=key)
    for place, last in enumerate(ids):
        listener = progress.listen(job_id=key, after=last, snapshot=truth.snapshot)
        assert await collect(listener) == [*range(place + 1, 4), "done"]
    assert truth.asked == 0


async def test_a_listener_that_has_the_end_gets_nothing_more(alone: Store, key: str) -> None:
    """A listener whose last update was a terminal event or a final snapshot ends at once."""
    progress, truth = alone[PROGRESS], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    last = await progress.append(Done(1), job_id=key)
    for after in (last, ENDED):
        assert await collect(progress.listen(job_id=key, after=after, snapshot=truth.snapshot)) == []
    assert truth.asked == 0


async def test_a_stream_can_be_reopened(store: Store, key: str) -> None:
    """`reopen` continues an ended stream, whose old end is ignored, and leaves others as they are."""
    progress, truth = store[PROGRESS], JobDatabase()
    await progress.reopen(job_id=key)
    await progress.append(SlideDone(0), job_id=key)
    await progress.reopen(job_id=key)
    ended = await progress.append(Done(1), job_id=key)
    for _ in range(2):
        await progress.reopen(job_id=key)
    await progress.append(SlideDone(1), job_id=key)
    await progress.append(Done(2), job_id=key)
    assert await collect(progress.listen(job_id=key, snapshot=truth.snapshot)) == [0, 1, "done"]
    assert await collect(progress.listen(job_id=key, after=ended, snapshot=truth.snapshot)) == [1, "done"]
    assert truth.asked == 0
    assert await store.call("XLEN", PROGRESS.key(job_id=key)) == 5


async def test_a_deleted_stream_gives_a_snapshot(store: Store, key: str) -> None:
    """After the stream was deleted, the listener gets `recovered: false` with the state, then new entries."""
    progress, truth = store[PROGRESS], JobDatabase()
    for number in range(3):
        last = await progress.append(SlideDone(number), job_id=key)
    await store[PROGRESS.keyspace].delete(job_id=key)
    truth.slides = 3
    async with progress.listen(job_id=key, after=last, snapshot=truth.snapshot) as updates:
        missed = await anext(updates)
        assert isinstance(missed, Missed)
        assert not missed.recovered
        assert missed.snapshot == Snapshot({"job": key, "slides": 3})
        assert msgspec.json.decode(missed.data) == {
            "recovered": False,
            "ended": False,
            "state": {"job": key, "slides": 3},
        }
        await progress.append(SlideDone(3), job_id=key)
        assert shown(await anext(updates)) == 3
        # A listener that has only the snapshot continues from there.
        again = progress.listen(job_id=key, after=missed.id, snapshot=truth.snapshot)
        assert await collect(again, 1) == [3]


async def test_a_new_stream_is_distinguished_from_the_old_one(store: Store, key: str) -> None:
    """A lost stream that has grown past the old position again is not mistaken for the old one."""
    progress, truth = store[PROGRESS], JobDatabase()
    for number in range(3):
        last = await progress.append(SlideDone(number), job_id=key)
    await store[PROGRESS.keyspace].delete(job_id=key)
    for number in range(10, 15):
        await progress.append(SlideDone(number), job_id=key)
    got = await collect(progress.listen(job_id=key, after=last, snapshot=truth.snapshot), 6)
    assert got == [{"job": key, "slides": 0}, *range(10, 15)]


async def test_a_listener_notices_that_its_stream_was_lost(store: Store, key: str) -> None:
    """A listener whose stream is deleted gets a `Missed`, with the next entry or within seconds."""
    progress, truth = store[PROGRESS], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    async with progress.listen(job_id=key, snapshot=truth.snapshot) as updates:
        assert shown(await anext(updates)) == 0
        await store[PROGRESS.keyspace].delete(job_id=key)
        assert isinstance(await anext(updates), Missed)
        await progress.append(SlideDone(1), job_id=key)
        assert shown(await anext(updates)) == 1


async def test_an_older_copy_is_noticed_and_repeats_nothing(alone: Store, key: str) -> None:
    """After a restore from an older copy, seen entries are not repeated, and lost ones are reported."""
    progress, truth = alone[PROGRESS], JobDatabase()
    stream = PROGRESS.key(job_id=key)
    for number in range(3):
        await progress.append(SlideDone(number), job_id=key)
    copy = await alone.call("DUMP", stream)
    async with progress.listen(job_id=key, snapshot=truth.snapshot) as updates:
        for number in (3, 4):
            await progress.append(SlideDone(number), job_id=key)
        got = [await anext(updates) for _ in range(5)]
        assert [shown(each) for each in got] == [0, 1, 2, 3, 4]
        await alone.call("RESTORE", stream, 7_200_000, copy, "REPLACE")
        for number in (13, 14, 15):  # they get the numbers of the lost entries, and one more
            await progress.append(SlideDone(number), job_id=key)
        after = [shown(await anext(updates)) for _ in range(4)]
    assert after == [{"job": key, "slides": 0}, 13, 14, 15]
    back = progress.listen(job_id=key, after=got[-1].id, snapshot=truth.snapshot)
    assert await collect(back, 4) == [{"job": key, "slides": 0}, 13, 14, 15]


async def test_a_trimmed_stream_gives_a_snapshot_and_what_is_left(store: Store, key: str) -> None:
    """Entries trimmed before they were read are reported as missed, and the rest follows."""
    progress, truth = store[SHORT], JobDatabase()
    first = await progress.append(SlideDone(0), job_id=key)
    for number in range(1, 7):
        await progress.append(SlideDone(number), job_id=key)
    for after in (None, first):
        got = await collect(progress.listen(job_id=key, after=after, snapshot=truth.snapshot), 4)
        assert got == [{"job": key, "slides": 0}, 4, 5, 6]


async def test_a_late_listener_gets_the_final_state(store: Store, key: str) -> None:
    """When the job has ended and its stream has expired, a listener gets the final snapshot and ends."""
    progress, truth = store[PROGRESS], JobDatabase()
    truth.ended, truth.slides = True, 7
    async with progress.listen(job_id=key, after="5-1234", snapshot=truth.snapshot) as updates:
        got = [update async for update in updates]
    assert [shown(each) for each in got] == [{"job": key, "slides": 7}]
    assert await collect(progress.listen(job_id=key, after=got[0].id, snapshot=truth.snapshot)) == []
    assert truth.asked == 1


@pytest.mark.parametrize("after", ["", "x", "1", "-", "1-", "-1-2", "٣-٤", "1-2-3", "9" * 40 + "-1", "0-0\n"])
async def test_a_malformed_position_loses_nothing(alone: Store, key: str, after: str) -> None:
    """Whatever a client sends as its last id, it gets a snapshot and all entries, never an error."""
    progress, truth = alone[PROGRESS], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    await progress.append(Done(1), job_id=key)
    got = await collect(progress.listen(job_id=key, after=after, snapshot=truth.snapshot))
    assert got == [{"job": key, "slides": 0}, 0, "done"]


async def test_a_slow_listener_queues_nothing(alone: Store, key: str) -> None:
    """A slow listener keeps no entries, and gets a `Missed` when it asks for more."""
    progress, truth = alone[SHORT], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    async with progress.listen(job_id=key, snapshot=truth.snapshot) as slow:
        assert shown(await anext(slow)) == 0
        async with progress.listen(job_id=key, snapshot=truth.snapshot) as quick:
            for number in range(1, 50):
                await progress.append(SlideDone(number), job_id=key)
                while shown(await anext(quick)) != number:
                    pass
        assert [shown(await anext(slow)) for _ in range(4)] == [{"job": key, "slides": 0}, 47, 48, 49]


async def test_an_undecodable_entry_counts_as_missed(alone: Store, key: str) -> None:
    """An entry that this version cannot decode counts as missed; those around it do not."""
    progress, truth = alone[PROGRESS], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    foreign = entry_arguments(PROGRESS, SlideDone(1), job_id=key)._replace(payload=b'["1other",{}]')
    await alone.run(progress_script("ephemera.patterns.progress", "append"), (foreign.message,), foreign)
    await progress.append(Done(2), job_id=key)
    got = await collect(progress.listen(job_id=key, snapshot=truth.snapshot))
    assert got == [0, {"job": key, "slides": 0}, "done"]


async def test_a_deleted_entry_counts_as_missed(alone: Store, key: str) -> None:
    """A deleted entry counts as missed, once."""
    progress, truth = alone[PROGRESS], JobDatabase()
    ids = [await progress.append(SlideDone(number), job_id=key) for number in range(4)]
    await alone.call("XDEL", PROGRESS.key(job_id=key), ids[1])
    await progress.append(Done(4), job_id=key)
    got = await collect(progress.listen(job_id=key, snapshot=truth.snapshot))
    assert got == [0, {"job": key, "slides": 0}, 2, 3, "done"]


async def test_the_end_is_found_in_sql_when_its_event_was_lost(alone: Store, key: str) -> None:
    """A job that ended without its event ends its listeners by the snapshot."""
    progress, truth = alone[SHORT], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    async with progress.listen(job_id=key, snapshot=truth.snapshot) as updates:
        assert shown(await anext(updates)) == 0
        truth.ended = True
        async with asyncio.timeout(60):
            last = await anext(updates)
            assert isinstance(last, Missed)
            assert last.is_last
            assert [update async for update in updates] == []


async def test_a_reconnected_listener_gets_an_end_whose_event_was_lost(store: Store, key: str) -> None:
    """A listener that has every entry gets the end at once when it reconnects."""
    progress, truth = store[PROGRESS], JobDatabase()
    last = await progress.append(SlideDone(0), job_id=key)
    async with progress.listen(job_id=key, after=last, snapshot=truth.snapshot) as updates:
        assert await updates.catch_up() == []
        assert not updates.ended, "it continues"
    truth.ended, truth.slides = True, 1
    async with progress.listen(job_id=key, after=last, snapshot=truth.snapshot) as updates:
        assert [shown(update) for update in await updates.catch_up()] == [{"job": key, "slides": 1}]
        assert updates.ended


async def test_many_listeners_share_reads_and_queries(alone: Store, server: Valkey, key: str) -> None:
    """Ten thousand listeners need two connections, one read per wake-up, and one query per snapshot."""
    progress, truth = alone[PROGRESS], JobDatabase()
    before = server.ask("CLIENT", "LIST")
    assert isinstance(before, str)
    listeners = [progress.listen(job_id=key, snapshot=truth.snapshot) for _ in range(10_000)]
    crowd = [asyncio.create_task(collect(each)) for each in listeners]
    await eventually(lambda: truth.asked > 0 and all(each._synced for each in listeners))
    assert truth.asked <= 2
    await alone.call("CONFIG", "RESETSTAT")
    for number in range(5):
        await progress.append(SlideDone(number), job_id=key)
    await progress.append(Done(5), job_id=key)
    for got in await asyncio.gather(*crowd):
        assert got[1:] == [0, 1, 2, 3, 4, "done"]
    stats = server.ask("INFO", "commandstats")
    assert isinstance(stats, str)
    reads = next(line for line in stats.splitlines() if line.startswith("cmdstat_xrange:"))
    assert int(reads.partition("calls=")[2].partition(",")[0]) <= 20  # a poll may come between
    after = server.ask("CLIENT", "LIST")
    assert isinstance(after, str)
    assert len(after.splitlines()) <= len(before.splitlines()) + 1  # the subscription


async def test_nothing_is_kept_for_listeners_that_have_left(alone: Store, key: str) -> None:
    """When the last listener of a job has left, the mirror of its stream is dropped."""
    progress, truth = alone[PROGRESS], JobDatabase()
    await progress.append(SlideDone(0), job_id=key)
    listening = [
        asyncio.create_task(collect(progress.listen(job_id=key, snapshot=truth.snapshot))) for _ in range(10)
    ]
    await eventually(lambda: progress._watcher._streams)
    listening[0].cancel()
    await progress.append(Done(1), job_id=key)
    ended = await asyncio.gather(*listening, return_exceptions=True)
    assert ended[1:] == [[0, "done"]] * 9
    assert not progress._watcher._streams


async def test_a_failing_snapshot_is_its_listeners_error(alone: Store, key: str) -> None:
    """An error of the application's snapshot reaches its listener, and no other."""
    progress, truth = alone[PROGRESS], JobDatabase()

    async def broken(job_id: str) -> Snapshot:
        raise LookupError(job_id)

    with pytest.raises(LookupError):
        await collect(progress.listen(job_id=key, snapshot=broken))
    await progress.append(Done(0), job_id=key)
    assert await collect(progress.listen(job_id=key, snapshot=truth.snapshot)) == ["done"]


async def test_a_store_that_closes_ends_its_listeners(server: Valkey, key: str) -> None:
    """Closing a store ends the iterations."""
    truth = JobDatabase()
    async with keyspace.connect(server.url, CATALOGUE) as store:
        await store[PROGRESS].append(SlideDone(0), job_id=key)
        listening = asyncio.create_task(collect(store[PROGRESS].listen(job_id=key, snapshot=truth.snapshot)))
        await eventually(lambda: store[PROGRESS]._watcher._streams)
    assert await asyncio.wait_for(listening, 60) in ([0], [])
    with pytest.raises(StoreClosed):
        await collect(store[PROGRESS].listen(job_id=key, snapshot=truth.snapshot))


async def test_another_script_can_append_an_entry(store: Store, key: str) -> None:
    """A script of another pattern appends an entry in the same step as its own work, in the same slot."""
    script = Script(
        "checkpoint",
        progress_script("ephemera.patterns.progress", "append").source.rpartition("return append_entry")[0]
        + "redis.call('SET', KEYS[2], ARGV[6], 'PX', 60000)\n"
        "return append_entry(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5])",
    )
    arguments = entry_arguments(PROGRESS, SlideDone(1), job_id=key)
    keys = (PROGRESS.key(job_id=key), f"checkpoint:{{{key.replace('[', '%5B').replace(']', '%5D')}}}")
    entry_id = await store.run(script, keys, (*arguments, "step 1"))
    assert await store[PROGRESS.keyspace].range(job_id=key) == [(entry_id.decode(), SlideDone(1))]


async def test_a_wrong_event_is_refused_before_it_is_sent(alone: Store, key: str) -> None:
    """An event of another type never reaches the stream."""
    wrong: Any = {"number": 1}
    with pytest.raises(InvalidValue):
        await alone[PROGRESS].append(wrong, job_id=key)
    assert not await alone[PROGRESS.keyspace].exists(job_id=key)


@pytest.mark.parametrize(
    ("pattern", "options", "message"),
    [
        ("p:all", {}, "no field"),
        ("p:{after}", {}, "cannot name"),
        ("p:{job}", {"lifetime": sliding(hours=1)}, "cannot have the lifetime"),
        ("p:{job}", {"max_entries": 0}, "holds nothing"),
        ("p:{job}", {"heartbeat": timedelta(0)}, "heartbeat"),
    ],
)
def test_wrong_declarations_are_refused(pattern: str, options: Any, message: str) -> None:
    """A declaration that cannot work is refused with the reason."""
    with pytest.raises(InvalidDeclaration, match=message):
        Progress(Catalogue("wrong"), pattern, SlideDone, wake="w", terminal=SlideDone, **options)


def test_an_entry_has_a_readable_repr() -> None:
    """The `repr` of an entry has its id and its event."""
    assert "3-4" in repr(ProgressEntry(Position(3, 4), SlideDone(1), is_last=False))


async def test_an_id_that_is_not_ours_is_skipped(store: Store, key: str) -> None:
    """An entry of another program, with an id that no position can have, hides none that follow it."""
    progress, truth = store[PROGRESS], JobDatabase()
    first = await progress.append(SlideDone(0), job_id=key)
    await progress.append(Done(1), job_id=f"{key}:other")
    ((_, done),) = await store.call("XRANGE", PROGRESS.key(job_id=f"{key}:other"), "-", "+")
    for entry_id in (f"1-{10**18}", "2-1"):
        await store.call("XADD", PROGRESS.key(job_id=key), entry_id, *done)
    assert await collect(progress.listen(job_id=key, after=first, snapshot=truth.snapshot)) == ["done"]
    assert truth.asked == 0
