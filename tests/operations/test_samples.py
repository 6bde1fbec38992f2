"""Samples are uniform, and intervals contain the true value as often as they claim."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from ephemera.operations.survey import Interval, Reservoir, estimate_matches, estimate_sum


def test_every_item_is_as_likely_as_any_other() -> None:
    """Over many runs each of a hundred items is sampled about equally often."""
    chance = random.Random(7)
    taken: Counter[int] = Counter()
    for _ in range(4000):
        reservoir: Reservoir[int] = Reservoir(10, chance)
        for start in range(0, 100, 7):
            reservoir.offer(range(start, min(start + 7, 100)))
        assert len(set(reservoir.items)) == 10
        taken.update(reservoir.items)
    assert all(300 < taken[item] < 500 for item in range(100))


def test_unwanted_items_are_not_listed() -> None:
    """Offering items that are costly to list gives the same sample, and hardly ever lists them."""
    shown, asked = Reservoir[int](5, random.Random(3)), Reservoir[int](5, random.Random(3))
    listed = 0

    def listing(page: range) -> Iterator[int]:
        nonlocal listed
        listed += 1
        yield from page

    for start in range(0, 10_000, 10):
        page = range(start, start + 10)
        shown.offer(page)
        asked.offer_some(10, listing(page))
    assert shown.items == asked.items
    assert listed < 100


@pytest.mark.parametrize("sizes", [(70, 30), (5, 95), (4, 3), (0, 60), (50, 0)])
def test_a_merged_reservoir_is_as_uniform(sizes: tuple[int, int]) -> None:
    """After a merge, and items offered after it, each item of all is sampled about equally often."""
    chance = random.Random(5)
    total = sum(sizes) + 40
    taken: Counter[int] = Counter()
    for _ in range(4000):
        one, other = Reservoir[int](10, chance), Reservoir[int](10, chance)
        one.offer(range(sizes[0]))
        other.offer(range(sizes[0], sum(sizes)))
        one.merge(other)
        one.offer(range(sum(sizes), total))
        assert len(set(one.items)) == 10
        assert one.offered == total
        taken.update(one.items)
    expected = 40_000 / total
    assert all(0.8 * expected < taken[item] < 1.2 * expected for item in range(total))


def test_fewer_items_than_the_size_are_all_kept() -> None:
    """A reservoir that is never full keeps everything; one of size 0 wants nothing."""
    reservoir: Reservoir[str] = Reservoir(10, random.Random())
    reservoir.offer("abc")
    assert reservoir.items == ["a", "b", "c"]
    nothing: Reservoir[str] = Reservoir(0, random.Random())
    nothing.offer("abc")
    nothing.merge(reservoir)
    assert (nothing.items, nothing.offered) == ([], 6)


def test_a_sample_of_all_is_exact() -> None:
    """When everything was sampled, the estimate is exact."""
    assert estimate_matches(3, 10, 10) == Interval(3, 3, 3)
    assert estimate_sum([1, 2, 3], 3).exact


def test_intervals_contain_the_true_value() -> None:
    """Of a thousand samples, at least 930 give an interval that contains the real number."""
    chance = random.Random(11)
    sizes = [chance.choice((50, 60, 100, 400)) for _ in range(5000)]
    guilty, total = sum(size == 400 for size in sizes), sum(sizes)
    shares = totals = 0
    for _ in range(1000):
        sample = chance.sample(sizes, 100)
        share = estimate_matches(sum(size == 400 for size in sample), 100, len(sizes))
        sum_ = estimate_sum(sample, len(sizes))
        assert share.high is not None
        assert sum_.high is not None
        shares += share.low <= guilty <= share.high
        totals += sum_.low <= total <= sum_.high
    assert shares > 930
    assert totals > 930


def test_bounds_never_contradict_the_sample() -> None:
    """Bounds are consistent with what was seen, and a single item has no upper bound."""
    assert estimate_matches(1, 2, 1000).low >= 1
    assert estimate_matches(0, 50, 1000).low == 0
    none_seen = estimate_matches(0, 50, 1000).high
    assert none_seen is not None
    assert 0 < none_seen < 150
    assert estimate_sum([10], 100) == Interval(1000, 10, None)
