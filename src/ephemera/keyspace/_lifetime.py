"""Lifetimes. Every keyspace declares one, and every write sets the TTL in the same step.

| lifetime | a full write (put) | a partial write (add, update, push) | a read |
|---|---|---|---|
| `fixed` | restarts the TTL | keeps the TTL | |
| `sliding` | restarts the TTL | restarts the TTL | restarts the TTL |
| `windowed` | sets the TTL if it is the window's first | keeps the TTL | |
| `until` | expires at the given instant | expires at the given instant | |
| `permanent` | no TTL, for a declared reason | | |

A key without the TTL it should have (another program's write, a PERSIST) gets one with its next write of any
kind. An instant that has passed, by the server's clock, writes nothing; this is a result, not an error. One
further ahead than `at_most` is an error, when both this machine's clock and the server's say so. `outlives`
says in words what an expiring lifetime is longer than; a keyspace of role `queue` must say it.

A full write of a `fixed` lifetime may have a shorter one: `put(value, lifetime=timedelta(minutes=1))`. The
declared one is the maximum, so a catalogue says how long a value can live.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypedDict, Unpack

from ephemera.errors import InvalidLifetime

Instant: TypeAlias = datetime | float
"""A point in time: a datetime with a time zone, or seconds since 1970 as in a token's `exp`."""

_CLOCK_DRIFT = 60_000  # milliseconds that a clock may be behind the one that an instant came from


class Duration(TypedDict, total=False):
    """Parts of a duration; they add up."""

    milliseconds: float
    seconds: float
    minutes: float
    hours: float
    days: float


@dataclass(frozen=True, slots=True)
class Fixed:
    """Expires a fixed time after the last full write."""

    milliseconds: int
    outlives: str | None = None
    on_put = "renew"
    on_change = "keep"

    def __str__(self) -> str:
        return shown(self.milliseconds)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Expires a fixed time after the last use, reads included."""

    milliseconds: int
    outlives: str | None = None
    on_put = "renew"
    on_change = "renew"

    def __str__(self) -> str:
        return f"{shown(self.milliseconds)} sliding"


@dataclass(frozen=True, slots=True)
class Windowed:
    """Counted from a window's first write; `every` is the window, `milliseconds` the TTL."""

    every: int
    milliseconds: int
    outlives: str | None = None
    on_put = "carry"
    on_change = "keep"

    def __str__(self) -> str:
        return f"{shown(self.milliseconds)} from the first write of each {shown(self.every)} window"


@dataclass(frozen=True, slots=True)
class Until:
    """Expires at an instant: given with each write, or derived from the value."""

    derive: Callable[[Any], Instant] | None = None
    milliseconds: int | None = None
    outlives: str | None = None
    on_put = "until"
    on_change = "until"

    def __str__(self) -> str:
        return (
            f"until its instant, at most {shown(self.milliseconds)}"
            if self.milliseconds
            else "until its instant"
        )

    def end(self, given: Instant | None, value: object = None) -> int:
        """When a write of this value expires, in milliseconds since 1970."""
        instant = self.derive(value) if given is None and self.derive is not None else given
        if instant is None:
            raise InvalidLifetime("it expires at an instant: give until=, a datetime or seconds since 1970")
        return unix_milliseconds(instant)

    def is_too_far(self, end: int, now: float | None = None) -> bool:
        """Whether an expiry is further ahead than `at_most`; `now` is in seconds since 1970."""
        seen_from = time.time() if now is None else now
        return self.milliseconds is not None and end > seen_from * 1000 + self.milliseconds + _CLOCK_DRIFT


@dataclass(frozen=True, slots=True)
class Permanent:
    """Never expires, for a reason."""

    reason: str
    milliseconds = None
    outlives = None
    on_put = "none"
    on_change = "none"

    def __str__(self) -> str:
        return f"permanent: {self.reason}"


@dataclass(frozen=True, slots=True)
class Momentary:
    """Nothing is stored: the messages of a channel."""

    milliseconds = None
    outlives = None
    on_put = "none"
    on_change = "none"

    def __str__(self) -> str:
        return "not stored"


Lifetime: TypeAlias = Fixed | Sliding | Windowed | Until | Permanent | Momentary
"""The lifetime of a key, as `fixed(...)` and the other functions return it."""


def fixed(*, outlives: str | None = None, **duration: Unpack[Duration]) -> Fixed:
    """Expire this long after the last full write: `fixed(minutes=5)`.

    `outlives` says in words what the keys must outlive; a keyspace of role `queue` must say it.
    """
    return Fixed(_positive("fixed", duration), outlives)


