"""Limits over time: there is room when a denial announced it, and never early."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from ephemera.keyspace import connect
from ephemera.patterns.rate_limits import BoundRateLimits, Claim
from tests.patterns.limit_fixtures import BRIEF, CATALOGUE, DAY, FLOW, LIMITS, SECONDLY, WINDOW, new_subject
from tests.untyped import untyped


@pytest.fixture(params=["server", "cluster", "redis7"])
async def limiter(request: pytest.FixtureRequest) -> AsyncIterator[BoundRateLimits]:
    """Limits on one server, on a cluster, and on Redis 7 where it is installed."""
    async with connect(request.getfixturevalue(request.param).url, CATALOGUE) as store:
        yield store[LIMITS]


async def _wait_for_room(limiter: BoundRateLimits, claim: Claim) -> tuple[float, float]:
    """Return the seconds until there is room, as a peek announces them and as measured."""
    begun = time.monotonic()
    while (seen := await limiter.peek(claim)).allowed:  # the window ended during the test: fill the next one
        await limiter.check(claim, cost=5)
        begun = time.monotonic()
    announced = seen.retry_after
    assert announced is not None
    while not (await limiter.peek(claim)).allowed:
        await asyncio.sleep(0.001)
    return announced, time.monotonic() - begun


async def test_a_sliding_window_frees_units_when_their_time_is_over(limiter: BoundRateLimits) -> None:
    """There is room when announced, not earlier, and only for the units that were taken first."""
    claim = BRIEF.on(new_subject())
    assert (await limiter.check(claim, cost=2)).allowed
    await asyncio.sleep(0.1)
    assert (await limiter.check(claim, cost=3)).allowed
    announced, took = await _wait_for_room(limiter, claim)
    assert announced - 0.005 <= took
    assert announced <= 0.301
    assert (await limiter.peek(claim)).remaining in (2, 5)  # 5 when the machine was slow


async def test_a_bucket_gets_its_units_back_one_by_one(limiter: BoundRateLimits) -> None:
    """Twenty per second come back every 50 ms, when announced and not earlier."""
    claim = FLOW.on(new_subject())
    await limiter.check(claim, cost=5)
    announced, took = await _wait_for_room(limiter, claim)
    assert announced - 0.005 <= took
    assert announced <= 0.051


async def test_a_fixed_window_has_its_whole_limit_again(limiter: BoundRateLimits) -> None:
    """The whole limit is available in the next window, when announced and not earlier."""
    claim = SECONDLY.on(new_subject())
    await limiter.check(claim, cost=5)
    announced, took = await _wait_for_room(limiter, claim)
    assert announced - 0.005 <= took
    assert announced <= 1
    assert (await limiter.check(claim, cost=5)).allowed


async def test_nodes_that_disagree_on_the_time_still_count(limiter: BoundRateLimits) -> None:
    """After two replies with another time, a check is counted in the window that it asks for."""
    limiter._clock.offset += 2 * DAY.total_seconds() * 1000
    untyped(limiter._clock).synchronize = lambda now: None  # as if the nodes' clocks differed
    claim = WINDOW.on(new_subject())
    for left in range(4, -1, -1):
        assert (await limiter.check(claim)).remaining == left
    assert not (await limiter.check(claim)).allowed
    assert not (await limiter.peek(claim)).allowed
