"""Sinks: the contract for PostgreSQL and SQLite, and the behaviour of PostgreSQL's tables."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.embedded import Postgres
from ephemera.errors import InvalidValue
from ephemera.patterns.write_behind import Applied, Batch, CounterTable, RecordTable, create_tables
from tests.patterns.sink_contract import Rows, SinkContract, SqliteSink, batch
from tests.patterns.write_behind_fixtures import (
    CLICKED,
    CLICKS,
    HAPPENED,
    SHARES,
    VIEWS,
    VOTED,
    prepare_database,
    rows,
)

TABLE = sa.Table(
    "contract",
    sa.MetaData(),
    sa.Column("number", sa.Integer),
    sa.Column("text", sa.Text),
    sa.CheckConstraint("number <> 13"),
)


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on a database with all tables, empty."""
    engine = await prepare_database(postgres)
    yield engine
    await engine.dispose()


class TestPostgres(SinkContract):
    """The contract for PostgreSQL."""

    @pytest.fixture
    async def sink(self, engine: AsyncEngine) -> RecordTable:
        """The contract's table, empty."""
        async with engine.begin() as connection:
            await connection.run_sync(TABLE.metadata.drop_all)
            await connection.run_sync(TABLE.metadata.create_all)
        return RecordTable(engine, TABLE)

    @pytest.fixture
    def written(self, engine: AsyncEngine) -> Rows:
        """The rows of the table."""
        return lambda: rows(engine, TABLE)


class TestSqlite(SinkContract):
    """The contract for a sink that a user might write for SQLite."""

    @pytest.fixture
    def database(self) -> Iterator[sqlite3.Connection]:
        """An in-memory database."""
        database = sqlite3.connect(":memory:")
        database.execute("CREATE TABLE contract (number CHECK (number <> 13), text)")
        yield database
        database.close()

    @pytest.fixture
    def sink(self, database: sqlite3.Connection) -> SqliteSink:
        """The contract's table, empty."""
        return SqliteSink(database, "contract")

    @pytest.fixture
    def written(self, database: sqlite3.Connection) -> Rows:
        """The rows of the table."""

        async def found() -> list[tuple[Any, ...]]:
            return database.execute("SELECT * FROM contract ORDER BY number").fetchall()

        return found


def _votes(number: int, *votes: tuple[str, str, str]) -> Batch:
    return Batch("votes", 0, "e", number, ("user_id", "match_id", "choice"), list(votes))


async def test_keep_first(engine: AsyncEngine) -> None:
    """With keep='first' neither the same batch nor a later one changes an existing row."""
    sink = RecordTable(engine, VOTED, unique=["user_id", "match_id"])
    await sink.apply(_votes(1, ("u", "m", "home"), ("u", "m", "away")))
    await sink.apply(_votes(2, ("u", "m", "draw"), ("v", "m", "away")))
    assert await rows(engine, VOTED) == [("u", "m", "home"), ("v", "m", "away")]


async def test_keep_last(engine: AsyncEngine) -> None:
    """With keep='last' the last record of a batch replaces earlier ones, even of earlier batches."""
    sink = RecordTable(engine, VOTED, unique=["user_id", "match_id"], keep="last")
    await sink.apply(_votes(1, ("u", "m", "home"), ("u", "m", "away")))
    assert await rows(engine, VOTED) == [("u", "m", "away")]
    await sink.apply(_votes(2, ("u", "m", "draw")))
    assert await rows(engine, VOTED) == [("u", "m", "draw")]


async def test_records_are_copied_until_a_duplicate(engine: AsyncEngine) -> None:
    """Records go straight into their table; after a duplicate, by a temporary table for a while."""
    sink = RecordTable(engine, VOTED, unique=["user_id", "match_id"])
    staged: list[int] = []

    @sa.event.listens_for(engine.sync_engine, "before_cursor_execute")
    def _(*called: Any) -> None:
        if "CREATE TEMPORARY" in called[2]:
            staged.append(number)

    for number in range(60):
        again = [("u3", "m", "late")] if number == 4 else []
        await sink.apply(_votes(number + 1, (f"u{number}", "m", "home"), *again))
    assert staged == list(range(4, 55))  # the one that met it, and fifty more
    assert sorted(await rows(engine, VOTED)) == sorted((f"u{number}", "m", "home") for number in range(60))


async def test_counters_are_upserted(engine: AsyncEngine) -> None:
    """An upsert adds to a row, and inserts a missing one."""
    sink = CounterTable(engine, CLICKED, CLICKS)
    columns = ("page", "day", "clicks", "spent")
    await sink.apply(Batch("clicks", 0, "e", 1, columns, [("a", "mon", 2, 10)]))
    await sink.apply(Batch("clicks", 0, "e", 2, columns, [("a", "mon", 3, 0), ("b", "mon", 1, 1)]))
    assert await rows(engine, CLICKED) == [("a", "mon", 5, 10), ("b", "mon", 1, 1)]


