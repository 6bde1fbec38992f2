"""The tables in which the sinks for PostgreSQL keep batch numbers, ids, and the rows that it rejects.

A row is rejected when its values are at fault (class 22: too long, out of range, not of the type), when a
constraint refuses it (23, 44), when it is too large (54), or when a trigger raises (P0001). No other error
(no connection, no such table, no permission, a deadlock, a full disk) is the fault of a row, and the batch
is kept. A batch with rejected rows is halved until they are found; each attempt is a savepoint of the one
transaction. Rows that are missing in the table of an `insert=False` are found by one statement, however many.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import InvalidDeclaration
from ephemera.patterns.write_behind._batches import Row
from ephemera.sql import SqlSchema, migrate

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")

_REJECTING_CLASSES = ("22", "23", "44", "54")
_RAISED_BY_TRIGGER = "P0001"


class SinkTables:
    """Tables that sinks share: give the same object to the declaration, and to a `RecordTable`.

    Their rows are named by declaration, so one set is enough for a database. Give another `name` or a
    `metadata` where the names are taken, or where services that share a database must stay separate.

    Args:
        name: The prefix of `{name}_last_batches`, `{name}_rejected` and `{name}_idempotency`.
        metadata: The application's own metadata: for a PostgreSQL schema, or the name of the version table.

    """

    def __init__(self, name: str = "write_behind", metadata: sa.MetaData | None = None) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidDeclaration(
                name, "is not a plain name", "use at most 41 lower-case letters, digits and _"
            )
        metadata = sa.MetaData() if metadata is None else metadata
        self.last_batches = sa.Table(
            f"{name}_last_batches",
            metadata,
            sa.Column("name", sa.Text, primary_key=True),
            sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("epoch", sa.Text, nullable=False),
            sa.Column("number", sa.BigInteger, nullable=False),
            sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        )
        self.rejected = sa.Table(
            f"{name}_rejected",
            metadata,
            sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
            sa.Column("name", sa.Text, nullable=False, index=True),
            sa.Column("payload", sa.LargeBinary, nullable=False),
            sa.Column("reason", sa.Text, nullable=False),
            sa.Column(
                "rejected_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
            ),
        )
        self.idempotency = sa.Table(
            f"{name}_idempotency",
            metadata,
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
            sa.Index(f"ix_{name}_idempotency_stored_at", "stored_at"),
        )
        tables = [self.last_batches, self.rejected, self.idempotency]
        self.sql_schema = SqlSchema("write_behind", name, tables)

    def is_shard(self, name: str, shard: int) -> sa.ColumnElement[bool]:
        """Select the row of a shard."""
        return sa.and_(self.last_batches.c.name == name, self.last_batches.c.shard == shard)

    def __repr__(self) -> str:
        return f"<SinkTables {self.last_batches.fullname.removesuffix('_last_batches')!r}>"


@cache
def default_tables() -> SinkTables:
    """The tables of declarations and sinks that name no others."""
    return SinkTables()


async def create_tables(engine: AsyncEngine, tables: SinkTables | None = None) -> None:
    """Create or upgrade the tables that the sinks need, as `ephemera migrate up` does."""
    await migrate(engine, tables or default_tables())


class RejectedRow(msgspec.Struct, frozen=True):
    """A row that SQL rejected: its columns as JSON, or what Redis held, and why."""

    id: int
    payload: bytes
    reason: str

    def values(self) -> dict[str, Any]:
        """Return the columns; `ValueError` when it did not decode as a row in the first place.

        Bytes, times, UUIDs and decimals come back as what they were.
        """
        values: dict[str, Any] = json.loads(self.payload, object_hook=_untagged)
        return values


class NoSuchRow(LookupError):
    """A row that was to be added to does not exist."""


async def write_or_split(
    connection: AsyncConnection,
    rows: list[Row],
    write: Callable[[list[Row]], Awaitable[list[tuple[Row, str]]]],
) -> list[tuple[Row, str]]:
    """Write all rows that can be written; return the rejected ones, each with the reason."""
    if not rows:
        return []
    try:
        async with connection.begin_nested():
            return await write(rows)
    except Exception as problem:
        reason = rejection(problem)
        if reason is None:
            raise
        if len(rows) == 1:
            return [(rows[0], reason)]
    half = len(rows) // 2
    first = await write_or_split(connection, rows[:half], write)
    return first + await write_or_split(connection, rows[half:], write)


def rejection(problem: Exception) -> str | None:
    """Return why a row was rejected, or None when no row is at fault."""
    origin = getattr(problem, "orig", None) or problem
    if isinstance(origin, psycopg.Error):
        state = origin.sqlstate
        if state is None:  # the driver's own: a text with a NUL, a type that it cannot write
            rejected = isinstance(origin, (psycopg.DataError, psycopg.ProgrammingError))
        else:
            rejected = state[:2] in _REJECTING_CLASSES or state == _RAISED_BY_TRIGGER
    else:
        rejected = isinstance(origin, (NoSuchRow, UnicodeError, OverflowError))
    return str(origin).partition("\nCONTEXT")[0] or type(origin).__name__ if rejected else None


_TAG = "$type"
_TAGGED: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bytes": (bytes, lambda value: b64encode(value).decode(), b64decode),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),  # before date, which it is too
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "seconds": (timedelta, timedelta.total_seconds, lambda value: timedelta(seconds=value)),
    "uuid": (UUID, str, UUID),
    "decimal": (Decimal, str, Decimal),
}
"""Values that JSON has no type for: `{"$type": "bytes", "value": "..."}`, how they are written and read."""


def _tagged(value: Any) -> Any:
    for tag, (kind, written, _) in _TAGGED.items():
        if isinstance(value, kind):
            return {_TAG: tag, "value": written(value)}
    return str(value)  # SQL rejected it, whatever it is


def _untagged(stored: dict[str, Any]) -> Any:
    if stored.keys() != {_TAG, "value"} or stored[_TAG] not in _TAGGED:
        return stored
    return _TAGGED[stored[_TAG]][2](stored["value"])


def row_as_json(columns: tuple[str, ...], row: Row) -> bytes:
    """Encode a row for people, and for recording it again, whatever it holds."""
    return json.dumps(dict(zip(columns, row, strict=True)), default=_tagged).encode()
