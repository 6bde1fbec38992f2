"""CORE14: every check of a local share summed its whole log, in the middle of an outage."""

from __future__ import annotations

from datetime import timedelta
from time import process_time

from ephemera.keyspace import Catalogue
from ephemera.patterns.rate_limits import RateLimits, local_share, sliding_window
from ephemera.patterns.rate_limits._decision import LocalShares

RULE = sliding_window("many", 100_000, per=timedelta(hours=1), when_down=local_share(of=1))
LIMITS = RateLimits(Catalogue("core14"), "core14", RULE)


def _seconds(shares: LocalShares, checks: int) -> float:
    claims = (RULE.on("ann"),)
    start = process_time()  # not the clock: other processes run as well
    for _ in range(checks):
        assert shares.decide(claims, 1, None).allowed
    return process_time() - start


def test_core14_a_check_costs_the_same_however_much_was_admitted() -> None:
    """After 30,000 admitted units a check takes about as long as after none."""
    shares = LocalShares()
    first = min(_seconds(shares, 300) for _ in range(5))
    _seconds(shares, 30_000)
    assert min(_seconds(shares, 300) for _ in range(5)) < 5 * first


def test_core14_the_share_is_still_a_limit() -> None:
    """What was admitted counts, and one unit more is denied with the time to wait."""
    shares, claims = LocalShares(), (RULE.on("bob"),)
    assert shares.decide(claims, 100_000, None).allowed
    denied = shares.decide(claims, 1, None)
    assert not denied.allowed
    assert 3590 < (denied.retry_after or 0) <= 3600
