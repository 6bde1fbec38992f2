"""DUR6: an addition with an idempotency key counted twice when one of its attempts went straight to SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store, connect, embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import ConnectionFailed, Unavailable
from ephemera.patterns.write_behind import CounterTable, Flusher, RecordTable
from tests.patterns.lock_fixtures import until
from tests.patterns.write_behind_fixtures import (
    CATALOGUE,
    CLICKED,
    CLICKS,
    EVENTS,
    HAPPENED,
    NO_DELAY,
    Event,
    prepare_database,
    rows,
)


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on a database with all tables, empty."""
    engine = await prepare_database(postgres)
    yield engine
    await engine.dispose()


class _Additions:
    """One addition of counters and one of records, made as often as a caller retries them."""

    def __init__(self, store: Store, engine: AsyncEngine) -> None:
        self._store = store
        self.clicked, self.happened = CounterTable(engine, CLICKED, CLICKS), RecordTable(engine, HAPPENED)

    async def add(self) -> bool:
        """Make both; whether they counted, as far as the answer says."""
        options: dict[str, Any] = {"idempotency_key": "call:1"}
        counted = await self._store[CLICKS].add(
            page="p", day="mon", clicks=2, spent=5, fallback=self.clicked, **options
        )
        appended = await self._store[EVENTS].append(Event(1), Event(2), fallback=self.happened, **options)
        assert counted is appended
        return counted

    async def flush(self) -> None:
        """Bring everything to SQL."""
        await Flusher(self._store[CLICKS], self.clicked, **NO_DELAY).flush()
        await Flusher(self._store[EVENTS], self.happened, **NO_DELAY).flush()


async def _stop(server: Valkey, store: Store) -> None:
    """Stop the server for good, with its data on disk, and wait until the client knows."""
    await store.call("CONFIG", "SET", "appendonly", "yes")
    await until(lambda: _is_saved(store))
    server.kill()

    async def noticed() -> bool:
        try:
            await store[CLICKS].backlog()
        except ConnectionFailed as problem:
            return isinstance(problem, Unavailable)
        return False

    await until(noticed)


async def _is_saved(store: Store) -> bool:
    return b"aof_rewrite_in_progress:0" in await store.call("INFO", "persistence")


async def _back(store: Store) -> bool:
    try:
        await store[CLICKS].backlog()
    except ConnectionFailed:
        return False
    return True


@pytest.mark.parametrize("first", ["redis", "flushed", "fallback"])
async def test_dur6_an_addition_counts_once_on_whichever_way_it_is_retried(
    engine: AsyncEngine, first: str
) -> None:
    """Pending in Redis, flushed, or written by the fallback: each further attempt adds nothing."""
    with embedded.valkey(config={"appendonly": "yes", "appendfsync": "always"}) as server:
        async with connect(server.url, CATALOGUE) as store:
            additions = _Additions(store, engine)
            if first != "fallback":
                assert await additions.add()
            if first == "flushed":
                await additions.flush()
            await _stop(server, store)
            assert await additions.add() is (first != "flushed")  # only SQL can know
            assert not await additions.add()
            await asyncio.to_thread(server.restart)
            await until(lambda: _back(store))
            await additions.add()
            await additions.flush()
            assert not await additions.add()
            await additions.flush()
    assert await rows(engine, CLICKED) == [("p", "mon", 2, 5)]
    assert [number for number, *_ in await rows(engine, HAPPENED)] == [1, 2]


async def test_dur6_other_additions_of_the_same_row_count(engine: AsyncEngine, server: Valkey) -> None:
    """Additions with and without keys to one row all reach it, in one batch and in order."""
    async with connect(server.url, CATALOGUE) as store:
        sink, happened = CounterTable(engine, CLICKED, CLICKS), RecordTable(engine, HAPPENED)
        add, append = store[CLICKS].add, store[EVENTS].append
        await Flusher(store[CLICKS], sink, **NO_DELAY).flush()
        await add(page="a:b", day="dur6", clicks=1)
        for key in ("one", "two:%", "two:%", "k" * 900, "k" * 901):
            await add(page="a:b", day="dur6", clicks=10, idempotency_key=key, fallback=sink)
        assert (await Flusher(store[CLICKS], sink, **NO_DELAY).flush()).rejected == 0
        assert ("a:b", "dur6", 41, 0) in await rows(engine, CLICKED)
        await Flusher(store[EVENTS], happened, **NO_DELAY).flush()
        await append(Event(11), partition_key="p")
        await append(Event(12), partition_key="p", idempotency_key="x", fallback=happened)
        await append(Event(13), partition_key="p")
        await Flusher(store[EVENTS], happened, **NO_DELAY).flush()
        async with engine.connect() as sql:
            stored = (await sql.execute(sa.text("SELECT number FROM behind_events ORDER BY ctid"))).scalars()
            assert [number for number in stored if number > 10] == [11, 12, 13]


async def test_dur6_expired_ids_are_deleted_in_bounded_batches(engine: AsyncEngine) -> None:
    """Ids older than a week go as new ones come, a bounded number each time."""
    sink = RecordTable(engine, HAPPENED)
    old = (
        "INSERT INTO write_behind_idempotency "
        "SELECT 'o' || n, now() - interval '8 days' FROM generate_series(1, 300) n"
    )
    async with engine.begin() as sql:
        await sql.execute(sa.text(old))
    left = []
    for number in range(3):
        await sink.write(("number", "text", "details"), [(number, None, None)], [f"new {number}"])
        async with engine.connect() as sql:
            left.append(
                await sql.scalar(sa.text("SELECT count(*) FROM write_behind_idempotency WHERE id LIKE 'o%'"))
            )
    assert left == [198, 96, 0]
