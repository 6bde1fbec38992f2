"""Uniform random samples of a stream, and estimates from them.

A `Reservoir` holds a uniform sample of everything offered to it, in any order and of any length. It knows in
advance which of the next items it will take (Li's algorithm L), so a page it takes nothing from costs
nothing. Two of them can be merged into one that could have been offered what both were.

Intervals are at 95 %: Wilson's for shares, the normal one for means, both narrowed when the sample is a large
part of the whole, and exact when it is all of it. They cover sampling error; no sample can exclude that a few
huge keys hide among millions of small ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
_Z = 1.96  # standard deviations on either side that cover 95 % of a normal distribution


class Interval(msgspec.Struct, frozen=True):
    """An estimate with its 95 % confidence bounds; `high` is None when there is no upper bound."""

    value: float
    low: float
    high: float | None

    @property
    def exact(self) -> bool:
        """Whether the value was counted, not estimated."""
        return self.low == self.value == self.high


class Reservoir(Generic[T]):
    """A uniform sample of at most `size` of the items offered to it."""

    def __init__(self, size: int, random: Random) -> None:
        self.size = size
        self.items: list[T] = []
        self.offered = 0
        self._random = random
        self._next: float = 0 if size else math.inf  # the index of the next item to take
        self._weight = 1.0

    def offer_some(self, count: int, items: Iterable[T]) -> None:
        """The same for `count` items that are costly to list, which they are only if some will be taken."""
        if self._next < self.offered + count:
            self.offer(list(items))
        else:
            self.offered += count

    def merge(self, other: Reservoir[T]) -> None:
        """Add everything that was offered to another reservoir of this size."""
        total = self.offered + other.offered
        if not self.size or total <= self.size:
            self.offer_some(other.offered, other.items)
            return
        both = [(self.offered, self.items), (other.offered, other.items)]
        sources = [self._random.sample(items, len(items)) for _, items in both]
        left = [offered for offered, _ in both]
        self.items = []
        while len(self.items) < self.size:
            which = self._random.randrange(sum(left)) >= left[0]
            left[which] -= 1
            self.items.append(sources[which].pop())
        self.offered = total
        self._weight = self._random.betavariate(self.size, total - self.size + 1)
        self._next = total + self._skipped()

    def offer(self, items: Sequence[T]) -> None:
        """Take what the sample needs of these items."""
        first = self.offered
        self.offered += len(items)
        while self._next < self.offered:
            item = items[int(self._next) - first]
            if len(self.items) < self.size:
                self.items.append(item)
            else:
                self.items[self._random.randrange(self.size)] = item
            self._next += 1 if len(self.items) < self.size else self._gap()

    def _gap(self) -> int:
        """Distance to the next item to take, once the reservoir is full."""
        self._weight *= _positive(self._random) ** (1 / self.size)
        return 1 + self._skipped()

    def _skipped(self) -> int:
        """Number of items before the next one to take."""
        if self._weight < 1e-15:  # rounding: beyond 10^15 items nothing is replaced any more
            return 1 << 62
        return int(math.log(_positive(self._random)) / math.log1p(-self._weight))


def _positive(random: Random) -> float:
    return 1.0 - random.random()


def estimate_matches(found: int, sampled: int, total: int) -> Interval:
    """Estimate how many of `total` items match, given `found` matches among `sampled`."""
    if sampled >= total:
        return Interval(found, found, found)
    share = found / sampled
    spread = _Z * _Z / (sampled * (total - 1) / (total - sampled))
    middle = (share + spread / 2) / (1 + spread)
    reach = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    low = max(found, math.floor(total * max(0.0, middle - reach)))
    high = min(total - (sampled - found), math.ceil(total * min(1.0, middle + reach)))
    return Interval(round(share * total), low, high)


def estimate_sum(sizes: Sequence[float], total: int) -> Interval:
    """Estimate the sum over `total` items from a sample of their sizes."""
    known, sampled = sum(sizes), len(sizes)
    if sampled >= total:
        return Interval(known, known, known)
    mean = known / sampled
    if sampled == 1:
        return Interval(round(mean * total), known, None)
    variance = sum((size - mean) ** 2 for size in sizes) / (sampled - 1)
    reach = _Z * total * math.sqrt(variance / sampled * (total - sampled) / total)
    return Interval(round(mean * total), max(known, round(mean * total - reach)), round(mean * total + reach))
