"""Fair samples of what passes by, and what a sample says of the whole.

A `Reservoir` holds a uniform sample of everything it was shown, whatever the order and the length, and knows
beforehand which of the next items it will take (Li's algorithm L), so that a page of which it wants nothing
costs nothing.

Intervals are at 95 %: Wilson's for shares, the normal one for means, both narrowed when the sample is a
large part of the whole, and exact when it is all of it. They say how much chance is in a figure; that a few
huge keys may hide among millions of small ones, no sample can exclude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
_Z = 1.96  # standard deviations on either side that hold 95 % of a normal distribution


class Interval(msgspec.Struct, frozen=True):
    """An estimate with the bounds that hold it in 95 of 100 samples; without `high`, nobody can tell."""

    value: float
    low: float
    high: float | None

    @property
    def exact(self) -> bool:
        """Whether it was counted, not estimated."""
        return self.low == self.value == self.high


class Reservoir(Generic[T]):
    """A uniform sample of at most `size` of the items shown to it."""

    def __init__(self, size: int, random: Random) -> None:
        self.size = size
        self.items: list[T] = []
        self.shown = 0
        self._random = random
        self._next: float = 0 if size else math.inf  # the place of the next item to take
        self._weight = 1.0

    def wants(self, count: int) -> bool:
        """Whether some of the next `count` items will be taken; if not, `skip` them."""
        return self._next < self.shown + count

    def skip(self, count: int) -> None:
        """Pass items by that are not wanted."""
        self.shown += count

    def show(self, items: Sequence[T]) -> None:
        """Take what the sample needs of these items."""
        first = self.shown
        self.shown += len(items)
        while self._next < self.shown:
            item = items[int(self._next) - first]
            if len(self.items) < self.size:
                self.items.append(item)
            else:
                self.items[self._random.randrange(self.size)] = item
            self._next += 1 if len(self.items) < self.size else self._leap()

    def _leap(self) -> int:
        """How far to the next item to take, once the reservoir is full."""
        self._weight *= _positive(self._random) ** (1 / self.size)
        if self._weight < 1e-15:  # rounding: beyond 10^15 items nothing is replaced any more
            return 1 << 62
        return 1 + int(math.log(_positive(self._random)) / math.log1p(-self._weight))


def _positive(random: Random) -> float:
    return 1.0 - random.random()


def share_of(found: int, sampled: int, total: int) -> Interval:
    """How many of `total` are like the `found` among `sampled`."""
    if sampled >= total:
        return Interval(found, found, found)
    share = found / sampled
    spread = _Z * _Z / (sampled * (total - 1) / (total - sampled))
    middle = (share + spread / 2) / (1 + spread)
    reach = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    low = max(found, math.floor(total * max(0.0, middle - reach)))
    high = min(total - (sampled - found), math.ceil(total * min(1.0, middle + reach)))
    return Interval(round(share * total), low, high)


def total_of(sizes: Sequence[float], total: int) -> Interval:
    """The sum over `total` items of which these are a sample."""
    known, sampled = sum(sizes), len(sizes)
    if sampled >= total:
        return Interval(known, known, known)
    mean = known / sampled
    if sampled == 1:
        return Interval(round(mean * total), known, None)
    variance = sum((size - mean) ** 2 for size in sizes) / (sampled - 1)
    reach = _Z * total * math.sqrt(variance / sampled * (total - sampled) / total)
    return Interval(round(mean * total), max(known, round(mean * total - reach)), round(mean * total + reach))
