"""Limits over time: room comes when a denial says so, never early, by whatever clock the servers have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from ephemera.keyspace import connect
from ephemera.patterns.rate_limits import Claim, Limiter
from tests.patterns.limited import BRIEF, CATALOGUE, DAY, FLOW, LIMITS, SECONDLY, WINDOW, somebody


@pytest.fixture(params=["server", "cluster", "redis7"])
async def limiter(request: pytest.FixtureRequest) -> AsyncIterator[Limiter]:
    """Limits on one server, on a cluster, and on Redis 7 where it is installed."""
    async with connect(request.getfixturevalue(request.param).url, CATALOGUE) as store:
        yield store[LIMITS]


async def _wait_for_room(limiter: Limiter, claim: Claim) -> tuple[float, float]:
    """Seconds until there is room, as a peek announces them, and as they really are."""
    begun = time.monotonic()
    while (seen := await limiter.peek(claim)).allowed:  # the window ended under the test: fill the next one
        await limiter.check(claim, cost=5)
        begun = time.monotonic()
    announced = seen.retry_after
    assert announced is not None
    while not (await limiter.peek(claim)).allowed:
        await asyncio.sleep(0.001)
    return announced, time.monotonic() - begun


async def test_a_sliding_window_frees_units_when_their_time_is_over(limiter: Limiter) -> None:
    """There is room when a denial says so, not earlier, and for no more than what came in first."""
    claim = BRIEF.on(somebody())
    assert (await limiter.check(claim, cost=2)).allowed
    await asyncio.sleep(0.1)
    assert (await limiter.check(claim, cost=3)).allowed
    announced, took = await _wait_for_room(limiter, claim)
    assert announced - 0.005 <= took
    assert announced <= 0.301
    assert (await limiter.peek(claim)).remaining in (2, 5)  # 5 when this machine was held up for long


async def test_a_bucket_gets_its_units_back_one_by_one(limiter: Limiter) -> None:
    """Twenty a second come back every 50 ms: a denial says when the next one does, and it is not early."""
    claim = FLOW.on(somebody())
    await limiter.check(claim, cost=5)
    announced, took = await _wait_for_room(limiter, claim)
    assert announced - 0.005 <= took
    assert announced <= 0.051


async def test_a_fixed_window_begins_anew_with_the_next_one(limiter: Limiter) -> None:
    """The whole limit is there again when a denial says so, and not earlier."""
    claim = SECONDLY.on(somebody())
    await limiter.check(claim, cost=5)
    announced, took = await _wait_for_room(limiter, claim)
    assert announced - 0.005 <= took
    assert announced <= 1
    assert (await limiter.check(claim, cost=5)).allowed


async def test_servers_that_disagree_on_the_time_count_all_the_same(limiter: Limiter) -> None:
    """Refused for its window twice, a check is counted in the window that it asks for."""
    limiter._offset += 2 * DAY.total_seconds() * 1000
    limiter.learn = lambda now: None  # type: ignore[method-assign]  # as if every node had another time
    claim = WINDOW.on(somebody())
    for left in range(4, -1, -1):
        assert (await limiter.check(claim)).remaining == left
    assert not (await limiter.check(claim)).allowed
    assert not (await limiter.peek(claim)).allowed
