"""Values, ratios, durations and times as the console shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from ephemera.keyspace import Keyspace
from ephemera.operations.formatting import format_duration

HIDDEN = "(hidden: sensitive)"
"""Shown instead of the values of a sensitive keyspace."""
NO_VALUE = "\u2014"
"""Shown where there is no value."""

_MAX_LENGTH = 2000  # characters of a value


def format_percent(share: float | None) -> str:
    """A share as a percentage."""
    return NO_VALUE if share is None else f"{share:.1%}"


def format_value(value: Any, keyspace: Keyspace[Any] | None = None) -> str:
    """A decoded value as text, unless its keyspace is sensitive."""
    if keyspace is not None and keyspace.sensitive:
        return HIDDEN
    text = (
        value
        if isinstance(value, str)
        else msgspec.json.format(msgspec.json.encode(value, enc_hook=_as_text)).decode()
    )
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def format_seconds(seconds: float) -> str:
    """A rounded duration: '12 s', '5 min', '3 h'."""
    return format_duration(max(0.0, seconds) * 1000)


def seconds_since(moment: datetime, now: datetime | None = None) -> float:
    """Seconds since a moment, at least 0: servers' clocks may be slightly ahead of ours."""
    return max(0.0, ((now or datetime.now(UTC)) - moment).total_seconds())


def format_age(moment: datetime, now: datetime | None = None) -> str:
    """How long ago a moment was: '5 min ago'."""
    return f"{format_seconds(seconds_since(moment, now))} ago"


def format_time(moment: datetime) -> str:
    """A moment in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
