"""The league's figures of its database: queries per second, waits for a connection, slow statements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import MetaData, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.embedded import Postgres
from ephemera_services.league import database_figures
from ephemera_services.league.database_figures import DatabaseMeter, RecentCount
from ephemera_services.league.metrics import Metrics
from ephemera_services.league.monitor import advise_database
from ephemera_services.runtime import open_engine

CONNECTIONS = 10


@pytest.fixture
def meter() -> DatabaseMeter:
    """A meter for which every query is slow."""
    return DatabaseMeter(timedelta(0))


@pytest.fixture
def registry() -> CollectorRegistry:
    """What `/metrics` shows."""
    return CollectorRegistry()


@pytest.fixture
async def engine(
    postgres: Postgres, meter: DatabaseMeter, registry: CollectorRegistry
) -> AsyncIterator[AsyncEngine]:
    """An engine that is measured."""
    url, tables = postgres.database("league_database"), MetaData(schema="measured")
    async with open_engine(url, tables, pool_class=meter.pool_class()) as opened:
        meter.attach(opened, Metrics(registry))
        yield opened


async def test_queries_are_counted_and_shown_without_their_values(
    engine: AsyncEngine, meter: DatabaseMeter, registry: CollectorRegistry
) -> None:
    """Each statement counts, the failed ones also as errors, and no value of a parameter is shown."""
    async with engine.connect() as sql:
        for value in ("a secret", "another secret"):
            await sql.execute(text("SELECT CAST(:value AS text)"), {"value": value})
        with pytest.raises(ProgrammingError):
            await sql.execute(text("SELECT * FROM nowhere"))
    figures = meter.read()
    assert (figures.queries, figures.errors, figures.slow_queries) == (3, 1, 3)
    assert figures.queries_per_second > 0
    assert (figures.connections, figures.max_connections) == (0, CONNECTIONS)
    counts = {each.statement: each.count for each in figures.slow_statements}
    assert counts == {"SELECT CAST(%(value)s AS text)": 2, "SELECT * FROM nowhere": 1}
    assert registry.get_sample_value("league_sql_query_seconds_count") == 3
    assert registry.get_sample_value("league_sql_errors_total") == 1
    assert registry.get_sample_value("league_sql_slow_queries_total") == 3


async def test_slow_statements_are_bounded(engine: AsyncEngine, meter: DatabaseMeter) -> None:
    """Only the last twenty distinct statements are kept, shortened; lists of any length are one statement."""
    async with engine.connect() as sql:
        for number in range(30):
            await sql.execute(text(f"SELECT {number} -- {'x' * 1000}"))
        for length in (2, 5):
            names = [f"p_{number}" for number in range(length)]
            listed = ", ".join(f":{name}" for name in names)
            await sql.execute(text(f"SELECT 1 WHERE 1 IN ({listed})"), dict.fromkeys(names, 1))
    figures = meter.read()
    assert (figures.queries, figures.slow_queries, len(figures.slow_statements)) == (32, 32, 20)
    shown = {each.statement for each in figures.slow_statements}
    assert max(map(len, shown)) == 300
    assert "SELECT 1 WHERE 1 IN (...)" in shown
    assert any(statement.startswith("SELECT 29 ") for statement in shown)
    assert not any(statement.startswith("SELECT 9 ") for statement in shown)


async def test_who_waits_for_a_connection_is_counted(
    engine: AsyncEngine, meter: DatabaseMeter, registry: CollectorRegistry
) -> None:
    """While all connections are in use the next caller waits, which is counted, and so is giving up."""
    held = [await engine.connect() for _ in range(CONNECTIONS)]
    assert meter.read().connection_waits == 0
    assert registry.get_sample_value("league_sql_connections") == CONNECTIONS

    async def ask() -> None:
        async with engine.connect() as sql:
            await sql.execute(text("SELECT 1"))

    with pytest.raises(PoolTimeout):
        await ask()
    waiting = asyncio.create_task(ask())
    await asyncio.sleep(0)  # it waits now
    for each in held:
        await each.close()
    await waiting
    figures = meter.read()
    assert (figures.connection_waits, figures.connection_timeouts) == (2, 1)
    assert figures.longest_wait > 1000
    assert registry.get_sample_value("league_sql_connection_wait_seconds_count") == 2


def test_a_rate_is_of_the_last_minute() -> None:
    """What is older than a minute no longer counts; a young process divides by its age."""
    now = [1000.0]
    recent = RecentCount(lambda: now[0])
    for _ in range(10):
        now[0] += 1
        recent.add()
        recent.add()
    assert recent.per_second() == 2
    now[0] += 55
    assert recent.total() == 10
    now[0] += 10
    assert (recent.total(), recent.per_second()) == (0, 0)


@pytest.mark.parametrize("noticeable", [0.0, 1000.0])
async def test_advice_follows_the_figures(
    engine: AsyncEngine, meter: DatabaseMeter, monkeypatch: pytest.MonkeyPatch, noticeable: float
) -> None:
    """A few slow queries advise nothing, a hundred do, and so do waits that are long enough to be noticed."""
    monkeypatch.setattr(database_figures, "NOTICEABLE_WAIT", noticeable)
    async with engine.connect() as sql:
        await sql.execute(text("SELECT 1"))
        assert list(advise_database(meter.read())) == []
        for _ in range(120):
            await sql.execute(text("SELECT 1"))
    (advice,) = advise_database(meter.read())
    assert advice.startswith("upgrade the database: 100% of")
    held = [await engine.connect() for _ in range(CONNECTIONS)]
    waiting = [asyncio.create_task(engine.connect().start()) for _ in range(CONNECTIONS)]
    await asyncio.sleep(0)
    for each in held:
        await each.close()
    for each in await asyncio.gather(*waiting):
        await each.close()
    assert meter.read().connection_waits == CONNECTIONS
    assert ("give the service more SQL connections" in "".join(advise_database(meter.read()))) == (
        not noticeable
    )
