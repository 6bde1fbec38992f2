"""The guard in SQL: an event has one effect, however often it is delivered."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from ephemera.embedded import Postgres
from ephemera.errors import InvalidValue
from ephemera.patterns.events import Delivery, OnceGuard

ONCE = OnceGuard("test_handled")
Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
async def sql(postgres: Postgres) -> AsyncIterator[Connection]:
    """A connection to a database that has the guard's table."""
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as connection:
        await connection.execute(ONCE.table)
        yield connection


def _delivery(key: str, entry: str = "1-1", group: str = "g", origin: str = "") -> Delivery:
    return Delivery(entry, 1, key, group, origin or entry)


async def _first(connection: Connection, delivery: Delivery) -> bool:
    cursor = await connection.execute(ONCE.pyformat, ONCE.values(delivery))
    return ONCE.is_first(await cursor.fetchone())


async def test_an_event_is_first_once(sql: Connection, key: str) -> None:
    """An event is first once for each group of each stream, even after a replay."""
    assert await _first(sql, _delivery(key))
    assert not await _first(sql, _delivery(key))
    assert not await _first(sql, _delivery(key, "2-1", origin="1-1"))
    assert await _first(sql, _delivery(key, group="other"))
    assert await _first(sql, _delivery(f"{key}-other"))
    assert await _first(sql, _delivery(key, "2-2"))


async def test_a_rollback_leaves_the_event_to_the_next_attempt(sql: Connection, key: str) -> None:
    """A rolled-back effect leaves no row, so the next attempt is the first."""
    async with sql.transaction(force_rollback=True):
        assert await _first(sql, _delivery(key))
    assert await _first(sql, _delivery(key))


async def test_the_second_of_two_concurrent_deliveries_waits_for_the_first(
    sql: Connection, postgres: Postgres, key: str
) -> None:
    """The second of two concurrent deliveries waits for the first to commit, and is not the first."""
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as other:
        async with sql.transaction():
            assert await _first(sql, _delivery(key))
            second = asyncio.create_task(_first(other, _delivery(key)))
            done, _ = await asyncio.wait((second,), timeout=0.1)
            assert not done
        assert not await second


def test_the_statements_work_on_sqlite(key: str) -> None:
    """The same statements work on SQLite, with named parameters."""
    with sqlite3.connect(":memory:") as sql:
        sql.execute(ONCE.table)
        for first in (True, False):
            row = sql.execute(ONCE.named, ONCE.values(_delivery(key))).fetchone()
            assert ONCE.is_first(row) is first
    sql.close()


def test_a_table_must_be_a_name() -> None:
    """A table name that could contain SQL is refused."""
    with pytest.raises(InvalidValue):
        OnceGuard("handled; DROP TABLE users")
    assert "audit.handled" in OnceGuard("audit.handled").table
