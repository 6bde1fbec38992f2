"""The contract of every sink, whatever its database; and a sink for SQLite, which shows that it suffices.

To test your own sink, subclass `SinkContract` and give it the fixtures `sink` and `written`.
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
    """Return a batch of the contract's table."""
    return Batch("contract", shard, epoch, number, COLUMNS, rows, **more)


class SinkContract:
    """The tests; `written` returns the rows (number, text), and number 13 must be rejected."""

    async def test_a_batch_is_written_once(self, sink: Sink, written: Rows) -> None:
        """A batch that is applied repeatedly is in the table once."""
        first = batch(5, [(1, "a"), (2, "b")])
        assert await sink.apply(first) == Applied()
        for _ in range(2):
            assert await sink.apply(first) == Applied(duplicate=True)
        assert await written() == [(1, "a"), (2, "b")]

    async def test_an_overtaken_batch_is_not_written(self, sink: Sink, written: Rows) -> None:
        """A batch that arrives after a later one of its shard counts as applied."""
        await sink.apply(batch(5, [(1, "a")]))
        await sink.apply(batch(9, [(2, "b")]))
        assert await sink.apply(batch(5, [(1, "a")])) == Applied(duplicate=True)
        assert await written() == [(1, "a"), (2, "b")]

    async def test_shards_have_numbers_of_their_own(self, sink: Sink, written: Rows) -> None:
        """The numbers of one shard do not affect another."""
        await sink.apply(batch(9, [(1, "a")]))
        assert await sink.apply(batch(5, [(2, "b")], shard=1)) == Applied()
        assert await written() == [(1, "a"), (2, "b")]

    async def test_a_new_epoch_continues_above(self, sink: Sink, written: Rows) -> None:
        """After Redis lost its state, larger numbers are applied, and smaller ones regress."""
        await sink.apply(batch(5, [(1, "a")]))
        assert await sink.apply(batch(3, [(2, "b")], epoch="e2")) == SequenceRegressed(5)
        assert await sink.apply(batch(6, [(2, "b")], epoch="e2")) == Applied()
        assert await written() == [(1, "a"), (2, "b")]

    async def test_rejected_rows_do_not_delay_the_rest(self, sink: Sink, written: Rows) -> None:
        """Rows that the database rejects are stored and counted, the others are written."""
        rows: list[Row] = [(number, "x") for number in range(10, 18)]
        undecodable = (Undecodable(b"?", "no record"),)
        assert await sink.apply(batch(5, rows, undecodable=undecodable)) == Applied(rejected=2)
        assert [number for number, _ in await written()] == [10, 11, 12, 14, 15, 16, 17]

    async def test_rows_can_be_written_directly(self, sink: Sink, written: Rows) -> None:
        """Without a batch rows are written immediately, and a rejection is raised."""
        await sink.write(COLUMNS, [(1, "a")])
        with pytest.raises(Exception, match=r".+"):
            await sink.write(COLUMNS, [(2, "b"), (13, "unlucky")])
        assert await written() == [(1, "a")]


class SqliteSink:
    """A table of SQLite: batch numbers, rows and rejected rows in one transaction."""

    def __init__(self, database: sqlite3.Connection, table: str) -> None:
        self._database = database
        self._table = table
        database.executescript(
            "CREATE TABLE last_batches (name, shard, epoch, number, PRIMARY KEY (name, shard));"
            "CREATE TABLE rejected (name, payload, reason);"
        )

    async def apply(self, batch: Batch) -> Applied | SequenceRegressed:
        """See `Sink`."""
        with self._database as sql:
            known = sql.execute(
                "SELECT epoch, number FROM last_batches WHERE (name, shard) = (?, ?)",
                (batch.name, batch.shard),
            ).fetchone()
            if known and known[1] >= batch.number:
                return Applied(duplicate=True) if known[0] == batch.epoch else SequenceRegressed(known[1])
            last = (batch.name, batch.shard, batch.epoch, batch.number)
            sql.execute("REPLACE INTO last_batches VALUES (?, ?, ?, ?)", last)
            rejected: list[tuple[Any, str]] = [(data, reason) for data, reason in batch.undecodable]
            for row in batch.rows:
                try:
                    self._insert(batch.columns, row)
                except sqlite3.IntegrityError as problem:
                    rejected.append((repr(row), str(problem)))
            sql.executemany("INSERT INTO rejected VALUES ('contract', ?, ?)", rejected)
        return Applied(rejected=len(rejected))

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """See `Sink`."""
        with self._database:
            for row in rows:
                self._insert(columns, row)

    def _insert(self, columns: tuple[str, ...], row: Row) -> None:
        marks = ", ".join("?" * len(row))
        self._database.execute(f"INSERT INTO {self._table} ({', '.join(columns)}) VALUES ({marks})", row)
