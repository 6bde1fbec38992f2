"""The units of usage: money in whole numbers, and periods of UTC by the server's clock.

A period is part of a key, so it must be known before the server can be asked for the time. The process
guesses by its own clock and the script compares. A wrong guess changes nothing: the script returns the
server's time, and the difference is kept as an offset.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Literal, NamedTuple, TypeAlias

from ephemera.errors import InvalidValue

PeriodLength: TypeAlias = Literal["month", "day"]

_MILLION = 1_000_000


def micros(amount: Decimal | str | float) -> int:
    """Convert an amount of money to millionths, to the nearest: `micros("0.00042") == 420`."""
    try:
        exact = Decimal(repr(amount) if isinstance(amount, float) else amount)
        return int((exact * _MILLION).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError, OverflowError, TypeError):
        raise InvalidValue("micros", "an amount of money", repr(amount)) from None


def money(amount: int) -> Decimal:
    """Convert millionths to an exact amount: `money(420) == Decimal("0.00042")`."""
    return Decimal(amount) / _MILLION


class Period(NamedTuple):
    """One period: its name, and its bounds in milliseconds since 1970."""

    name: str
    starts: int
    ends: int


class PeriodClock:
    """The server's time, as far as this process knows it."""

    def __init__(self, length: PeriodLength) -> None:
        self._length = length
        self._offset = 0.0  # seconds that the server is ahead
        self._period = Period("", 0, 0)

    def period(self) -> Period:
        """Return the current period, as far as is known."""
        now = (time.time() + self._offset) * 1000
        if not self._period.starts <= now < self._period.ends:
            self._period = period_at(now / 1000, self._length)
        return self._period

    def synchronize(self, milliseconds: int) -> None:
        """Adopt the time that the server returned."""
        self._offset = milliseconds / 1000 - time.time()
        self._period = period_at(milliseconds / 1000, self._length)


def period_at(seconds: float, length: PeriodLength) -> Period:
    """Return the period that a time in seconds since 1970 belongs to."""
    moment = datetime.fromtimestamp(seconds, UTC)
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if length == "day":
        return _period(start, start + timedelta(days=1), "%Y-%m-%d")
    start = start.replace(day=1)
    return _period(start, (start + timedelta(days=32)).replace(day=1), "%Y-%m")


def _period(start: datetime, end: datetime, name_format: str) -> Period:
    starts, ends = (round(bound.timestamp() * 1000) for bound in (start, end))
    return Period(start.strftime(name_format), starts, ends)
