from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from benchmarks.outcome import Outcome, merged
from benchmarks.rows import Absolute, Round, Row, Target, Times
from benchmarks.servers import Servers


def unused(servers: Servers) -> AbstractAsyncContextManager[Round]:
    """An opener for rows that are judged here, not measured."""
    raise AssertionError


def outcome(*targets: Target, higher_is_better: bool = True, **figures: list[float]) -> Outcome:
    """An outcome with two peers, a and b."""
    row = Row("row", unused, {"a": unused, "b": unused}, targets, higher_is_better=higher_is_better)
    return Outcome(row, dict(figures))


def test_the_median_of_the_rounds_counts() -> None:
    """One round that the machine spoilt does not move the figure."""
    assert outcome(ephemera=[100, 1, 102, 101, 900]).ours == 101


def test_ratio_is_to_the_best_peer() -> None:
    """The best peer is the largest figure where more is better, and ours is divided by it."""
    result = outcome(ephemera=[100], a=[20], b=[25])
    assert result.ratio() == 4
    assert result.ratio("a") == 5


def test_ratio_says_how_many_times_as_good_where_less_is_better() -> None:
    """For a latency the best peer is the smallest, and half of it is twice as good."""
    assert outcome(ephemera=[2], a=[4], b=[8], higher_is_better=False).ratio() == 2


@pytest.mark.parametrize(
    ("targets", "met"),
    [
        ((Times(5, "a"), Times(4)), True),
        ((Times(5.1, "a"), Times(4)), False),
        ((Times(5, "a"), Times(4.1)), False),
        ((Absolute(100, "ops/s"),), True),
        ((Absolute(101, "ops/s"),), False),
        ((Absolute(99, "ops/s", at_most=True),), False),
        ((), True),
    ],
)
def test_a_row_is_met_when_all_its_targets_are(targets: tuple[Target, ...], met: bool) -> None:
    """Each target counts, relative or absolute, and reaching it exactly is enough."""
    assert outcome(*targets, ephemera=[100], a=[20], b=[25]).met is met


def test_a_missing_peer_is_null_and_leaves_the_others_to_judge_by() -> None:
    """The best peer is the best of those present; only a target that names the missing one is open."""
    result = outcome(Times(3), ephemera=[100], a=[20])
    assert result.peers == {"a": 20, "b": None}
    assert result.met is True
    assert outcome(Times(3), Times(3, "b"), ephemera=[100], a=[20]).met is None
    assert outcome(Times(9), Times(3, "b"), ephemera=[100], a=[20]).met is False


def test_a_row_without_our_own_figure_is_missed() -> None:
    """When our own client fails, the row fails."""
    assert outcome(Times(3), a=[20]).met is False


def test_missed_targets_say_what_was_reached() -> None:
    """The line for people has the target and the figure in place of it."""
    result = outcome(Times(5, "a"), Times(5), ephemera=[100], a=[20], b=[25])
    assert result.unmet() == ["at least 5x the best peer (reached 4.00x)"]


def test_json_has_exactly_the_agreed_keys() -> None:
    """results.json has these keys and no others."""
    entry = outcome(Times(5, "a"), Times(4), ephemera=[123456.7], a=[20000.4]).as_json()
    assert entry == {
        "name": "row",
        "unit": "ops/s",
        "ours": 123457,
        "peers": {"a": 20000, "b": None},
        "ratio_to_best_peer": 6.173,
        "target": "at least 5x a and at least 4x the best peer",
        "met": True,
    }


def test_measured_rows_replace_their_old_entries_only() -> None:
    """A partial run keeps the other rows, in the suite's order, and drops rows that no longer exist."""
    old: list[dict[str, Any]] = [
        {"name": "gone"},
        {"name": "second", "ours": 1},
        {"name": "first", "ours": 1},
    ]
    new: list[dict[str, Any]] = [{"name": "second", "ours": 2}, {"name": "third", "ours": 2}]
    assert merged(old, new, {"first": 0, "second": 1, "third": 2}) == [
        {"name": "first", "ours": 1},
        {"name": "second", "ours": 2},
        {"name": "third", "ours": 2},
    ]
