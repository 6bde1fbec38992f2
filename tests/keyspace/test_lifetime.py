from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ephemera.errors import InvalidLifetime
from ephemera.keyspace import Lifetime, fixed, permanent, sliding, unix_milliseconds, until, windowed


@pytest.mark.parametrize(
    ("lifetime", "shown"),
    [
        (fixed(seconds=300), "5 min"),
        (fixed(seconds=90), "90 s"),
        (fixed(milliseconds=250), "250 ms"),
        (fixed(hours=24), "24 h"),
        (fixed(days=7), "7 d"),
        (fixed(days=1, hours=12), "36 h"),
        (sliding(hours=24), "24 h sliding"),
        (
            windowed(every=timedelta(minutes=1), keep=timedelta(minutes=2)),
            "2 min from the first write of each 1 min window",
        ),
        (until(), "until its instant"),
        (until(at_most=timedelta(days=7)), "until its instant, at most 7 d"),
        (permanent(reason="synced every minute"), "permanent: synced every minute"),
    ],
)
def test_lifetimes_are_readable(lifetime: Lifetime, shown: str) -> None:
    """The text of a lifetime is the one in tables of keys."""
    assert str(lifetime) == shown


@pytest.mark.parametrize("make", [fixed, sliding])
@pytest.mark.parametrize("duration", [{}, {"seconds": 0}, {"minutes": -1}, {"years": 1}, {"hours": "24"}])
def test_durations_that_make_no_sense_are_refused(make: Any, duration: dict[str, Any]) -> None:
    """A missing, zero or negative duration and an unknown unit fail when they are declared."""
    with pytest.raises(InvalidLifetime, match=f"^{make.__name__}"):
        make(**duration)


def test_a_window_is_kept_to_its_end() -> None:
    """A key that expired before its window would start again at zero in the middle of it."""
    minute = timedelta(minutes=1)
    with pytest.raises(InvalidLifetime, match="at least one whole window"):
        windowed(every=minute, keep=timedelta(seconds=59))
    with pytest.raises(InvalidLifetime, match="a window needs a length"):
        windowed(every=timedelta(0), keep=minute)


@pytest.mark.parametrize("reason", ["", "  "])
def test_permanence_needs_a_reason(reason: str) -> None:
    """`permanent` needs a reason."""
    with pytest.raises(InvalidLifetime, match="say why"):
        permanent(reason=reason)


def test_instants_are_aware_datetimes_or_unix_seconds() -> None:
    """A datetime without a time zone is refused."""
    assert unix_milliseconds(1_700_000_000) == unix_milliseconds(datetime.fromtimestamp(1_700_000_000, UTC))
    with pytest.raises(InvalidLifetime, match="has no time zone"):
        unix_milliseconds(datetime(2030, 1, 1))


def test_an_instant_beyond_the_declared_bound_is_a_mistake() -> None:
    """Milliseconds given as seconds are refused, not stored for centuries."""
    week = until(at_most=timedelta(days=7))
    assert not week.is_too_far(week.end(time.time() + 86_400))
    assert week.is_too_far(week.end(time.time() * 1000))
    assert week.is_too_far(week.end(time.time()), now=time.time() - 8 * 86_400)
    assert not until().is_too_far(until().end(time.time() * 1000))
    with pytest.raises(InvalidLifetime, match="positive duration"):
        until(at_most=timedelta(0))
