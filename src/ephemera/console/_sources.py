"""Rows of several sources in one table: places that may each be away without emptying what others show.

A source that fails keeps the rows it had; the first error is raised when all are shown, so that the shell
says what is wrong above the page.
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


def of_place(view: View) -> list[Column]:
    """The column that says whose a row is, where there are several places."""
    return [Column("place", "Service")] if len(view.places) > 1 else []


class Sources:
    """What each source said last."""

    def __init__(self, show: Callable[[list[Row]], None]) -> None:
        self._show = show
        self._rows: dict[object, list[Row]] = {}

    async def refresh(self, reads: Mapping[K, Callable[[], Awaitable[list[Row]]]]) -> None:
        """Ask all sources at once, and show what they and those that failed have; then raise a failure."""
        outcomes = await asyncio.gather(*(_asked(read) for read in reads.values()))
        problems: list[Exception] = []
        rows: dict[object, list[Row]] = {}
        for key, outcome in zip(reads, outcomes, strict=True):
            if isinstance(outcome, Exception):
                problems.append(outcome)
                rows[key] = self._rows.get(key, [])
            else:
                rows[key] = outcome
        self._rows = rows
        self._show([row for of_source in rows.values() for row in of_source])
        if problems:
            raise problems[0]


async def _asked(read: Callable[[], Awaitable[list[Row]]]) -> list[Row] | Exception:
    try:
        return await read()
    except Exception as problem:
        return problem


@contextmanager
def database_of(place: str) -> Iterator[None]:
    """Tell a database that is away, or lacks the tables, in one line."""
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    try:
        yield
    except DBAPIError as error:
        raise DatabaseUnavailable(place, str(error.orig).strip().partition("\n")[0]) from None
    except (PoolTimeout, OSError) as error:
        raise DatabaseUnavailable(place, type(error).__name__) from None
