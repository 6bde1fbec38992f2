"""CORE11: units of a token bucket that had come back by themselves were given back a second time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue
from ephemera.patterns.rate_limits import RateLimits, token_bucket

CATALOGUE = Catalogue("core11")
BUCKET = token_bucket("bucket", 10, per=timedelta(seconds=1))
LIMITS = RateLimits(CATALOGUE, "core11", BUCKET)


@pytest.mark.parametrize("how", ["refund", "settle"])
async def test_core11_units_that_came_back_are_not_refunded_again(server: Valkey, how: str) -> None:
    """A late refund leaves what others have taken since: never more than a full bucket at once."""
    async with connect(server.url, CATALOGUE) as store:
        for attempt in range(50):
            if await _refunds_late(store, how, f"{how} {attempt}"):
                return
        raise AssertionError("no attempt was quick enough to see it")


async def _refunds_late(store: Store, how: str, subject: str) -> bool:
    """Whether it was seen; not if a unit came back by itself between two checks, on a slow machine."""
    limits, claim = store[LIMITS], BUCKET.on(subject)
    first = await limits.check(claim, cost=10)
    await asyncio.sleep(0.55)  # more than five units come back
    before = await _server_time(store)
    assert (await limits.check(claim, cost=5)).allowed
    assert await (limits.refund(first) if how == "refund" else limits.settle(first, 1))
    decision = await limits.check(claim, cost=6)
    if await _server_time(store) - before >= 0.1:
        return False
    assert not decision.allowed
    assert (await limits.check(claim, cost=4)).allowed
    return True


async def _server_time(store: Store) -> float:
    seconds, microseconds = await store.call("TIME")
    return int(seconds) + int(microseconds) / 1e6


async def test_core11_a_refund_at_once_returns_everything(server: Valkey) -> None:
    """Units that have not come back yet are refunded, behind others' units, too."""
    async with connect(server.url, CATALOGUE) as store:
        limits, claim = store[LIMITS], BUCKET.on("at once")
        await limits.check(claim, cost=4)
        second = await limits.check(claim, cost=6)
        assert await limits.refund(second)
        assert (await limits.check(claim, cost=6)).allowed
