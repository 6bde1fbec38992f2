"""Sinks for PostgreSQL: a table that counters are added to, and a table that records go into.

    engine = create_async_engine("postgresql+psycopg://...")
    await create_tables(engine)                                          # or METADATA, for your migrations
    CounterTable(engine, shares, VIEWS, insert=False)                    # UPDATE ... SET n = n + added
    RecordTable(engine, votes, unique=["user_id", "match_id"], keep="first")

One transaction a batch: the number of the batch (table `write_behind_marks`, a row for each shard, locked
until the commit, so that flushers with the same batch come one after the other), its rows, and the rows that
were refused, with the reason (table `write_behind_refused`). Records are written by COPY. Where they meet
rows with the same `unique` values, and counters always, go by COPY into a temporary table and one INSERT or
UPDATE from there: measured, it beats a multi-row upsert from about a thousand rows on, and takes half its
time at a hundred thousand.
Needs the extra `sql`: SQLAlchemy 2 and psycopg 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import InvalidValue
from ephemera.patterns.write_behind._batches import Batch, Behind, Row, Written
from ephemera.patterns.write_behind._declaration import DeferredCounters

try:
    import psycopg
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.dialects.postgresql import insert

    from ephemera.patterns.write_behind._ledger import (
        MARKS,
        METADATA,
        REFUSED,
        Refused,
        claim,
        create_tables,
        of_shard,
        put_aside,
        shown,
    )
    from ephemera.patterns.write_behind._refusals import NoSuchRow, write_or_split
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"the sinks for PostgreSQL need {missing.name}: pip install '/path/to/ephemera[sql]'",
        name=missing.name,
    ) from None


__all__ = ["METADATA", "CounterTable", "RecordTable", "Refused", "create_tables"]

_STAGED = "write_behind_staged"
_END_IDLE = ("idle_in_transaction_session_timeout", "30s")
"""A flusher that hangs in a transaction loses it, and with it the row that the next one waits for."""
_STAGED_AFTER = 50
"""Batches that go by the temporary table at once after one that met rows which were there."""
_quoted = postgresql.dialect().identifier_preparer.quote  # type: ignore[no-untyped-call]


class _Table:
    """What both sinks do: one transaction a batch; how rows are written is the subclass's `merge`."""

    def __init__(self, engine: AsyncEngine, table: sa.Table) -> None:
        self._engine = engine
        self.table = table

    async def _copied(self, connection: AsyncConnection, columns: tuple[str, ...], rows: list[Row]) -> bool:  # noqa: ARG002
        """Copy rows straight into their table, where that can be; False when they go by a temporary one."""
        return False

    async def merge(self, connection: AsyncConnection, staged: sa.Table) -> None:
        """Bring rows from the temporary table to their own."""
        raise NotImplementedError

    async def apply(self, batch: Batch) -> Written | Behind:
        """Write a batch and its number, unless they were there."""
        async with self._engine.begin() as connection:
            await connection.execute(sa.select(sa.func.set_config(*_END_IDLE, True)))
            if not (await connection.execute(claim(batch))).first():
                return await self._known(connection, batch)
            await connection.execute(sa.text("SET CONSTRAINTS ALL IMMEDIATE"))  # refuse here, not at COMMIT
            refused = await write_or_split(
                connection, batch.rows, lambda rows: self._write(connection, batch.columns, rows)
            )
            aside = [(data, reason) for data, reason in batch.unread]
            aside += [(shown(batch.columns, row), reason) for row, reason in refused]
            await put_aside(connection, batch.name, aside)
        return Written(now=True, refused=len(aside))

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Write rows at once, without a batch; what SQL refuses is raised."""
        async with self._engine.begin() as connection:
            await self._write(connection, columns, list(rows))

    async def refused(self, name: str, limit: int = 100) -> list[Refused]:
        """The rows of a declaration that were refused, the oldest first."""
        found = sa.select(REFUSED.c.id, REFUSED.c.payload, REFUSED.c.reason).where(REFUSED.c.name == name)
        async with self._engine.connect() as connection:
            rows = await connection.execute(found.order_by(REFUSED.c.id).limit(limit))
            return [Refused(*row) for row in rows]

    async def forget(self, *refused: Refused) -> None:
        """Remove refused rows: they were recorded anew, or are not wanted."""
        ids = [each.id for each in refused]
        async with self._engine.begin() as connection:
            await connection.execute(sa.delete(REFUSED).where(REFUSED.c.id.in_(ids)))

    async def _known(self, connection: AsyncConnection, batch: Batch) -> Written | Behind:
        known = sa.select(MARKS.c.epoch, MARKS.c.number).where(of_shard(batch.name, batch.shard))
        epoch, number = (await connection.execute(known)).one()
        return Written(now=False) if epoch == batch.epoch else Behind(number)

    async def _write(self, connection: AsyncConnection, columns: tuple[str, ...], rows: list[Row]) -> None:
        if await self._copied(connection, columns, rows):
            return
        typed = [sa.Column(name, self.table.c[name].type) for name in columns]
        staged = sa.Table(_STAGED, sa.MetaData(), *typed, prefixes=["TEMPORARY"], postgresql_on_commit="DROP")
        await connection.execute(sa.schema.CreateTable(staged))
        await _copy(connection, staged, columns, rows)
        await self.merge(connection, staged)
        await connection.execute(sa.schema.DropTable(staged))


class RecordTable(_Table):
    """A table that records go into, by the names of its columns.

    With `unique`, columns that have a unique index, of several records with the same values one is kept:
    the `first`, or the `last`, which replaces the row that is there.
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

    async def _copied(self, connection: AsyncConnection, columns: tuple[str, ...], rows: list[Row]) -> bool:
        """Records seldom come twice, so it is tried; after one that did, the next ones are merged at once."""
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
            self._staged_next = _STAGED_AFTER
            return False
        return True

    async def merge(self, connection: AsyncConnection, staged: sa.Table) -> None:
        """One INSERT that keeps the first or the last of those that are the same."""
        names = [column.name for column in staged.c]
        others = [name for name in names if name not in self._unique]
        if self._keep == "first" or not others:
            adding = insert(self.table).from_select(names, sa.select(*staged.c))
            await connection.execute(adding.on_conflict_do_nothing(index_elements=self._unique))
            return
        keys = [staged.c[name] for name in self._unique]
        # Rows of a table just filled by COPY lie in the order they came.
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

    Rows that are not there are inserted, which takes a unique index on the key. With `insert=False` the rows
    belong to somebody else: what is counted for a row that is not there is put aside as refused.
    """

    def __init__(
        self, engine: AsyncEngine, table: sa.Table, counters: DeferredCounters, *, insert: bool = True
    ) -> None:
        super().__init__(engine, table)
        _check_columns(table, (*counters.key, *counters.measures))
        self._counters = counters
        self._insert = insert

    async def merge(self, connection: AsyncConnection, staged: sa.Table) -> None:
        """One INSERT or UPDATE that adds; rows in the order of their keys, so that two never deadlock."""
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
        """What SQL has of a row, with the epoch and number of its shard's last batch, all of one moment."""
        table, counters = self.table, self._counters
        row = sa.and_(*(table.c[name] == value for name, value in zip(counters.key, key, strict=True)))
        mark = of_shard(counters.name, shard)
        columns = [sa.select(MARKS.c[name]).where(mark).scalar_subquery() for name in ("epoch", "number")]
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
