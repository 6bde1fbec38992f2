"""Moments and durations as people say them."""

from __future__ import annotations

from datetime import UTC, datetime

from ephemera.operations.formatting import format_duration

NOTHING = "\u2014"
"""What is shown in place of what is not there."""


def lasting(seconds: float) -> str:
    """About how long: '12 s', '5 min', '3 h'."""
    return format_duration(max(0.0, seconds) * 1000)


def since(moment: datetime, now: datetime | None = None) -> float:
    """Seconds since a moment; clocks of servers may be a little ahead of ours."""
    return max(0.0, ((now or datetime.now(UTC)) - moment).total_seconds())


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago: '5 min ago'."""
    return f"{lasting(since(moment, now))} ago"


def clock(moment: datetime) -> str:
    """The moment itself, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
