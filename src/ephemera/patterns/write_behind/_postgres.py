"""Sinks for PostgreSQL: a table that counters are added to, and a table that records are inserted into.

    engine = create_async_engine("postgresql+psycopg://...")
    await create_tables(engine)                                          # or METADATA, for your migrations
    CounterTable(engine, shares, VIEWS, insert=False)                    # UPDATE ... SET n = n + added
    RecordTable(engine, votes, unique=["user_id", "match_id"], keep="first")

Each batch is one transaction: its number (table `write_behind_last_batches`, one row per shard, locked until
the commit, so that flushers with the same batch are serialized), its rows, and the rejected rows with the
reason (table `write_behind_rejected`). Records are written by COPY. Records that meet rows with the same
`unique` values, and counters always, go by COPY into a temporary table and by one INSERT or UPDATE from
there: measured, it beats a multi-row upsert from about a thousand rows on, and takes half its time at a
hundred thousand. Needs the extra `sql`: SQLAlchemy 2 and psycopg 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import InvalidValue
from ephemera.patterns.write_behind._batch_tables import (
    LAST_BATCHES,
    REJECTED,
    NoSuchRow,
    RejectedRow,
    claim,
    is_shard,
    row_as_json,
    store_rejected,
    write_or_split,
)
from ephemera.patterns.write_behind._batches import Applied, Batch, Row, SequenceRegressed
from ephemera.patterns.write_behind._counters import DeferredCounters

_STAGED = "write_behind_staged"
_IDLE_TIMEOUT = ("idle_in_transaction_session_timeout", "30s")
"""Ends the transaction of a flusher that hangs, and with it the row lock that the next one waits for."""
_STAGED_AFTER_CONFLICT = 50
"""Batches that go by the temporary table right away after one that met existing rows."""
_quoted = postgresql.dialect().identifier_preparer.quote  # type: ignore[no-untyped-call]


class _Table:
    """What both sinks share: one transaction per batch; subclasses say how rows are written."""

    def __init__(self, engine: AsyncEngine, table: sa.Table) -> None:
        self.table = table
        self._engine = engine

    async def apply(self, batch: Batch) -> Applied | SequenceRegressed:
        """Write a batch and its number, unless SQL has them."""
        async with self._engine.begin() as connection:
            await connection.execute(sa.select(sa.func.set_config(*_IDLE_TIMEOUT, True)))
            if not (await connection.execute(claim(batch))).first():
                return await self._known(connection, batch)
            await connection.execute(sa.text("SET CONSTRAINTS ALL IMMEDIATE"))  # reject here, not at COMMIT
            failed = await write_or_split(
                connection, batch.rows, lambda rows: self._write(connection, batch.columns, rows)
            )
            rejected = [(data, reason) for data, reason in batch.undecodable]
            rejected += [(row_as_json(batch.columns, row), reason) for row, reason in failed]
            await store_rejected(connection, batch.name, rejected)
        return Applied(rejected=len(rejected))

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Write rows immediately, without a batch; what SQL rejects is raised."""
        async with self._engine.begin() as connection:
            await self._write(connection, columns, list(rows))

    async def rejected(self, name: str, limit: int = 100) -> list[RejectedRow]:
        """Return the rejected rows of a declaration, the oldest first."""
        found = sa.select(REJECTED.c.id, REJECTED.c.payload, REJECTED.c.reason).where(REJECTED.c.name == name)
        async with self._engine.connect() as connection:
            rows = await connection.execute(found.order_by(REJECTED.c.id).limit(limit))
            return [RejectedRow(*row) for row in rows]

    async def delete_rejected(self, *rejected: RejectedRow) -> None:
        """Delete rejected rows that were recorded again or are not wanted."""
        ids = [row.id for row in rejected]
        async with self._engine.begin() as connection:
            await connection.execute(sa.delete(REJECTED).where(REJECTED.c.id.in_(ids)))

    async def _copy_directly(
        self,
        connection: AsyncConnection,
        columns: tuple[str, ...],
        rows: list[Row],
    ) -> bool:
        """Copy rows straight into their table where possible; False when they need the temporary table."""
        raise NotImplementedError

    async def _merge(self, connection: AsyncConnection, staged: sa.Table) -> None:
        """Move rows from the temporary table into their own."""
        raise NotImplementedError

    async def _known(self, connection: AsyncConnection, batch: Batch) -> Applied | SequenceRegressed:
        known = sa.select(LAST_BATCHES.c.epoch, LAST_BATCHES.c.number)
        row = await connection.execute(known.where(is_shard(batch.name, batch.shard)))
        epoch, number = row.one()
        return Applied(duplicate=True) if epoch == batch.epoch else SequenceRegressed(number)

    async def _write(self, connection: AsyncConnection, columns: tuple[str, ...], rows: list[Row]) -> None:
        if await self._copy_directly(connection, columns, rows):
            return
        typed = [sa.Column(name, self.table.c[name].type) for name in columns]
        staged = sa.Table(_STAGED, sa.MetaData(), *typed, prefixes=["TEMPORARY"], postgresql_on_commit="DROP")
        await connection.execute(sa.schema.CreateTable(staged))
        await _copy(connection, staged, columns, rows)
        await self._merge(connection, staged)
        await connection.execute(sa.schema.DropTable(staged))


