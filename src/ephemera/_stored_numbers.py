"""Numbers and times that Redis holds. Another program may have written anything there."""

from __future__ import annotations

from datetime import UTC, datetime

_LARGEST = 2**63 - 1
_MOST_CHARACTERS = 20  # of a 64-bit number; `int` refuses thousands of digits with an exception


def stored_int(data: bytes | None) -> int | None:
    """Return a whole number of 64 bits in decimal; None for anything else."""
    if data is None or len(data) > _MOST_CHARACTERS or not data.removeprefix(b"-").isdigit():
        return None
    number = int(data)
    return number if abs(number) <= _LARGEST else None


def stored_time(seconds: float) -> datetime | None:
    """Return the time that is this many seconds after 1970; None if no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # infinite, NaN, or after the year 9999
        return None
