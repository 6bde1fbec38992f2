"""CORE12: a refund found nothing where tiers of a sliding window have grains of different lengths."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue
from ephemera.patterns.rate_limits import RateLimits, sliding_window

CATALOGUE = Catalogue("core12")
RULE = sliding_window("tiers", {"free": 20, "pro": 600}, per=timedelta(minutes=10))
LIMITS = RateLimits(CATALOGUE, "core12", RULE)


@pytest.mark.parametrize(("first", "second"), [("pro", "free"), ("free", "pro")])
async def test_core12_a_refund_returns_units_whatever_tier_took_others(
    server: Valkey, first: str, second: str
) -> None:
    """Units taken after another tier's are given back, and those of the other tier stay."""
    async with connect(server.url, CATALOGUE) as store:
        limits, subject = store[LIMITS], f"{first} then {second}"
        before = await limits.check(RULE[first].on(subject), cost=3)
        after = await limits.check(RULE[second].on(subject), cost=5)
        free = RULE["free"].on(subject)
        assert (await limits.peek(free)).remaining == 20 - 8
        assert await limits.refund(after)
        assert (await limits.peek(free)).remaining == 20 - 3
        assert await limits.refund(before)
        assert (await limits.peek(free)).remaining == 20


async def test_core12_a_refund_after_a_reset_takes_nothing_from_others(server: Valkey) -> None:
    """Units that a reset has cleared are not given back from what was taken later."""
    async with connect(server.url, CATALOGUE) as store:
        limits, claim = store[LIMITS], RULE["free"].on("reset")
        early = await limits.check(claim, cost=5)
        await limits.reset(claim)
        assert await limits.refund(early)
        assert (await limits.peek(claim)).remaining == 20