def sliding(*, outlives: str | None = None, **duration: Unpack[Duration]) -> Sliding:
    """Expire this long after the last read or write: `sliding(hours=24)`.

    `outlives` says in words what the keys must outlive; a keyspace of role `queue` must say it.
    """
    return Sliding(_positive("sliding", duration), outlives)


def windowed(*, every: timedelta, keep: timedelta, outlives: str | None = None) -> Windowed:
    """Expire `keep` after the first write in a window of `every`; later writes do not extend it.

    `outlives` says in words what the keys must outlive; a keyspace of role `queue` must say it.
    """
    _check_durations("windowed", every=every, keep=keep)
    window, ttl = milliseconds(every), milliseconds(keep)
    if window <= 0 or ttl < window:
        raise InvalidLifetime(
            f"windowed(every={every}, keep={keep}): a window needs a length, and a key must be kept "
            "for at least one whole window"
        )
    return Windowed(window, ttl, outlives)


def until(
    derive: Callable[[Any], Instant] | None = None,
    *,
    at_most: timedelta | None = None,
    outlives: str | None = None,
) -> Until:
    """Expire at an instant: `put(..., until=instant)`, or `derive(value)`.

    `at_most` limits how far ahead an instant may be, by the server's clock; beyond it `InvalidLifetime` is
    raised.

    `outlives` says in words what the keys must outlive; a keyspace of role `queue` must say it.
    """
    if derive is not None and not callable(derive):
        raise InvalidLifetime(f"until({derive!r}): give a function that returns the expiry of a value")
    if at_most is not None:
        _check_durations("until", at_most=at_most)
    if at_most is not None and at_most <= timedelta(0):
        raise InvalidLifetime(f"until(at_most={at_most}): give a positive duration, or none")
    return Until(derive, None if at_most is None else milliseconds(at_most), outlives)


def permanent(*, reason: str) -> Permanent:
    """Never expire; `reason` says why that is right."""
    given: object = reason
    if not isinstance(given, str) or not given.strip():
        raise InvalidLifetime("permanent(reason=...): say why these keys need no TTL")
    return Permanent(reason)


def shorter(declared: Lifetime, given: timedelta) -> int:
    """The lifetime of one write in milliseconds; `InvalidLifetime` when it exceeds the declared one."""
    if (wrong := duration_problem(lifetime=given)) is not None:
        raise InvalidLifetime("; ".join(wrong))
    if not isinstance(declared, Fixed):
        advice = "give until= for an instant" if isinstance(declared, Until) else "declare another keyspace"
        raise InvalidLifetime(f"its lifetime is {declared}; lifetime= is for fixed() lifetimes: {advice}")
    wanted = milliseconds(given)
    if not 0 < wanted <= declared.milliseconds:
        problem = "is not positive" if wanted <= 0 else f"is longer than the declared {declared}"
        raise InvalidLifetime(f"lifetime={given} {problem}; give at most {declared}, or declare a longer one")
    return wanted


def unix_milliseconds(instant: Instant) -> int:
    """An instant in milliseconds since 1970; a datetime without a time zone is refused."""
    if isinstance(instant, datetime):
        if instant.utcoffset() is None:
            raise InvalidLifetime(
                f"{instant.isoformat()} has no time zone; use datetime.now(UTC) or another aware datetime"
            )
        instant = instant.timestamp()
    return int(instant * 1000)


def shown(milliseconds: int) -> str:
    """A duration for tables: '24 h', '90 s', '7 d'."""
    if milliseconds % 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds % size == 0 and (unit != "d" or seconds >= 2 * size):
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def duration_problem(**durations: object) -> tuple[str, str] | None:
    """The problem and the advice for the first argument that is not a `timedelta`, if any."""
    for name, given in durations.items():
        if not isinstance(given, timedelta):
            seconds = given if type(given) in (int, float) else 300
            return f"{name}={given!r} is not a duration", f"use timedelta(seconds={seconds})"
    return None


def _check_durations(kind: str, **durations: object) -> None:
    if (wrong := duration_problem(**durations)) is not None:
        problem, advice = wrong
        raise InvalidLifetime(f"{kind}(...): {problem}; {advice}")


def _positive(kind: str, duration: Duration) -> int:
    try:
        total = milliseconds(timedelta(**duration))
    except (TypeError, ValueError, OverflowError):
        raise InvalidLifetime(
            f"{kind}({_given(duration)}): use {', '.join(Duration.__annotations__)}, each a finite number"
        ) from None
    if total <= 0:
        raise InvalidLifetime(f"{kind}({_given(duration)}): give a positive duration, as in hours=24")
    return total


def _given(duration: Duration) -> str:
    return ", ".join(f"{unit}={count!r}" for unit, count in duration.items())


def milliseconds(duration: timedelta) -> int:
    """A duration as Redis takes it: in whole milliseconds."""
    return round(duration / timedelta(milliseconds=1))
