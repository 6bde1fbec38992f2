"""The contract of every sink, whatever its database; and a sink for SQLite, which shows that it suffices.

To test your own sink, subclass `SinkContract` and give it the fixtures `sink` and `written`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import zip_longest
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

    async def test_a_row_with_an_id_is_written_once(self, sink: Sink, written: Rows) -> None:
        """A row whose id the database has is left out, whether it comes directly or in a batch."""
        assert await sink.write(COLUMNS, [(1, "a"), (2, "b")], ["one", "two"])
        assert not await sink.write(COLUMNS, [(1, "a"), (2, "b")], ["one", "two"])
        rows: list[Row] = [(2, "b"), (3, "c"), (4, "d"), (3, "c"), (4, "d")]
        ids = {0: "two", 2: "four", 4: "four"}
        assert await sink.apply(batch(5, rows, ids=ids)) == Applied(repeated=2)
        assert await written() == [(1, "a"), (2, "b"), (3, "c"), (3, "c"), (4, "d")]
        assert not await sink.write(COLUMNS, [(4, "d")], ["four"])


class SqliteSink:
    """A table of SQLite: batch numbers, rows and rejected rows in one transaction."""

    def __init__(self, database: sqlite3.Connection, table: str) -> None:
        self._database = database
        self._table = table
        database.executescript(
            "CREATE TABLE last_batches (name, shard, epoch, number, PRIMARY KEY (name, shard));"
            "CREATE TABLE rejected (name, payload, reason);"
            "CREATE TABLE ids (id PRIMARY KEY, stored_at DEFAULT CURRENT_TIMESTAMP);"
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
            rows = batch.rows_except(self._remember(batch.ids.values()))
            for row in rows:
                try:
                    self._insert(batch.columns, row)
                except sqlite3.IntegrityError as problem:
                    rejected.append((repr(row), str(problem)))
            sql.executemany("INSERT INTO rejected VALUES ('contract', ?, ?)", rejected)
        return Applied(rejected=len(rejected), repeated=len(batch.rows) - len(rows))

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row], ids: Sequence[str] = ()) -> bool:
        """See `Sink`."""
        with self._database:
            known = self._remember(ids)
            new = [row for row, each in zip_longest(rows, ids) if each not in known]
            for row in new:
                self._insert(columns, row)
        return bool(new)

    def _remember(self, ids: Collection[str]) -> set[str]:
        """Store ids and return those that were stored; the tests are over long before a week has passed."""
        adding = "INSERT INTO ids (id) VALUES (?) ON CONFLICT DO NOTHING RETURNING id"
        new = {found for each in ids for (found,) in self._database.execute(adding, (each,)).fetchall()}
        return set(ids) - new

    def _insert(self, columns: tuple[str, ...], row: Row) -> None:
        marks = ", ".join("?" * len(row))
        self._database.execute(f"INSERT INTO {self._table} ({', '.join(columns)}) VALUES ({marks})", row)
