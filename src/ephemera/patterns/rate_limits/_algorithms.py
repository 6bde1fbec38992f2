"""The three ways to count, as parameters of `lua/rate_limits_take.lua` and as the reading of its replies.

- **fixed window**: a counter per window. Cheapest, readable keys; admits twice the limit across a boundary.
- **sliding window**: never more than the limit in any window, by the server's clock. A log of units by grain:
  each counts from the end of its grain on, so a unit never leaves early, and at most one grain late. Up to
  `GRAINS` units a window the grain is a millisecond and the log is exact; above, it is a sixtieth of the
  window, and the log has at most `GRAINS + 1` places of 12 bytes however high the limit is.
- **token bucket**: GCRA. The one number kept is the moment at which the bucket is full again; a unit moves it
  by `interval`, and there is room while it stays within `burst` intervals from now. Whole microseconds,
  rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

GRAINS = 60
"""Places that a sliding window's log has at most, but for one."""

Settings: TypeAlias = tuple[int, ...]
"""What the script takes of a rule at a limit, after the cost."""


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """Windows one after the other, each with its own key; times in milliseconds."""

    per: int
    keep: int
    kind: Literal["fixed"] = "fixed"

    def settings(self, limit: int) -> Settings:
        """The limit; the window follows, and is the claim's."""
        return (limit,)

    def remaining(self, settings: Settings, used: int) -> int:
        """Units left."""
        return max(0, settings[0] - used)

    def spent(self, settings: Settings, remaining: int) -> int:
        """What is used when so many units are left."""
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
        """Milliseconds that units share a place of the log in."""
        return 1 if limit <= GRAINS else max(1, -(-self.per // GRAINS))

    def stamp(self, settings: Settings, now: int) -> int:
        """The end of the grain that `now` is in, from which a unit counts."""
        grain = settings[2]
        return now - now % grain + grain

    def settings(self, limit: int) -> Settings:
        """Limit, window and grain."""
        return limit, self.per, self.grain(limit), 0

    def remaining(self, settings: Settings, used: int) -> int:
        """Units left."""
        return max(0, settings[0] - used)

    def spent(self, settings: Settings, remaining: int) -> int:
        """What is used when so many units are left."""
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
        """The time that one unit takes to come back, as a fraction of microseconds; rounded up."""
        parts = 1000 if self.per * 1_000_000 < limit << 47 else 1  # nanoseconds, if six bytes hold them
        return -(-self.per * 1000 * parts // limit) if limit else 1, parts

    def capacity(self, limit: int) -> int:
        """Units that a full bucket holds: at another limit, the same part of it."""
        return max(1, self.burst * limit // self.limit) if limit else 0

    def settings(self, limit: int) -> Settings:
        """Capacity, interval, and the microseconds in which an empty bucket fills."""
        capacity, (interval, parts) = self.capacity(limit), self.interval(limit)
        return capacity, interval, parts, -(-capacity * interval // parts)

    def remaining(self, settings: Settings, used: int) -> int:
        """Units left; `used` is in microseconds."""
        _, interval, parts, time = settings
        return max(0, (time - used) * parts // interval)

    def spent(self, settings: Settings, remaining: int) -> int:
        """What is used, in microseconds, when so many units are left."""
        _, interval, parts, time = settings
        return time + -remaining * interval // parts

    def after(self, settings: Settings, used: int, cost: int, now: int) -> tuple[int, int]:  # noqa: ARG002
        """Units left and milliseconds until the bucket is full, once `cost` was taken."""
        _, interval, parts, time = settings
        used -= -cost * interval // parts
        return (time - used) * parts // interval if used < time else 0, -(-used // 1000)


Algorithm: TypeAlias = FixedWindow | SlidingWindow | TokenBucket
