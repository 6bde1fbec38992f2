"""Rows of several sources in one table; a source may fail without hiding the rows of the others.

A failed source keeps its last rows; the first error is raised after all rows are shown, so that the banner
shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from ephemera.console._components import Column
from ephemera.console._view import View
from ephemera.errors import DatabaseUnavailable

Row = dict[str, Any]

K = TypeVar("K")


def service_column(view: View) -> list[Column]:
    """The column with a row's service, if there are several services."""
    return [Column("service", "Service")] if len(view.services) > 1 else []


class RowSources:
    """The last rows of each source."""

    def __init__(self, show: Callable[[list[Row]], None]) -> None:
        self._show = show
        self._rows: dict[object, list[Row]] = {}

    async def refresh(self, reads: Mapping[K, Callable[[], Awaitable[list[Row]]]]) -> None:
        """Read all sources concurrently, show their rows, then raise the first error."""
        outcomes = await asyncio.gather(*(_read(read) for read in reads.values()))
        problems: list[Exception] = []
        rows: dict[object, list[Row]] = {}
        for key, outcome in zip(reads, outcomes, strict=True):
            if isinstance(outcome, Exception):
                problems.append(outcome)
                rows[key] = self._rows.get(key, [])
            else:
                rows[key] = outcome
        self._rows = rows
        self._show([row for each in rows.values() for row in each])
        if problems:
            raise problems[0]


async def _read(read: Callable[[], Awaitable[list[Row]]]) -> list[Row] | Exception:
    try:
        return await read()
    except Exception as problem:
        return problem


@contextmanager
def database_errors(service: str) -> Iterator[None]:
    """Report a database that is unavailable, or lacks the tables, in one line."""
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    try:
        yield
    except DBAPIError as error:
        raise DatabaseUnavailable(service, str(error.orig).strip().partition("\n")[0]) from None
    except (PoolTimeout, OSError) as error:
        raise DatabaseUnavailable(service, type(error).__name__) from None
