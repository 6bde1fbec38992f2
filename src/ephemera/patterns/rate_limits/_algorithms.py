"""The three algorithms, as parameters of `lua/take.lua` and as decoders of its replies.

- **fixed window**: a counter per window. Cheapest, readable keys; admits twice the limit across a boundary.
- **sliding window**: never more than the limit in any window, by the server's clock. A log of units by grain:
  each counts from the end of its grain, so a unit never leaves early, and at most one grain late. Up to
  `MAX_GRAINS` units per window the grain is a millisecond and the log is exact; above, a sixtieth of the
  window, and the log has at most `MAX_GRAINS + 1` entries of 12 bytes however high the limit is.
- **token bucket**: GCRA. The one number stored is the moment when the bucket is full again; a unit moves it
  by `interval`, and there is room while it stays within `burst` intervals from now. Whole microseconds,
  rounded up.

The last field of a fixed window's pattern says by its name how the window's start is written, as in
`ratelimit:{api_key_id}:{minute}` or `rate:{subject}:{endpoint}:{yyyyMMddHH}`:

| field | format | for windows of |
|---|---|---|
| `minute`, `yyyyMMddHHmm` | `202509301059` | whole minutes |
| `hour`, `yyyyMMddHH` | `2025093010` | whole hours |
| `day`, `yyyyMMdd` | `20250930` | whole days |
| `window_start`, `window` | `1759226340`, seconds since 1970 | whole seconds |

Windows are counted from 1970 in UTC, so a day is a UTC day. A pattern whose field is coarser than its window
would put two windows into one key, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

from ephemera.errors import InvalidDeclaration

MAX_GRAINS = 60
"""Entries of a sliding window's log, except for one more."""

EMPTY_FIELD = "%%"
"""How a key renders an empty field, and no other value."""

Settings: TypeAlias = tuple[int, ...]
"""The script's arguments for a rule at a limit, after the cost."""

