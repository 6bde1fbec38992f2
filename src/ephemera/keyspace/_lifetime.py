"""How long keys live. Every space declares one lifetime, and every write applies it in the same step.

| lifetime | a full write (put) | a partial write (add, update, push) | a read |
|---|---|---|---|
| `fixed` | starts it anew | keeps what is left | |
| `sliding` | starts it anew | starts it anew | starts it anew |
| `windowed` | starts it if it is the window's first | keeps what is left | |
| `until` | ends at the given instant | ends at the given instant | |
| `permanent` | no end, for a declared reason | | |

A key that should have an end and has none (another program's write, a PERSIST) is given one by its next
write of any kind: a missing TTL heals. An instant that has passed writes nothing, by the server's clock; it
is a result, not an error. One further ahead than `at_most` is an error, when both this machine's clock and
the server's say so. `outlives` says in words what an expiring lifetime is longer than; a queue-role space
must say it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypedDict, Unpack

from ephemera.errors import InvalidLifetime

Instant: TypeAlias = datetime | float
"""A moment: a datetime with a time zone, or seconds since 1970 as in a token's `exp`."""

_CLOCK_DRIFT = 60_000  # milliseconds that a clock may be behind the one that made an instant


class Duration(TypedDict, total=False):
    """Parts of a duration; they add up."""

    milliseconds: float
    seconds: float
    minutes: float
    hours: float
    days: float


@dataclass(frozen=True, slots=True)
class Fixed:
    """Counted from the last full write."""

    milliseconds: int
    outlives: str | None = None
    on_put = "renew"
    on_change = "keep"

    def __str__(self) -> str:
        return shown(self.milliseconds)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Counted from the last use, reads included."""

    milliseconds: int
    outlives: str | None = None
    on_put = "renew"
    on_change = "renew"

    def __str__(self) -> str:
        return f"{shown(self.milliseconds)} sliding"


@dataclass(frozen=True, slots=True)
class Windowed:
    """Counted from a window's first write; `every` is the window, `milliseconds` the key's life."""

    every: int
    milliseconds: int
    outlives: str | None = None
    on_put = "carry"
    on_change = "keep"

    def __str__(self) -> str:
        return f"{shown(self.milliseconds)} from the first write of each {shown(self.every)} window"


@dataclass(frozen=True, slots=True)
class Until:
    """Ends at an instant: given with each write, or derived from the value."""

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
        """When a write of this value ends, in milliseconds since 1970."""
        instant = self.derive(value) if given is None and self.derive is not None else given
        if instant is None:
            raise InvalidLifetime("it lives until an instant: give until=, a datetime or seconds since 1970")
        return unix_milliseconds(instant)

    def is_too_far(self, end: int, now: float | None = None) -> bool:
        """Whether an end is beyond `at_most`, from a moment in seconds since 1970 or now by this clock."""
        seen_from = time.time() if now is None else now
        return self.milliseconds is not None and end > seen_from * 1000 + self.milliseconds + _CLOCK_DRIFT


@dataclass(frozen=True, slots=True)
class Permanent:
    """No end, for a reason."""

    reason: str
    milliseconds = None
    outlives = None
    on_put = "none"
    on_change = "none"

    def __str__(self) -> str:
        return f"permanent: {self.reason}"


@dataclass(frozen=True, slots=True)
class Momentary:
    """Nothing is kept: what a channel carries is gone once it is delivered."""

    milliseconds = None
    outlives = None
    on_put = "none"
    on_change = "none"

    def __str__(self) -> str:
        return "not kept"


Lifetime: TypeAlias = Fixed | Sliding | Windowed | Until | Permanent | Momentary
"""How long a key lives; `fixed(...)` and its like make one."""


def fixed(*, outlives: str | None = None, **duration: Unpack[Duration]) -> Fixed:
    """A life counted from the last full write: `fixed(minutes=5)`."""
    return Fixed(_positive("fixed", duration), outlives)


def sliding(*, outlives: str | None = None, **duration: Unpack[Duration]) -> Sliding:
    """A life that every read and write starts anew: `sliding(hours=24)`."""
    return Sliding(_positive("sliding", duration), outlives)


def windowed(*, every: timedelta, keep: timedelta, outlives: str | None = None) -> Windowed:
    """A life of `keep` that the first write in a window of `every` starts, and no later one extends."""
    _refuse_others("windowed", every=every, keep=keep)
    window, life = _milliseconds(every), _milliseconds(keep)
    if window <= 0 or life < window:
        raise InvalidLifetime(
            f"windowed(every={every}, keep={keep}): a window needs a length, and a key must be kept "
            "for at least one whole window"
        )
    return Windowed(window, life, outlives)


def until(
    derive: Callable[[Any], Instant] | None = None,
    *,
    at_most: timedelta | None = None,
    outlives: str | None = None,
) -> Until:
    """A life that ends at an instant: `put(..., until=instant)`, or derived from the value.

    `at_most` bounds how far ahead an instant may be: what is further by the server's clock, too, is refused
    as a mistake.
    """
    if derive is not None and not callable(derive):
        raise InvalidLifetime(f"until({derive!r}): give a function from a value to the instant of its end")
    if at_most is not None:
        _refuse_others("until", at_most=at_most)
    if at_most is not None and at_most <= timedelta(0):
        raise InvalidLifetime(f"until(at_most={at_most}): give a positive duration, or none")
    return Until(derive, None if at_most is None else _milliseconds(at_most), outlives)


def permanent(*, reason: str) -> Permanent:
    """A life without end, and the reason why that is right."""
    given: object = reason
    if not isinstance(given, str) or not given.strip():
        raise InvalidLifetime("permanent(reason=...): say why these keys may live for ever")
    return Permanent(reason)


def unix_milliseconds(instant: Instant) -> int:
    """An instant as the server counts it; a datetime without a time zone is refused."""
    if isinstance(instant, datetime):
        if instant.utcoffset() is None:
            raise InvalidLifetime(
                f"{instant.isoformat()} has no time zone, so it is no instant; "
                "use datetime.now(UTC) and the like"
            )
        instant = instant.timestamp()
    return int(instant * 1000)


def shown(milliseconds: int) -> str:
    """A duration as people write it in a table: '24 h', '90 s', '7 d'."""
    if milliseconds % 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds % size == 0 and (unit != "d" or seconds >= 2 * size):
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def no_duration(**durations: object) -> tuple[str, str] | None:
    """What is wrong with the first of these that is no `timedelta`, and what to give in its place."""
    for name, given in durations.items():
        if not isinstance(given, timedelta):
            seconds = given if type(given) in (int, float) else 300
            return f"{name}={given!r} is no duration", f"use timedelta(seconds={seconds})"
    return None


def _refuse_others(kind: str, **durations: object) -> None:
    if (wrong := no_duration(**durations)) is not None:
        problem, advice = wrong
        raise InvalidLifetime(f"{kind}(...): {problem}; {advice}")


def _positive(kind: str, duration: Duration) -> int:
    try:
        total = _milliseconds(timedelta(**duration))
    except (TypeError, ValueError, OverflowError):
        raise InvalidLifetime(
            f"{kind}({_given(duration)}): use {', '.join(Duration.__annotations__)}, each a finite number"
        ) from None
    if total <= 0:
        raise InvalidLifetime(f"{kind}({_given(duration)}): give a positive duration, as in hours=24")
    return total


def _given(duration: Duration) -> str:
    return ", ".join(f"{unit}={count!r}" for unit, count in duration.items())


def _milliseconds(duration: timedelta) -> int:
    return round(duration / timedelta(milliseconds=1))
