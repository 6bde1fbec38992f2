"""The fence in SQL: an older holder is refused, even when both write at once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from ephemera import Store
from ephemera.embedded import Postgres
from ephemera.errors import InvalidValue, StaleFencingToken
from ephemera.patterns.locks import FenceGuard, HeldLock
from tests.patterns.lock_fixtures import LOCKS

GUARD = FenceGuard("test_fences")

Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
async def sql(postgres: Postgres) -> AsyncIterator[Connection]:
    """A connection to a database that has the guard's table."""
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as connection:
        await connection.execute(GUARD.table)
        yield connection


async def _pass(connection: Connection, held: HeldLock) -> None:
    cursor = await connection.execute(GUARD.pyformat, GUARD.values(held))
    GUARD.admit(held, await cursor.fetchone())


async def _two_holders(store: Store, name: str) -> tuple[HeldLock, HeldLock]:
    """Return an older and a newer holder of one lock, both released."""
    async with store[LOCKS].hold(name=name) as older:
        pass
    async with store[LOCKS].hold(name=name) as newer:
        pass
    return older, newer


async def test_an_older_fence_is_refused(locked: Store, sql: Connection, key: str) -> None:
    """A fence is admitted repeatedly until a newer one was, and then never again."""
    older, newer = await _two_holders(locked, key)
    for held in (older, older, newer, newer):
        await _pass(sql, held)
    with pytest.raises(StaleFencingToken) as caught:
        await _pass(sql, older)
    assert (caught.value.key, caught.value.fence) == (older.key, older.fence)


async def test_locks_do_not_refuse_each_other(locked: Store, sql: Connection, key: str) -> None:
    """The fences of different locks are independent."""
    older, _ = await _two_holders(locked, f"{key}-1")
    _, newer = await _two_holders(locked, f"{key}-2")
    await _pass(sql, newer)
    await _pass(sql, older)


async def test_of_two_concurrent_holders_the_older_commits_first_or_is_refused(
    locked: Store, sql: Connection, postgres: Postgres, key: str
) -> None:
    """A newer holder waits for the older one's commit; an older one that waits for the newer is refused."""
    older, newer = await _two_holders(locked, key)
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as other:
        async with sql.transaction():
            await _pass(sql, older)
            second = asyncio.create_task(_pass(other, newer))
            await _blocked(postgres, other)
            assert not second.done()
        await second
        async with other.transaction():
            await _pass(other, newer)
            late = asyncio.create_task(_pass(sql, older))
            await _blocked(postgres, sql)
        with pytest.raises(StaleFencingToken):
            await late


async def _blocked(postgres: Postgres, connection: Connection) -> None:
    """Wait until a connection waits for a PostgreSQL lock."""
    query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as watcher:
        async with asyncio.timeout(60):
            while (await (await watcher.execute(query, (connection.info.backend_pid,))).fetchone()) != (
                True,
            ):
                await asyncio.sleep(0.005)


async def test_the_named_form_works_on_sqlite(locked: Store, key: str) -> None:
    """The same statement with `:name` parameters guards SQLite."""
    older, newer = await _two_holders(locked, key)
    with sqlite3.connect(":memory:") as database:
        database.execute(GUARD.table)
        for held in (older, newer):
            GUARD.admit(held, database.execute(GUARD.named, GUARD.values(held)).fetchone())
        with pytest.raises(StaleFencingToken):
            GUARD.admit(older, database.execute(GUARD.named, GUARD.values(older)).fetchone())
    database.close()


def test_only_a_table_name_is_accepted() -> None:
    """Text that is not a table name never becomes part of a statement."""
    assert "app.fences" in FenceGuard("app.fences").table
    with pytest.raises(InvalidValue):
        FenceGuard("fences; DROP TABLE users")