_FORMATS: dict[str, tuple[str | None, int]] = {
    "minute": ("%Y%m%d%H%M", 60),
    "yyyyMMddHHmm": ("%Y%m%d%H%M", 60),
    "hour": ("%Y%m%d%H", 3600),
    "yyyyMMddHH": ("%Y%m%d%H", 3600),
    "day": ("%Y%m%d", 86_400),
    "yyyyMMdd": ("%Y%m%d", 86_400),
    "window_start": (None, 1),
    "window": (None, 1),
}
"""The format of each window field (None: seconds since 1970), and its resolution in seconds."""


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """Consecutive windows, each with its own key; times in milliseconds."""

    per: int
    keep: int
    kind: Literal["fixed"] = "fixed"

    def settings(self, limit: int) -> Settings:
        """The limit; the window follows, and belongs to the claim."""
        return (limit,)

    def remaining(self, settings: Settings, used: int) -> int:
        """Units left."""
        return max(0, settings[0] - used)

    def used(self, settings: Settings, remaining: int) -> int:
        """The units used when so many are left."""
        return settings[0] - remaining

    def after(self, settings: Settings, used: int, cost: int, now: int) -> tuple[int, int]:
        """Units left and milliseconds to the reset, once `cost` was taken at `now`."""
        return self.remaining(settings, used + cost), self.per - now % self.per


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """The last `per` milliseconds at any moment."""

    per: int
    kind: Literal["sliding"] = "sliding"

    def grain(self, limit: int) -> int:
        """Milliseconds whose units share an entry of the log."""
        return 1 if limit <= MAX_GRAINS else max(1, -(-self.per // MAX_GRAINS))

    def stamp(self, settings: Settings, now: int) -> int:
        """The end of the grain of `now`, from which a unit counts."""
        grain = settings[2]
        return now - now % grain + grain

    def settings(self, limit: int) -> Settings:
        """Limit, window and grain."""
        return limit, self.per, self.grain(limit), 0

    def remaining(self, settings: Settings, used: int) -> int:
        """Units left."""
        return max(0, settings[0] - used)

    def used(self, settings: Settings, remaining: int) -> int:
        """The units used when so many are left."""
        return settings[0] - remaining

    def after(self, settings: Settings, used: int, cost: int, now: int) -> tuple[int, int]:
        """Units left and milliseconds until none is in use, once `cost` was taken at `now`."""
        return self.remaining(settings, used + cost), self.stamp(settings, now) + self.per - now


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A bucket that holds `burst` units at the rule's own limit, and gets `limit` of them back per `per`."""

    per: int
    limit: int
    burst: int
    kind: Literal["bucket"] = "bucket"

    def interval(self, limit: int) -> tuple[int, int]:
        """The time in which one unit comes back, as a fraction of microseconds; rounded up."""
        parts = 1000 if self.per * 1_000_000 < limit << 47 else 1  # nanoseconds, if six bytes hold them
        return -(-self.per * 1000 * parts // limit) if limit else 1, parts

    def capacity(self, limit: int) -> int:
        """Units in a full bucket: at another limit, the same proportion."""
        return max(1, self.burst * limit // self.limit) if limit else 0

    def settings(self, limit: int) -> Settings:
        """Capacity, interval, and the microseconds in which an empty bucket fills."""
        capacity, (interval, parts) = self.capacity(limit), self.interval(limit)
        return capacity, interval, parts, -(-capacity * interval // parts)

    def remaining(self, settings: Settings, used: int) -> int:
        """Units left; `used` is in microseconds."""
        _, interval, parts, time = settings
        return max(0, (time - used) * parts // interval)

    def used(self, settings: Settings, remaining: int) -> int:
        """The microseconds used when so many units are left."""
        _, interval, parts, time = settings
        return time + -remaining * interval // parts

    def after(self, settings: Settings, used: int, cost: int, _now: int) -> tuple[int, int]:
        """Units left and milliseconds until the bucket is full, once `cost` was taken."""
        _, interval, parts, time = settings
        used -= -cost * interval // parts
        return (time - used) * parts // interval if used < time else 0, -(-used // 1000)


Algorithm: TypeAlias = FixedWindow | SlidingWindow | TokenBucket


class LimitWindow(NamedTuple):
    """One fixed window: its bounds in milliseconds since 1970, its text in a key, the script's arguments."""

    starts: int
    ends: int
    text: str
    arguments: tuple[int, int, int]


class WindowField:
    """The field of a pattern that names the window, for windows of `per` ms kept for `keep` ms."""

    def __init__(self, pattern: str, fields: tuple[str, ...], per: int, keep: int) -> None:
        self.name = fields[-1] if fields else ""
        if self.name not in _FORMATS or not pattern.endswith(f"{{{self.name}}}"):
            raise InvalidDeclaration(
                pattern,
                "it does not end with a field that names the window",
                f"end it with one of {', '.join(_FORMATS)}, as in 'ratelimit:{{user_id}}:{{minute}}'",
            )
        self._format, resolution = _FORMATS[self.name]
        if per % (resolution * 1000):
            raise InvalidDeclaration(
                pattern,
                f"{{{self.name}}} has a resolution of {resolution} s, its windows are {per / 1000:g} s long",
                "use a finer field such as {window_start}, or windows of a multiple of that",
            )
        self._per = per
        self._keep = keep
        self._current = LimitWindow(0, 0, "", (0, 0, 0))

    def at(self, now: float) -> LimitWindow:
        """The window of a moment, in milliseconds since 1970; all claims of a rule share the last one."""
        current = self._current  # another thread may replace it
        if not current.starts <= now < current.ends:
            start = int(now) // self._per * self._per
            seconds, end = start // 1000, start + self._per
            text = str(seconds)
            if self._format is not None:
                text = datetime.fromtimestamp(seconds, UTC).strftime(self._format)
            self._current = current = LimitWindow(start, end, text, (start, end, start + self._keep))
        return current
