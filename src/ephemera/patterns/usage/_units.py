"""The units of usage: periods of time, and money in whole numbers of millionths.

Periods are hours, days, weeks and months of a time zone, which may begin on a billing day of their own. A
period is part of a key, so it must be known before the server can be asked for the time. The process
guesses by its own clock and the script compares. A wrong guess changes nothing: the script returns the
server's time, and the difference is kept as an offset.

Days, weeks and months begin at the first moment of their first day in the zone: at midnight, or later where
clocks skip it. So a day has 23 or 25 hours when clocks change, and no moment belongs to two periods or to
none. An hour is always 3600 seconds: the two hours between two and three of an autumn night have names of
their own, with the offset from UTC.
"""

from __future__ import annotations

import time
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Literal, NamedTuple, TypeAlias, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ephemera._bounded_cache import BoundedCache
from ephemera.errors import InvalidValue

PeriodLength: TypeAlias = Literal["hour", "day", "week", "month"]

LENGTHS: tuple[str, ...] = get_args(PeriodLength)
_DAYS = {"week": 7, "month": 31}
_REMEMBERED = 1000  # calendars whose current period is known: one per billing day and zone
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Calendar:
    """When periods begin.

    - `length`: "hour", "day", "week" or "month".
    - `zone`: an IANA time zone, as in "Europe/Berlin".
    - `day`: the day on which a month begins (1 to 31; a shorter month begins on its last day), or a week
      (1, Monday, to 7, Sunday).
    """

    length: PeriodLength
    zone: str = "UTC"
    day: int = 1

    def __post_init__(self) -> None:
        if self.length not in LENGTHS:
            raise InvalidValue("Calendar", f"a length: {', '.join(LENGTHS)}", repr(self.length))
        if type(self.day) is not int or not 1 <= self.day <= _DAYS.get(self.length, 1):
            expected = "a day of the month (1 to 31) or of the week (1 to 7), where there is one"
            raise InvalidValue("Calendar", expected, f"day={self.day!r} of a {self.length}")
        _time_zone(self.zone)


class Period(NamedTuple):
    """One period: its name, and its bounds in milliseconds since 1970."""

    name: str
    starts: int
    ends: int


class PeriodClock:
    """The server's time, as far as this process knows it."""

    def __init__(self) -> None:
        self._offset = 0.0  # seconds that the server is ahead
        self._periods = BoundedCache[Calendar, Period](_REMEMBERED)

    def period(self, calendar: Calendar) -> Period:
        """Return the current period, as far as is known."""
        now = (time.time() + self._offset) * 1000
        period = self._periods.get(calendar)
        if period is None or not period.starts <= now < period.ends:
            period = self._periods[calendar] = period_at(now / 1000, calendar)
        return period

    def synchronize(self, milliseconds: int) -> None:
        """Adopt the time that the server returned."""
        self._offset = milliseconds / 1000 - time.time()


def period_at(seconds: float, calendar: Calendar) -> Period:
    """Return the period that a time in seconds since 1970 belongs to."""
    zone = _time_zone(calendar.zone)
    moment = datetime.fromtimestamp(seconds, UTC).astimezone(zone)
    if calendar.length == "hour":
        return _hour(moment)
    today, day = moment.date(), calendar.day
    if calendar.length == "day":
        return _days(today, today + timedelta(days=1), zone, "%Y-%m-%d")
    if calendar.length == "week":
        first = today - timedelta(days=(today.isoweekday() - day) % 7)
        return _days(first, first + timedelta(days=7), zone, "%G-W%V" if day == 1 else "%Y-%m-%d")
    first = _month_start(today.year, today.month, day)
    if today < first:
        first = _month_start(today.year, today.month - 1, day)
    return _days(
        first, _month_start(first.year, first.month + 1, day), zone, "%Y-%m" if day == 1 else "%Y-%m-%d"
    )


def _hour(moment: datetime) -> Period:
    begun = timedelta(minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond)
    starts = round((moment.astimezone(UTC) - begun).timestamp() * 1000)
    offset = "Z" if moment.tzinfo is UTC else moment.strftime("%z")
    return Period(moment.strftime("%Y-%m-%dT%H") + offset, starts, starts + 3_600_000)


def _month_start(year: int, month: int, day: int) -> date:
    """Return when a month begins that may be the one before January or after December."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    return date(year, month, min(day, monthrange(year, month)[1]))


def _days(first: date, after: date, zone: tzinfo, name_format: str) -> Period:
    starts, ends = (
        round(datetime(each.year, each.month, each.day, tzinfo=zone).timestamp() * 1000)
        for each in (first, after)
    )
    return Period(first.strftime(name_format), starts, ends)


def _time_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # without a database of time zones
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        expected = "an IANA time zone, as in 'Europe/Berlin' (install tzdata if this system has none)"
        raise InvalidValue("Calendar", expected, repr(name)) from None


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
