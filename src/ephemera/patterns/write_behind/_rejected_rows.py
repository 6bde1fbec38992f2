"""Rows that PostgreSQL rejects: which errors are a row's fault, finding it in its batch, and storing it.

A row is rejected when its values are at fault (class 22: too long, out of range, not of the type), when a
constraint refuses it (23, 44), when it is too large (54), or when a trigger raises (P0001). No other error
(no connection, no such table, no permission, a deadlock, a full disk) is the fault of a row, and the batch
is kept. A batch with rejected rows is halved until they are found; each attempt is a savepoint of the one
transaction. Rows that are missing in the table of an `insert=False` are found by one statement, however many.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.patterns.write_behind._batches import Row

_REJECTING_CLASSES = ("22", "23", "44", "54")
_RAISED_BY_TRIGGER = "P0001"


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