async def test_amounts_for_a_missing_row_are_rejected(engine: AsyncEngine) -> None:
    """With insert=False only existing rows are added to, and the reason names the missing one."""
    async with engine.begin() as connection:
        await connection.execute(sa.insert(SHARES).values(presentation_id="p1"))
    sink = CounterTable(engine, SHARES, VIEWS, insert=False)
    counted = [("p1", 4), ("gone", 2)]
    done = await sink.apply(Batch("views", 0, "e", 1, ("presentation_id", "view_count"), counted))
    assert done == Applied(rejected=1)
    assert await rows(engine, SHARES) == [("p1", 4)]
    (refused,) = await sink.rejected("views")
    assert refused.values() == {"presentation_id": "gone", "view_count": 2}
    assert refused.reason == "behind_shares has no row with this presentation_id"
    await sink.delete_rejected(refused)
    assert await sink.rejected("views") == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((1, "much longer than ten", None), "too long"),
        ((2**40, "x", None), "out of range"),
        ((1, "a\x00b", None), "NUL"),
        ((1, "\ud800", None), "surrogate"),
        ((None, "x", None), "null value"),
        (("one", "x", None), "invalid input syntax"),
        ((object(), "x", None), "cannot adapt"),
        ((1, "x", "{not json"), "invalid input syntax"),
    ],
)
async def test_only_the_bad_row_is_rejected(engine: AsyncEngine, row: tuple[Any, ...], reason: str) -> None:
    """A value that SQL or its driver cannot take is rejected with the reason; the other rows are written."""
    good = [(1, "before", '{"a": 1}'), (2, "after", None)]
    sink = RecordTable(engine, HAPPENED)
    columns = ("number", "text", "details")
    done = await sink.apply(Batch("events", 0, "e", 1, columns, [good[0], row, good[1]]))
    assert done == Applied(rejected=1)
    assert [found[:2] for found in await rows(engine, HAPPENED)] == [(1, "before"), (2, "after")]
    (refused,) = await sink.rejected("events")
    assert reason in refused.reason


async def test_a_deferred_constraint_is_checked_with_its_row(engine: AsyncEngine) -> None:
    """A constraint that would only fail at the commit is checked in time to reject its row."""
    table = sa.Table(
        "behind_deferred", sa.MetaData(), sa.Column("number", sa.Integer), sa.Column("text", sa.Text)
    )
    async with engine.begin() as connection:
        for statement in (
            "DROP TABLE IF EXISTS behind_deferred",
            "CREATE TABLE behind_deferred (number int UNIQUE DEFERRABLE INITIALLY DEFERRED, text text)",
        ):
            await connection.execute(sa.text(statement))
    done = await RecordTable(engine, table).apply(batch(1, [(1, "a"), (1, "b"), (2, "c")]))
    assert done == Applied(rejected=1)
    assert await rows(engine, table) == [(1, "a"), (2, "c")]


async def test_other_errors_are_raised_and_nothing_is_written(engine: AsyncEngine) -> None:
    """A missing table is no reason to reject rows: the batch must come again."""
    missing = sa.Table(
        "not_there", sa.MetaData(), sa.Column("number", sa.Integer), sa.Column("text", sa.Text)
    )
    sink = RecordTable(engine, missing)
    for _ in range(2):
        with pytest.raises(Exception, match="not_there"):
            await sink.apply(batch(1, [(1, "a")]))
    async with engine.connect() as connection:
        assert (
            await connection.execute(sa.text("SELECT count(*) FROM write_behind_last_batches"))
        ).scalar() == 0


async def test_a_flusher_that_hangs_in_its_transaction_does_not_block_the_next(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends the transaction of a flusher that hangs, and the next one writes the batch."""
    monkeypatch.setattr(
        "ephemera.patterns.write_behind._postgres._IDLE_TIMEOUT",
        ("idle_in_transaction_session_timeout", "200ms"),
    )
    hanging: Any = RecordTable(engine, VOTED)
    write, reached, go_on = hanging._write, asyncio.Event(), asyncio.Event()

    async def hang(*arguments: Any) -> Any:
        reached.set()
        await go_on.wait()
        return await write(*arguments)

    hanging._write = hang
    votes = _votes(1, ("u", "m", "home"))
    late = asyncio.create_task(hanging.apply(votes))
    await reached.wait()
    assert await RecordTable(engine, VOTED).apply(votes) == Applied()
    go_on.set()
    with pytest.raises(OperationalError):
        await late
    assert await rows(engine, VOTED) == [("u", "m", "home")]


async def test_tables_are_created_once_by_concurrent_processes(engine: AsyncEngine) -> None:
    """Processes that start together may all create the tables."""
    await create_tables(engine)
    await create_tables(engine)


async def test_times_and_bytes_reach_their_columns(engine: AsyncEngine) -> None:
    """Values of the types that SQL knows are stored as such."""
    table = sa.Table(
        "behind_typed",
        sa.MetaData(),
        sa.Column("number", sa.DateTime(timezone=True)),
        sa.Column("text", sa.LargeBinary),
    )
    async with engine.begin() as connection:
        await connection.run_sync(table.metadata.drop_all)
        await connection.run_sync(table.metadata.create_all)
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    await RecordTable(engine, table).apply(batch(1, [(moment, b"\x00\\\t")]))
    assert await rows(engine, table) == [(moment, b"\x00\\\t")]


async def test_missing_columns_are_refused_at_the_declaration(engine: AsyncEngine) -> None:
    """A sink whose table lacks a column fails when it is created, not at the first flush."""
    with pytest.raises(InvalidValue, match="presentation_id"):
        CounterTable(engine, CLICKED, VIEWS)
    with pytest.raises(InvalidValue, match="missing"):
        RecordTable(engine, VOTED, unique=["missing"])
    with pytest.raises(InvalidValue, match="'first' or 'last'"):
        RecordTable(engine, VOTED, keep="any")  # type: ignore[arg-type]


async def test_a_rejection_without_a_batch_is_raised(engine: AsyncEngine) -> None:
    """A direct write to SQL raises the rejection at once."""
    sink = CounterTable(engine, CLICKED, CLICKS)
    with pytest.raises(DBAPIError, match="not_forbidden"):
        await sink.write(("page", "day", "clicks", "spent"), [("forbidden", "mon", 1, 1)])
