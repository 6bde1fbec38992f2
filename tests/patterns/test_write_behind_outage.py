"""Write-behind while a server is down: clear errors, or the fallback to SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import connect, embedded
from ephemera.embedded import Postgres
from ephemera.errors import ConnectionFailed, Unavailable
from ephemera.patterns.write_behind import CounterTable, Flusher, RecordTable
from tests.patterns import usage_fixtures
from tests.patterns.lock_fixtures import until
from tests.patterns.write_behind_fixtures import (
    CATALOGUE,
    CLICKED,
    CLICKS,
    EVENTS,
    HAPPENED,
    NO_DELAY,
    SHARES,
    VIEWS,
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


async def test_without_redis_additions_raise_or_fall_back_to_sql(engine: AsyncEngine) -> None:
    """`Unavailable` at once; with a sink as `fallback` the addition is in SQL when the call returns."""
    clicked, happened = CounterTable(engine, CLICKED, CLICKS), RecordTable(engine, HAPPENED)
    with embedded.valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            await store[CLICKS].add(page="p", day="mon", clicks=1, fallback=clicked)
            server.kill()
            await _down(store[CLICKS].backlog)
            with pytest.raises(Unavailable):
                await store[CLICKS].add(page="p", day="mon", clicks=1)
            with pytest.raises(Unavailable):
                await store[EVENTS].append(Event(1))
            assert await store[CLICKS].add(page="p", day="mon", clicks=2, fallback=clicked)
            assert await store[EVENTS].append(Event(2, "x", {"a": 1}), fallback=happened)
    assert await rows(engine, CLICKED) == [("p", "mon", 2, 0)]
    assert await rows(engine, HAPPENED) == [(2, "x", {"a": 1})]


async def _down(ask: Callable[[], Awaitable[object]]) -> None:
    """Wait until the client has noticed the outage."""

    async def noticed() -> bool:
        try:
            await ask()
        except Unavailable:
            return True
        except ConnectionFailed:
            return False
        return False

    await until(noticed)


async def test_usage_without_redis_raises_unavailable(engine: AsyncEngine) -> None:
    """Recording, reserving and reading raise `Unavailable`; there is no fallback."""
    with embedded.valkey() as server:
        async with connect(server.url, usage_fixtures.CATALOGUE) as store:
            usage = usage_fixtures.bound_usage(store, engine)
            server.kill()
            await _down(usage.counters.backlog)
            for asked in (
                usage.record("acme", tokens=1),
                usage.reserve("acme", tokens=1, limits={"tokens": 1}),
                usage.totals("acme"),
            ):
                with pytest.raises(Unavailable):
                    await asked


async def test_while_sql_is_down_the_backlog_grows_and_is_flushed_later() -> None:
    """A failed flush loses nothing; the background flusher retries and reports the error."""
    with embedded.valkey() as server, embedded.postgres() as postgres:
        engine = await prepare_database(postgres)
        async with engine.begin() as connection:
            await connection.execute(sa.insert(SHARES).values(presentation_id="p1"))
        await engine.dispose()
        postgres.kill()
        async with connect(server.url, CATALOGUE) as store:
            await store[VIEWS].add(presentation_id="p1", view_count=1)
            sink = CounterTable(engine, SHARES, VIEWS, insert=False)
            with pytest.raises(OperationalError):
                await Flusher(store[VIEWS], sink, claim_timeout=timedelta(milliseconds=1), **NO_DELAY).flush()
            flusher = Flusher(store[VIEWS], sink, claim_timeout=timedelta(milliseconds=1), **NO_DELAY)
            async with flusher:
                await until(lambda: _failing(flusher))
                await store[VIEWS].add(presentation_id="p1", view_count=2)
                assert await store[VIEWS].pending(presentation_id="p1") == {"view_count": 3}
                await asyncio.to_thread(postgres.restart)
                await until(lambda: _arrived(engine), within=30)
                await until(lambda: _well(flusher), within=30)
        await engine.dispose()


async def _failing(flusher: Flusher) -> bool:
    return flusher.failure is not None


async def _well(flusher: Flusher) -> bool:
    return flusher.failure is None


async def _arrived(engine: AsyncEngine) -> bool:
    return await rows(engine, SHARES) == [("p1", 3)]