class RecordTable(_Table):
    """A table that records are inserted into, by column name.

    `unique` names columns with a unique index. Of several records with the same values in them one is kept:
    the `first`, or the `last`, which replaces the existing row.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        table: sa.Table,
        *,
        unique: Sequence[str] = (),
        keep: Literal["first", "last"] = "first",
    ) -> None:
        super().__init__(engine, table)
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

    async def _merge(self, connection: AsyncConnection, staged: sa.Table) -> None:
        """Insert all rows in one statement that keeps the first or the last of duplicates."""
        names = [column.name for column in staged.c]
        others = [name for name in names if name not in self._unique]
        if self._keep == "first" or not others:
            adding = insert(self.table).from_select(names, sa.select(*staged.c))
            await connection.execute(adding.on_conflict_do_nothing(index_elements=self._unique))
            return
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


class CounterTable(_Table):
    """A table whose columns are added to, by the names of the declared key and measures.

    Missing rows are inserted, which needs a unique index on the key. With `insert=False` rows are only
    updated: amounts for a missing row are rejected.
    """

    def __init__(
        self, engine: AsyncEngine, table: sa.Table, counters: DeferredCounters, *, insert: bool = True
    ) -> None:
        super().__init__(engine, table)
        _check_columns(table, (*counters.key, *counters.measures))
        self._counters = counters
        self._insert = insert

    async def _copy_directly(self, *_: Any) -> bool:
        """Adding always needs the temporary table."""
        return False

    async def _merge(self, connection: AsyncConnection, staged: sa.Table) -> None:
        """Add in one INSERT or UPDATE, in the order of the keys, so that two flushers never deadlock."""
        table, key, measures = self.table, list(self._counters.key), self._counters.measures
        if self._insert:
            rows = sa.select(*staged.c).order_by(*(staged.c[name] for name in key))
            adding = insert(table).from_select([column.name for column in staged.c], rows)
            sums = {name: table.c[name] + adding.excluded[name] for name in measures}
            await connection.execute(adding.on_conflict_do_update(index_elements=key, set_=sums))
            return
        same = sa.and_(*(table.c[name] == staged.c[name] for name in key))
        absent = sa.select(sa.func.count()).select_from(staged).where(~sa.exists().where(same))
        if await connection.scalar(absent):
            raise NoSuchRow(f"{table.name} has no row with this {', '.join(key)}")
        ordered = sa.select(sa.literal(1)).where(same).order_by(*(table.c[name] for name in key))
        await connection.execute(ordered.with_for_update(of=table))
        sums = {name: table.c[name] + staged.c[name] for name in measures}
        await connection.execute(sa.update(table).values(sums).where(same))

    async def totals(self, shard: int, key: Sequence[Any]) -> tuple[str, int, dict[str, int]]:
        """Return the epoch and number of a shard's last batch, and a row's amounts, from one snapshot."""
        table, counters = self.table, self._counters
        row = sa.and_(*(table.c[name] == value for name, value in zip(counters.key, key, strict=True)))
        last = is_shard(counters.name, shard)
        columns = [
            sa.select(LAST_BATCHES.c[name]).where(last).scalar_subquery() for name in ("epoch", "number")
        ]
        columns += [sa.select(table.c[name]).where(row).scalar_subquery() for name in counters.measures]
        async with self._engine.connect() as connection:
            epoch, number, *sums = (await connection.execute(sa.select(*columns))).one()
        amounts = dict(zip(counters.measures, (int(total or 0) for total in sums), strict=True))
        return epoch or "", number or 0, amounts


async def _copy(
    connection: AsyncConnection, table: sa.Table, columns: tuple[str, ...], rows: list[Row]
) -> None:
    driver: Any = (await connection.get_raw_connection()).driver_connection
    quoted = connection.dialect.identifier_preparer
    names = ", ".join(map(quoted.quote, columns))
    statement = f"COPY {quoted.format_table(table)} ({names}) FROM STDIN"
    async with driver.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            await copy.write_row(row)


def _check_columns(table: sa.Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.c:
            raise InvalidValue(table.name, f"the columns {', '.join(table.c.keys())}", f"the column {name}")
