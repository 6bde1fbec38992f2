"""DUR11: all pending counters were one batch: to read a million of them blocked the server for seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from ephemera import Catalogue, Store, connect
from ephemera.embedded import Valkey
from ephemera.patterns.write_behind import Applied, Batch, DeferredCounters, Flusher, Row
from ephemera.patterns.write_behind._batches import SEAL
from tests.patterns.event_fixtures import until
from tests.patterns.write_behind_fixtures import NO_DELAY

CATALOGUE = Catalogue("dur11")
HITS = DeferredCounters(
    CATALOGUE, "dur11", key=["page"], measures=["hits", "bytes"], purpose="Hits", batch=3000
)
_SEALED = HITS.sealed.key(shard=0)
_SHARE = 500  # counters that one call may move


class _Sums:
    """A sink that keeps sums, and the size of each batch."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}
        self.sizes: list[int] = []

    async def apply(self, batch: Batch) -> Applied:
        """Add the amounts."""
        self.sizes.append(len(batch.rows))
        for page, hits, size in batch.rows:
            self.sums[page] = self.sums.get(page, 0) + hits + size
        return Applied()

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row], ids: Sequence[str] = ()) -> bool:
        """Not used here."""
        raise NotImplementedError


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with an empty backlog."""
    async with connect(server.url, CATALOGUE) as opened:
        for keys in HITS.shards.keys(HITS.pending, HITS.sealed, HITS.shards.state):
            await opened.client("queue").call("UNLINK", *keys)
        yield opened


async def _add(store: Store, pages: range) -> None:
    for first in range(pages.start, pages.stop, 1000):
        part = range(first, min(first + 1000, pages.stop))
        await asyncio.gather(*(store[HITS].add(page=f"p{n}", hits=1, bytes=n) for n in part))


async def test_dur11_batches_are_bounded_and_complete(store: Store) -> None:
    """A backlog larger than a batch is flushed whole by one flush, in batches of the declared size."""
    await _add(store, range(8000))
    sink = _Sums()
    flushed = await Flusher(store[HITS], sink, **NO_DELAY).flush()
    assert flushed.batches == len(sink.sizes) >= 6  # 16,000 counters
    assert max(sink.sizes) <= 3000
    assert sink.sums == {f"p{n}": 1 + n for n in range(8000)}
    assert await store[HITS].backlog() == 0


async def test_dur11_what_is_added_during_a_flush_is_counted_once(store: Store) -> None:
    """Additions between the batches of a flush go into a later one, of this flush or of the next."""
    await _add(store, range(4000))
    sink = _Sums()

    async def more(batch: Batch) -> None:
        if len(sink.sizes) <= 3:
            await _add(store, range(3500, 4500))

    flusher = Flusher(store[HITS], sink, on_applied=more, **NO_DELAY)
    await flusher.flush()
    await flusher.flush()
    times = {n: (n < 4000) + 3 * (n >= 3500) for n in range(4500)}
    assert sink.sums == {f"p{n}": (1 + n) * often for n, often in times.items()}


async def test_dur11_what_is_added_while_a_batch_is_filled_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that was moved, and is added to before the next call moves more, keeps both amounts."""
    await _add(store, range(2000))
    run, calls = store.client("queue").run, 0

    async def busy(script: Any, *arguments: Any) -> Any:
        nonlocal calls
        reply = await run(script, *arguments)
        if script is SEAL and reply == 1 and calls < 3:
            calls += 1
            await _add(store, range(2000))
        return reply

    monkeypatch.setattr(store.client("queue"), "run", busy)
    sink = _Sums()
    for _ in range(2):
        await Flusher(store[HITS], sink, **NO_DELAY).flush()
    assert calls == 3
    assert sink.sums == {f"p{n}": 4 * (1 + n) for n in range(2000)}


async def test_dur11_no_call_moves_more_than_its_share(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush moves a bounded number of counters with each call, and so blocks the server only briefly."""
    await _add(store, range(2000))
    run, sizes = store.client("queue").run, [0]

    async def watched(*arguments: Any) -> Any:
        reply = await run(*arguments)
        sizes.append(await store.call("HLEN", _SEALED))
        return reply

    monkeypatch.setattr(store.client("queue"), "run", watched)
    sink = _Sums()
    await Flusher(store[HITS], sink, **NO_DELAY).flush()
    assert max(sizes) == 3000
    assert max(after - before for before, after in pairwise(sizes)) <= _SHARE
    assert sink.sums == {f"p{n}": 1 + n for n in range(2000)}


async def test_dur11_a_batch_that_was_not_filled_is_continued(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a flusher dies while it fills a batch, another one completes it after the claim."""
    await _add(store, range(2000))
    run, sink, began = store.client("queue").run, _Sums(), asyncio.Event()

    async def first_call_only(*arguments: Any) -> Any:
        await run(*arguments)
        began.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(store.client("queue"), "run", first_call_only)
        claimed = {**NO_DELAY, "claim_timeout": timedelta(seconds=2)}
        dies = asyncio.create_task(Flusher(store[HITS], sink, **claimed).flush())
        await began.wait()
        dies.cancel()
        await asyncio.wait([dies])
    assert 0 < await store.call("HLEN", _SEALED) < 3000
    other = Flusher(store[HITS], sink, **NO_DELAY)
    assert (await other.flush()).skipped == 1
    assert sink.sizes == []

    async def continued() -> bool:
        return (await other.flush()).skipped == 0

    await until(continued, within=7)
    assert sink.sums == {f"p{n}": 1 + n for n in range(2000)}
    assert await store[HITS].backlog() == 0
