"""Which errors of PostgreSQL are the fault of a row, and finding those rows among the others.

A row is at fault when its values are (class 22: too long, out of range, not of the type), when a constraint
says so (23, 44), when it is too large (54), or when a trigger raises (P0001). Everything else (no connection,
no such table, no permission, a deadlock, a full disk) is nobody's fault in particular: the batch is kept.
A batch with such rows is halved until they are found; each attempt is a savepoint of the one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import psycopg

from ephemera.patterns.write_behind._batches import Row

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_CLASSES = ("22", "23", "44", "54")
_RAISED = "P0001"


class NoSuchRow(LookupError):
    """A row that was to be added to is not there."""


def fault(problem: Exception) -> str | None:
    """Why a row was refused, or None when the error is not a row's fault."""
    origin = getattr(problem, "orig", None) or problem
    if isinstance(origin, psycopg.Error):
        state = origin.sqlstate
        if state is None:  # the driver's own: a text with a NUL, a type that it cannot write
            at_fault = isinstance(origin, (psycopg.DataError, psycopg.ProgrammingError))
        else:
            at_fault = state[:2] in _CLASSES or state == _RAISED
    else:
        at_fault = isinstance(origin, (NoSuchRow, UnicodeError, OverflowError))
    return str(origin).partition("\nCONTEXT")[0] or type(origin).__name__ if at_fault else None


async def write_or_split(
    connection: AsyncConnection, rows: list[Row], write: Callable[[list[Row]], Awaitable[None]]
) -> list[tuple[Row, str]]:
    """Write all rows that can be written; those that are refused, each with the reason."""
    if not rows:
        return []
    try:
        async with connection.begin_nested():
            await write(rows)
    except Exception as problem:
        reason = fault(problem)
        if reason is None:
            raise
        if len(rows) == 1:
            return [(rows[0], reason)]
    else:
        return []
    half = len(rows) // 2
    first = await write_or_split(connection, rows[:half], write)
    return first + await write_or_split(connection, rows[half:], write)
