"""What every sink must do, whatever its database; and a sink for SQLite, to show that the port is enough.

A suite for a sink of your own: subclass `SinkContract` and give it the fixtures `sink` and `written`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ephemera.patterns.write_behind import Applied, Batch, Row, SequenceRegressed, Sink, Undecodable

Rows = Callable[[], Awaitable[list[tuple[Any, ...]]]]

COLUMNS = ("number", "text")


def batch(number: int, rows: list[Row], *, shard: int = 0, epoch: str = "e1", **more: Any) -> Batch:
    """A batch of the contract's table."""
    return Batch("contract", shard, epoch, number, COLUMNS, rows, **more)


class SinkContract:
    """The tests; `written` gives the rows (number, text), and number 13 must be refused."""

    async def test_a_batch_is_written_once(self, sink: Sink, written: Rows) -> None:
        """The same batch, however often it comes, is in the table once."""
        first = batch(5, [(1, "a"), (2, "b")])
        assert await sink.apply(first) == Applied()
        for _ in range(2):
            assert await sink.apply(first) == Applied(duplicate=True)
        assert await written() == [(1, "a"), (2, "b")]

    async def test_an_overtaken_batch_is_not_written(self, sink: Sink, written: Rows) -> None:
        """A batch that comes when a later one of its shard was there is taken for written."""
        await sink.apply(batch(5, [(1, "a")]))
        await sink.apply(batch(9, [(2, "b")]))
        assert await sink.apply(batch(5, [(1, "a")])) == Applied(duplicate=True)
        assert await written() == [(1, "a"), (2, "b")]

    async def test_shards_have_numbers_of_their_own(self, sink: Sink, written: Rows) -> None:
        """What one shard has written does not keep another from writing."""
        await sink.apply(batch(9, [(1, "a")]))
        assert await sink.apply(batch(5, [(2, "b")], shard=1)) == Applied()
        assert await written() == [(1, "a"), (2, "b")]

    async def test_another_epoch_goes_on_above(self, sink: Sink, written: Rows) -> None:
        """After Redis lost its state, larger numbers are written, and smaller ones ask for a larger one."""
        await sink.apply(batch(5, [(1, "a")]))
        assert await sink.apply(batch(3, [(2, "b")], epoch="e2")) == SequenceRegressed(5)
        assert await sink.apply(batch(6, [(2, "b")], epoch="e2")) == Applied()
        assert await written() == [(1, "a"), (2, "b")]

    async def test_refused_rows_do_not_hold_up_the_rest(self, sink: Sink, written: Rows) -> None:
        """Rows that the database refuses are put aside and counted, the others are written."""
        rows: list[Row] = [(number, "x") for number in range(10, 18)]
        undecodable = (Undecodable(b"?", "no record"),)
        assert await sink.apply(batch(5, rows, undecodable=undecodable)) == Applied(rejected=2)
        assert [number for number, _ in await written()] == [10, 11, 12, 14, 15, 16, 17]

    async def test_rows_can_be_written_at_once(self, sink: Sink, written: Rows) -> None:
        """Without a batch rows are written as they come, and what is refused is raised."""
        await sink.write(COLUMNS, [(1, "a")])
        with pytest.raises(Exception, match=r".+"):
            await sink.write(COLUMNS, [(2, "b"), (13, "unlucky")])
        assert await written() == [(1, "a")]


class SqliteSink:
    """A table of SQLite: marks, rows and refused rows in one transaction."""

    def __init__(self, database: sqlite3.Connection, table: str) -> None:
        self._database = database
        self._table = table
        database.executescript(
            "CREATE TABLE marks (name, shard, epoch, number, PRIMARY KEY (name, shard));"
            "CREATE TABLE refused (name, payload, reason);"
        )

    async def apply(self, batch: Batch) -> Applied | SequenceRegressed:
        """As the port says."""
        with self._database as sql:
            known = sql.execute(
                "SELECT epoch, number FROM marks WHERE (name, shard) = (?, ?)", (batch.name, batch.shard)
            ).fetchone()
            if known and known[1] >= batch.number:
                return Applied(duplicate=True) if known[0] == batch.epoch else SequenceRegressed(known[1])
            mark = (batch.name, batch.shard, batch.epoch, batch.number)
            sql.execute("REPLACE INTO marks VALUES (?, ?, ?, ?)", mark)
            aside: list[tuple[Any, str]] = [(data, reason) for data, reason in batch.undecodable]
            for row in batch.rows:
                try:
                    self._insert(batch.columns, row)
                except sqlite3.IntegrityError as problem:
                    aside.append((repr(row), str(problem)))
            sql.executemany("INSERT INTO refused VALUES ('contract', ?, ?)", aside)
        return Applied(rejected=len(aside))

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """As the port says."""
        with self._database:
            for row in rows:
                self._insert(columns, row)

    def _insert(self, columns: tuple[str, ...], row: Row) -> None:
        marks = ", ".join("?" * len(row))
        self._database.execute(f"INSERT INTO {self._table} ({', '.join(columns)}) VALUES ({marks})", row)
