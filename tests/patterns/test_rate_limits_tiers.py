"""Tiers: limits by tier or by agreement, changed at run time, and what carries over."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import InvalidClaim, InvalidDeclaration
from ephemera.keyspace import Catalogue, connect
from ephemera.patterns.rate_limits import BoundRateLimits, RateLimits, sliding_window, token_bucket
from tests.patterns.limit_fixtures import (
    CATALOGUE,
    DAY,
    KEY,
    LIMITS,
    MINUTE,
    TIERED_BUCKET,
    TIERED_LOG,
    WINDOW,
    new_subject,
)
from tests.untyped import untyped


@pytest.fixture
async def limiter(server: Valkey) -> AsyncIterator[BoundRateLimits]:
    """Limits on one server."""
    async with connect(server.url, CATALOGUE) as store:
        yield store[LIMITS]


async def test_a_tier_has_its_own_limit_in_the_same_keys(limiter: BoundRateLimits) -> None:
    """Units used in the free tier count in the paid one, which has room for the difference."""
    who = new_subject()
    assert TIERED_LOG.tiers == {"free": 2, "pro": 6}
    assert (await limiter.check(TIERED_LOG["free"].on(who), cost=2)).remaining == 0
    assert not (await limiter.check(TIERED_LOG["free"].on(who))).allowed
    assert (await limiter.check(TIERED_LOG["pro"].on(who))).remaining == 3


async def test_a_downgrade_counts_units_used_before(limiter: BoundRateLimits) -> None:
    """Four used units of six leave nothing of two, and stay counted."""
    who = new_subject()
    await limiter.check(TIERED_LOG["pro"].on(who), cost=4)
    denied = await limiter.check(TIERED_LOG["free"].on(who))
    assert not denied.allowed
    assert denied.remaining == 0
    assert (await limiter.peek(TIERED_LOG["pro"].on(who))).remaining == 2


async def test_a_bucket_carries_over_how_full_it_is(limiter: BoundRateLimits) -> None:
    """Half of a bucket of ten is half of a bucket of a hundred."""
    who = new_subject()
    assert (await limiter.check(TIERED_BUCKET["free"].on(who), cost=5)).remaining == 5
    assert (await limiter.peek(TIERED_BUCKET["pro"].on(who))).remaining == 50
    empty = new_subject()
    await limiter.check(TIERED_BUCKET["pro"].on(empty), cost=100)
    assert (await limiter.peek(TIERED_BUCKET["free"].on(empty))).remaining == 0


async def test_a_limit_by_agreement_needs_no_tier(limiter: BoundRateLimits) -> None:
    """`at` takes any limit, such as one from a contract, even 0."""
    who = new_subject()
    assert (await limiter.check(KEY.at(250).on(who))).remaining == 249
    for rule in (KEY, TIERED_BUCKET, WINDOW):
        denied = await limiter.check(rule.at(0).on(who))
        assert not denied.allowed
        assert denied.retry_after is None


async def test_a_changed_limit_applies_from_the_next_check(server: Valkey) -> None:
    """Raised or lowered, with or without tiers, even for a subject whose denial is cached."""
    catalogue = Catalogue("changing")
    plain, tiered = sliding_window("plain", 2, per=DAY), sliding_window("tiered", {"free": 2}, per=DAY)
    limits, who = RateLimits(catalogue, new_subject(), plain, tiered), new_subject()
    async with connect(server.url, catalogue) as store:
        limiter = store[limits]
        for rule, tier in ((plain, ""), (tiered, "free")):
            await limiter.check(rule[tier].on(who), cost=2)
            denied = await limiter.check(rule[tier].on(who))
            while denied.source != "memory":
                denied = await limiter.check(rule[tier].on(who))
            limiter.set_limit(rule, 4, tier=tier)
            assert (await limiter.check(rule[tier].on(who))).remaining == 1
            limiter.set_limit(rule, 3, tier=tier)
            assert not (await limiter.check(rule[tier].on(who))).allowed


async def test_unknown_tiers_and_limits_are_refused(limiter: BoundRateLimits) -> None:
    """The error names the rule and its tiers."""
    with pytest.raises(InvalidClaim, match="api-key: it has no tier 'gold'; use one of 'free', 'pro'"):
        KEY["gold"]
    with pytest.raises(InvalidClaim, match="api-key: it has tiers, and none was chosen"):
        KEY.on("k1")
    with pytest.raises(InvalidClaim, match=r"window: it has no tier 'free'; use rule.on"):
        limiter.set_limit(WINDOW, 5, tier="free")
    with pytest.raises(InvalidDeclaration, match="'api-key': its limit is -1"):
        limiter.set_limit(KEY, -1, tier="free")
    with pytest.raises(InvalidDeclaration, match="'api-key': its limit is None"):
        KEY.at(untyped(None))


async def test_a_bucket_of_bytes_is_exact(server: Valkey) -> None:
    """Three hundred million bytes per minute, each a fraction of a microsecond, are counted exactly."""
    catalogue, rule = Catalogue("bytes"), token_bucket("bytes", 300_000_000, per=MINUTE, burst=600_000_000)
    limits = RateLimits(catalogue, new_subject(), rule)
    async with connect(server.url, catalogue) as store:
        claim = rule.on(new_subject())
        taken = await store[limits].check(claim, cost=300_000_000)
        assert taken.remaining == 300_000_000
        denied = await store[limits].check(claim, cost=600_000_000)
        assert denied.retry_after is not None
        since = (denied.now - taken.now) / 1000
        assert denied.retry_after == pytest.approx(60 - since, abs=0.002)  # three hundred, at five a second
