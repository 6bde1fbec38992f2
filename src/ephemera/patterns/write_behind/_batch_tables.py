"""What PostgreSQL keeps besides the rows: the last batch number of each shard, and the rows it rejected.

Both tables are written in the same transaction as the rows. The first has one row per shard and does not
grow.

A row is rejected when its values are at fault (class 22: too long, out of range, not of the type), when a
constraint refuses it (23, 44), when it is too large (54), or when a trigger raises (P0001). No other error
(no connection, no such table, no permission, a deadlock, a full disk) is the fault of a row, and the batch
is kept. A batch with rejected rows is halved until they are found; each attempt is a savepoint of the one
transaction.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.write_behind._batches import Batch, Row

METADATA = sa.MetaData()
"""The two tables that the sinks need, for your migrations."""

LAST_BATCHES = sa.Table(
    "write_behind_last_batches",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)
REJECTED = sa.Table(
    "write_behind_rejected",
    METADATA,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("name", sa.Text, nullable=False, index=True),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("rejected_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)

_REJECTING_CLASSES = ("22", "23", "44", "54")
_RAISED_BY_TRIGGER = "P0001"


async def create_tables(engine: AsyncEngine) -> None:
    """Create the tables of batch numbers and of rejected rows, unless they exist."""
    async with engine.begin() as connection:
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(0x77626D)))  # one at a time
        await connection.run_sync(METADATA.create_all)


def claim(batch: Batch) -> sa.Executable:
    """Advance the shard's row to the batch's number and lock it; returns no row if it was there already."""
    values = {"name": batch.name, "shard": batch.shard, "epoch": batch.epoch, "number": batch.number}
    adding = insert(LAST_BATCHES).values(values)
    advance = {
        **{name: adding.excluded[name] for name in ("epoch", "number")},
        "applied_at": sa.func.now(),
    }
    smaller = LAST_BATCHES.c.number < adding.excluded.number
    return adding.on_conflict_do_update(
        index_elements=["name", "shard"], set_=advance, where=smaller
    ).returning(LAST_BATCHES.c.number)


def is_shard(name: str, shard: int) -> sa.ColumnElement[bool]:
    """Select the row of a shard."""
    return sa.and_(LAST_BATCHES.c.name == name, LAST_BATCHES.c.shard == shard)


class RejectedRow(msgspec.Struct, frozen=True):
    """A row that SQL rejected: its columns as JSON, or what Redis held, and why."""

    id: int
    payload: bytes
    reason: str

    def values(self) -> dict[str, Any]:
        """Return the columns; `ValueError` when it did not decode as a row in the first place."""
        values: dict[str, Any] = json.loads(self.payload)
        return values


class NoSuchRow(LookupError):
    """A row that was to be added to does not exist."""


async def write_or_split(
    connection: AsyncConnection, rows: list[Row], write: Callable[[list[Row]], Awaitable[None]]
) -> list[tuple[Row, str]]:
    """Write all rows that can be written; return the rejected ones, each with the reason."""
    if not rows:
        return []
    try:
        async with connection.begin_nested():
            await write(rows)
    except Exception as problem:
        reason = rejection(problem)
        if reason is None:
            raise
        if len(rows) == 1:
            return [(rows[0], reason)]
    else:
        return []
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


def row_as_json(columns: tuple[str, ...], row: Row) -> bytes:
    """Encode a row for people, and for recording it again, whatever it holds."""
    return json.dumps(dict(zip(columns, row, strict=True)), default=str).encode()


async def store_rejected(connection: AsyncConnection, name: str, rejected: list[tuple[bytes, str]]) -> None:
    """Store rejected rows, each with the reason."""
    if rejected:
        rows = [
            {"name": name, "payload": data, "reason": reason.replace("\x00", "")} for data, reason in rejected
        ]
        await connection.execute(sa.insert(REJECTED), rows)
