"""Periods of use: months or days, in UTC, by the server's clock.

A period is part of a key, so it must be known before the server can be asked for the time. This process
guesses by its own clock, the script compares, and a wrong guess changes nothing: it comes back with the
server's time, which is kept as an offset.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

PeriodLength: TypeAlias = Literal["month", "day"]


class Period(NamedTuple):
    """One period: how it is written, and its bounds in milliseconds since 1970."""

    name: str
    starts: int
    ends: int


class Clock:
    """The server's time, as far as this process knows it."""

    def __init__(self, length: PeriodLength) -> None:
        self._length = length
        self._offset = 0.0  # seconds that the server is ahead
        self._period = Period("", 0, 0)

    def period(self) -> Period:
        """The present period, as far as is known."""
        now = (time.time() + self._offset) * 1000
        if not self._period.starts <= now < self._period.ends:
            self._period = period_at(now / 1000, self._length)
        return self._period

    def told(self, milliseconds: int) -> None:
        """Keep what the server's clock shows."""
        self._offset = milliseconds / 1000 - time.time()
        self._period = period_at(milliseconds / 1000, self._length)


def period_at(seconds: float, length: PeriodLength) -> Period:
    """The period of a moment, in seconds since 1970."""
    moment = datetime.fromtimestamp(seconds, UTC)
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if length == "day":
        return _period(start, start + timedelta(days=1), "%Y-%m-%d")
    start = start.replace(day=1)
    return _period(start, (start + timedelta(days=32)).replace(day=1), "%Y-%m")


def _period(start: datetime, end: datetime, form: str) -> Period:
    return Period(start.strftime(form), round(start.timestamp() * 1000), round(end.timestamp() * 1000))
