"""Moments, intervals and lists as PostgreSQL takes them: everything here is milliseconds, 0 for never."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

_TEXTS = ARRAY(sa.Text)
_NUMBERS = ARRAY(sa.BigInteger)


def moment(at: int) -> Any:
    """Milliseconds since 1970 as SQL has moments."""
    return sa.func.to_timestamp(sa.bindparam(None, at / 1000, sa.Double))


def ms(column: Any, rounded: Callable[[Any], Any] = sa.func.floor) -> Any:
    """A moment of SQL's as milliseconds since 1970; 0 when there is none."""
    return sa.func.coalesce(rounded(sa.extract("epoch", column) * 1000), 0).cast(sa.BigInteger)


def among(column: Any, values: Collection[str]) -> Any:
    """Whether a column is one of these, by one parameter however many they are."""
    return column == sa.any_(sa.bindparam(None, list(values), _TEXTS))


def at(column: Any) -> Any:
    """A column of milliseconds since 1970 as a moment."""
    return sa.func.to_timestamp(column / sa.literal(1000.0, sa.Double))


def pairs(given: Mapping[str, int]) -> Any:
    """Users with a number each, as a table."""
    users = sa.bindparam(None, list(given), _TEXTS)
    numbers = sa.bindparam(None, list(given.values()), _NUMBERS)
    return (
        sa.func.unnest(users, numbers)
        .table_valued("user_id", sa.column("at", sa.BigInteger))
        .render_derived()
    )


def interval(milliseconds: float) -> Any:
    """A duration."""
    return sa.func.make_interval(0, 0, 0, 0, 0, 0, milliseconds / 1000)


def now() -> Any:
    """The server's time, also inside a long transaction."""
    return sa.func.clock_timestamp()
