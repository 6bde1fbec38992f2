"""Sinks for PostgreSQL: a table that counters are added to, and a table that records are inserted into.

    engine = sql_engine("postgresql://...")                              # of `ephemera.sql`
    await create_tables(engine)                                          # or `ephemera migrate up`
    CounterTable(engine, shares, VIEWS, insert=False)                    # UPDATE ... SET n = n + added
    RecordTable(engine, votes, unique=["user_id", "match_id"], keep="first")

Each batch is one transaction: its number (table `write_behind_last_batches`, one row per shard, locked until
the commit, so that flushers with the same batch are serialized), its rows, the ids of those that have one
(table `write_behind_idempotency`, kept for a week), and the rejected rows with the reason (table
`write_behind_rejected`); `SinkTables` gives them other names. Records are written by COPY. Records that meet
rows with the same `unique` values, and counters always, go by COPY into a temporary table and by one INSERT
or UPDATE from there: measured, it beats a multi-row upsert from about a thousand rows on, and takes half its
time at a hundred thousand. Needs the extra `sql`: SQLAlchemy 2 and psycopg 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from operator import add
from typing import Any, Literal

import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import InvalidValue
from ephemera.patterns.write_behind._batches import IDS_KEPT, Applied, Batch, Row, SequenceRegressed
from ephemera.patterns.write_behind._counters import DeferredCounters
from ephemera.patterns.write_behind._tables import (
    NoSuchRow,
    RejectedRow,
    SinkTables,
    create_tables,
    default_tables,
    row_as_json,
    write_or_split,
)
from ephemera.sql import CheckedEngine

__all__ = ["CounterTable", "RecordTable", "RejectedRow", "SinkTables", "create_tables"]

_STAGED = "write_behind_staged"
_IDLE_TIMEOUT = ("idle_in_transaction_session_timeout", "30s")
"""Ends the transaction of a flusher that hangs, and with it the row lock that the next one waits for."""
_STAGED_AFTER_CONFLICT = 50
"""Batches that go by the temporary table right away after one that met existing rows."""
_POSITION = "write_behind_position"
_PRUNED = 100  # expired ids that a batch with ids deletes, besides twice as many as it stores
_COPIED_AT_ONCE = 2000  # rows, before other tasks of the event loop run
_quoted = postgresql.dialect().identifier_preparer.quote  # type: ignore[no-untyped-call]


class _Table:
    """What both sinks share: one transaction per batch; subclasses say how rows are written."""

    _needs_positions = False
    """Whether the temporary table numbers its rows."""

    def __init__(self, engine: AsyncEngine, table: sa.Table, tables: SinkTables | None) -> None:
        self.table = table
        self.tables = tables or default_tables()
        """Where batch numbers, rejected rows and ids are kept."""
        self._engine = CheckedEngine(engine, self.tables.sql_schema)

    async def apply(self, batch: Batch) -> Applied | SequenceRegressed:
        """Write a batch and its number, unless SQL has them."""
        async with self._engine.begin() as connection:
            await connection.execute(sa.select(sa.func.set_config(*_IDLE_TIMEOUT, True)))
            if not (await connection.execute(claim(self.tables.last_batches, batch))).first():
                return await self._known(connection, batch)
            await connection.execute(sa.text("SET CONSTRAINTS ALL IMMEDIATE"))  # reject here, not at COMMIT
            rows, repeated = batch.rows, 0
            if batch.ids:
                rows = batch.rows_except(
                    await remember(connection, self.tables.idempotency, batch.ids.values())
                )
                repeated = len(batch.rows) - len(rows)
                rows = self._combined(rows)
            failed = await write_or_split(
                connection, rows, lambda rows: self._write(connection, batch.columns, rows)
            )
            rejected = [(data, reason) for data, reason in batch.undecodable]
            rejected += [(row_as_json(batch.columns, row), reason) for row, reason in failed]
            await store_rejected(connection, self.tables.rejected, batch.name, rejected)
        return Applied(rejected=len(rejected), repeated=repeated)

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row], ids: Sequence[str] = ()) -> bool:
        """Write rows immediately, without a batch; what SQL rejects is raised.

        With `ids`, one for each row, leave out rows whose id SQL has; False when that left none.
        """
        async with self._engine.begin() as connection:
            if ids:
                known = await remember(connection, self.tables.idempotency, ids)
                rows = self._combined([row for row, each in zip(rows, ids, strict=True) if each not in known])
                if not rows:
                    return False
            for _, reason in await self._write(connection, columns, list(rows)):
                raise NoSuchRow(reason)
        return True

    async def rejected(self, name: str, limit: int = 100) -> list[RejectedRow]:
        """Return the rejected rows of a declaration, the oldest first."""
        c = self.tables.rejected.c
        found = sa.select(c.id, c.payload, c.reason).where(c.name == name).order_by(c.id).limit(limit)
        async with self._engine.connect() as connection:
            rows = await connection.execute(found)
            return [RejectedRow(*row) for row in rows]

    async def delete_rejected(self, *rejected: RejectedRow) -> None:
        """Delete rejected rows that were recorded again or are not wanted."""
        ids, table = [row.id for row in rejected], self.tables.rejected
        async with self._engine.begin() as connection:
            await connection.execute(sa.delete(table).where(table.c.id.in_(ids)))

    async def _copy_directly(
        self,
        connection: AsyncConnection,
        columns: tuple[str, ...],
        rows: list[Row],
    ) -> bool:
        """Copy rows straight into their table where possible; False when they need the temporary table."""
        raise NotImplementedError

    async def _merge(self, connection: AsyncConnection, staged: sa.Table) -> list[tuple[int, str]]:
        """Move rows from the temporary table into their own; return the rejected positions and reasons."""
        raise NotImplementedError

    def _combined(self, rows: list[Row]) -> list[Row]:
        """Return rows that one statement can write."""
        return rows

    async def _known(self, connection: AsyncConnection, batch: Batch) -> Applied | SequenceRegressed:
        c = self.tables.last_batches.c
        known = sa.select(c.epoch, c.number).where(self.tables.is_shard(batch.name, batch.shard))
        row = await connection.execute(known)
        epoch, number = row.one()
        return Applied(duplicate=True) if epoch == batch.epoch else SequenceRegressed(number)

    async def _write(
        self, connection: AsyncConnection, columns: tuple[str, ...], rows: list[Row]
    ) -> list[tuple[Row, str]]:
        """Write rows; return those that were rejected without an error of SQL, and why."""
        if await self._copy_directly(connection, columns, rows):
            return []
        typed = [sa.Column(name, self.table.c[name].type) for name in columns]
        copied: Sequence[Row] = rows
        if self._needs_positions:
            typed.append(sa.Column(_POSITION, sa.Integer))
            copied = [(*row, position) for position, row in enumerate(rows)]
        staged = sa.Table(_STAGED, sa.MetaData(), *typed, prefixes=["TEMPORARY"], postgresql_on_commit="DROP")
        await connection.execute(sa.schema.CreateTable(staged))
        await _copy(connection, staged, [column.name for column in typed], copied)
        rejected = await self._merge(connection, staged)
        await connection.execute(sa.schema.DropTable(staged))
        return [(rows[position], reason) for position, reason in rejected]


class RecordTable(_Table):
    """A table that records are inserted into, by column name.

    Args:
        engine: The engine of the database.
        table: The table, with a column for each field of the record.
        unique: The columns of a unique index, if there is one. Of several records with the same values in
            them one is kept.
        keep: Which one: the "first", or the "last", which replaces the existing row.
        tables: Those of the declaration, if it names some.

    """

    def __init__(
        self,
        engine: AsyncEngine,
        table: sa.Table,
        *,
        unique: Sequence[str] = (),
        keep: Literal["first", "last"] = "first",
        tables: SinkTables | None = None,
    ) -> None:
        super().__init__(engine, table, tables)
        _check_columns(table, unique)
        if keep not in ("first", "last"):
            raise InvalidValue("keep", "'first' or 'last'", repr(keep))
        self._unique = list(unique)
        self._keep = keep
        self._staged_next = 0

    async def _copy_directly(
        self, connection: AsyncConnection, columns: tuple[str, ...], rows: list[Row]
    ) -> bool:
        """Try it, as duplicates are rare; after one, the next batches are merged right away."""
        if not self._unique:
            await _copy(connection, self.table, columns, rows)
            return True
        if self._staged_next:
            self._staged_next -= 1
            return False
        try:
            async with connection.begin_nested():
                await _copy(connection, self.table, columns, rows)
        except psycopg.errors.UniqueViolation:
            self._staged_next = _STAGED_AFTER_CONFLICT
            return False
        return True

    async def _merge(self, connection: AsyncConnection, staged: sa.Table) -> list[tuple[int, str]]:
        """Insert all rows in one statement that keeps the first or the last of duplicates."""
        names = [column.name for column in staged.c]
        others = [name for name in names if name not in self._unique]
        if self._keep == "first" or not others:
            adding = insert(self.table).from_select(names, sa.select(*staged.c))
            await connection.execute(adding.on_conflict_do_nothing(index_elements=self._unique))
            return []
        keys = [staged.c[name] for name in self._unique]
        # Rows of a table just filled by COPY are stored in the order they were copied.
        newest = (
            sa.select(*staged.c)
            .prefix_with(f"DISTINCT ON ({', '.join(map(_quoted, self._unique))})")
            .order_by(*keys, sa.literal_column("ctid").desc())
        )
        adding = insert(self.table).from_select(names, newest)
        changed = {name: adding.excluded[name] for name in others}
        await connection.execute(adding.on_conflict_do_update(index_elements=self._unique, set_=changed))
        return []


class CounterTable(_Table):
    """A table whose columns are added to, by the names of the declared key and measures.

    Args:
        engine: The engine of the database, of your own tables or another.
        table: The table, with a column for each part of the key and for each measure.
        counters: The declaration, which names these columns.
        insert: Whether missing rows are inserted, which needs a unique index on the key. With False, rows are
            only updated: amounts for a missing row are rejected.

    """

    def __init__(
        self, engine: AsyncEngine, table: sa.Table, counters: DeferredCounters, *, insert: bool = True
    ) -> None:
        super().__init__(engine, table, counters.tables)
        _check_columns(table, (*counters.key, *counters.measures))
        self._counters = counters
        self._needs_positions = not insert

    async def _copy_directly(self, *_: Any) -> bool:
        """Adding always needs the temporary table."""
        return False

    async def _merge(self, connection: AsyncConnection, staged: sa.Table) -> list[tuple[int, str]]:
        """Add in one INSERT or UPDATE, in the order of the keys, so that two flushers never deadlock."""
        table, key, measures = self.table, list(self._counters.key), self._counters.measures
        if not self._needs_positions:
            rows = sa.select(*staged.c).order_by(*(staged.c[name] for name in key))
            adding = insert(table).from_select([column.name for column in staged.c], rows)
            sums = {name: table.c[name] + adding.excluded[name] for name in measures}
            await connection.execute(adding.on_conflict_do_update(index_elements=key, set_=sums))
            return []
        same = sa.and_(*(table.c[name] == staged.c[name] for name in key))
        ordered = sa.select(sa.literal(1)).where(same).order_by(*(table.c[name] for name in key))
        await connection.execute(ordered.with_for_update(of=table))
        missing = sa.delete(staged).where(~sa.exists().where(same)).returning(staged.c[_POSITION])
        reason = f"{table.name} has no row with this {', '.join(key)}"
        rejected = [(position, reason) for position in (await connection.execute(missing)).scalars()]
        sums = {name: table.c[name] + staged.c[name] for name in measures}
        await connection.execute(sa.update(table).values(sums).where(same))
        return rejected

    def _combined(self, rows: list[Row]) -> list[Row]:
        """Sum the rows with the same key: additions with an idempotency key have rows of their own."""
        width = len(self._counters.key)
        sums: dict[Row, Row] = {}
        for row in rows:
            key, amounts = row[:width], row[width:]
            sums[key] = tuple(map(add, sums[key], amounts)) if key in sums else amounts
        return [(*key, *amounts) for key, amounts in sums.items()]

    async def totals(self, shard: int, key: Sequence[Any]) -> tuple[str, int, dict[str, int]]:
        """Return the epoch and number of a shard's last batch, and a row's amounts, from one snapshot."""
        table, counters = self.table, self._counters
        row = sa.and_(*(table.c[name] == value for name, value in zip(counters.key, key, strict=True)))
        last, c = self.tables.is_shard(counters.name, shard), self.tables.last_batches.c
        columns = [sa.select(column).where(last).scalar_subquery() for column in (c.epoch, c.number)]
        columns += [sa.select(table.c[name]).where(row).scalar_subquery() for name in counters.measures]
        async with self._engine.connect() as connection:
            epoch, number, *sums = (await connection.execute(sa.select(*columns))).one()
        amounts = dict(zip(counters.measures, (int(total or 0) for total in sums), strict=True))
        return epoch or "", number or 0, amounts


async def _copy(
    connection: AsyncConnection, table: sa.Table, columns: Sequence[str], rows: Sequence[Row]
) -> None:
    driver: Any = (await connection.get_raw_connection()).driver_connection
    quoted = connection.dialect.identifier_preparer
    names = ", ".join(map(quoted.quote, columns))
    statement = f"COPY {quoted.format_table(table)} ({names}) FROM STDIN"
    async with driver.cursor() as cursor, cursor.copy(statement) as copy:
        for first in range(0, len(rows), _COPIED_AT_ONCE):
            for row in rows[first : first + _COPIED_AT_ONCE]:
                await copy.write_row(row)
            await asyncio.sleep(0)


def _check_columns(table: sa.Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.c:
            raise InvalidValue(table.name, f"the columns {', '.join(table.c.keys())}", f"the column {name}")


def claim(last_batches: sa.Table, batch: Batch) -> sa.Executable:
    """Advance the shard's row to the batch's number and lock it; returns no row if it was there already."""
    values = {"name": batch.name, "shard": batch.shard, "epoch": batch.epoch, "number": batch.number}
    adding = insert(last_batches).values(values)
    advance = {
        **{name: adding.excluded[name] for name in ("epoch", "number")},
        "applied_at": sa.func.now(),
    }
    smaller = last_batches.c.number < adding.excluded.number
    return adding.on_conflict_do_update(
        index_elements=["name", "shard"], set_=advance, where=smaller
    ).returning(last_batches.c.number)


async def remember(connection: AsyncConnection, table: sa.Table, ids: Collection[str]) -> set[str]:
    """Store ids and return those that were stored before; delete some that are older than `IDS_KEPT`."""
    rows = [{"id": each} for each in sorted(ids)]  # in order, so that two flushers never deadlock
    adding = insert(table).on_conflict_do_nothing().returning(table.c.id)
    new = set((await connection.execute(adding, rows)).scalars())
    expired = (
        sa.select(table.c.id)
        .where(table.c.stored_at < sa.func.now() - IDS_KEPT)
        .order_by(table.c.stored_at)
        .limit(_PRUNED + 2 * len(rows))
        .with_for_update(skip_locked=True)
    )
    await connection.execute(sa.delete(table).where(table.c.id.in_(expired)))
    return set(ids) - new


async def store_rejected(
    connection: AsyncConnection, table: sa.Table, name: str, rejected: list[tuple[bytes, str]]
) -> None:
    """Store rejected rows, each with the reason."""
    if rejected:
        rows = [
            {"name": name, "payload": data, "reason": reason.replace("\x00", "")} for data, reason in rejected
        ]
        await connection.execute(sa.insert(table), rows)
