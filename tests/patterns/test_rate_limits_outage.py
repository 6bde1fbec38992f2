"""Policies while the server is down: open, closed or a local share, decided at once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Catalogue, connect
from ephemera.patterns.rate_limits import BoundRateLimits, RateLimits, Rule, local_share, sliding_window
from tests.patterns.limit_fixtures import (
    BUCKET,
    CATALOGUE,
    CLOSED,
    KINDS,
    LIMITS,
    LOG,
    SHARED,
    WINDOW,
    new_subject,
)

_PERIOD = timedelta(milliseconds=200)


@pytest.fixture(scope="module")
def full() -> Iterator[Valkey]:
    """A server whose memory a test limits."""
    with embedded.valkey(config={"maxmemory-policy": "noeviction"}) as running:
        yield running


@pytest.fixture
async def alone(server: Valkey) -> AsyncIterator[BoundRateLimits]:
    """Limits of a store whose server is down."""
    url = server.url.replace(str(server.port), "1")
    async with connect(url, CATALOGUE, required=False) as store:
        yield store[LIMITS]


async def test_an_open_rule_admits_everyone(alone: BoundRateLimits) -> None:
    """Its state is unknown, and the decision is marked as degraded."""
    for _ in range(20):
        decision = await alone.check(WINDOW.on("u"))
        assert decision.allowed
        assert decision.degraded
        assert (decision.outcomes, decision.remaining, decision.retry_after) == ((), None, 0)
    assert alone.degraded == 20


async def test_a_closed_rule_admits_no_one(alone: BoundRateLimits) -> None:
    """A closed rule denies whatever the other rules allow, with a retry after one second."""
    for decision in (await alone.check(CLOSED.on("u")), await alone.check(WINDOW.on("u"), CLOSED.on("u"))):
        assert not decision.allowed
        assert decision.degraded
        assert [outcome.rule for outcome in decision.violated] == ["closed"]
        assert decision.retry_after is not None
        assert 0.9 < decision.retry_after <= 1


async def test_a_check_may_have_a_policy_of_its_own(alone: BoundRateLimits) -> None:
    """A policy given to `check` overrides those of the rules."""
    assert (await alone.check(CLOSED.on("u"), when_down="open")).allowed
    assert not (await alone.check(WINDOW.on("u"), when_down="closed")).allowed
    assert [(await alone.check(WINDOW.on("v"), when_down=local_share(of=2))).allowed for _ in range(3)] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("rule", [*KINDS, SHARED], ids=lambda rule: rule.name)
async def test_a_local_share_is_a_part_of_the_limit(alone: BoundRateLimits, rule: Rule) -> None:
    """One of two processes admits half, rounded down, and then announces when there is room again."""
    claim, share = rule.on(new_subject()), local_share(of=2)
    half = claim.limit // 2
    passed = [await alone.check(claim, when_down=share) for _ in range(half)]
    assert [decision.remaining for decision in passed] == list(range(half - 1, -1, -1))
    denied = await alone.check(claim, when_down=share)
    assert not denied.allowed
    assert denied.remaining == 0
    assert denied.retry_after is not None
    assert 86_000 < denied.retry_after <= 86_400
    assert (await alone.check(rule.on(new_subject()), when_down=share)).allowed


async def test_a_share_is_taken_from_all_claims_or_none(alone: BoundRateLimits) -> None:
    """A denial by another rule takes nothing from the share; a cost above the share is denied."""
    claim = SHARED.on(new_subject())
    assert not (await alone.check(claim, CLOSED.on("u"))).allowed
    denied = await alone.check(claim, cost=3)
    assert not denied.allowed
    assert denied.retry_after is not None
    assert denied.retry_after <= 1
    assert (await alone.check(claim, cost=2)).remaining == 0


async def test_a_share_of_a_small_limit_is_one_and_of_nothing_is_nothing(alone: BoundRateLimits) -> None:
    """One of eight processes with a limit of five admits one; with a limit of 0, none."""
    share = local_share(of=8)
    assert [(await alone.check(BUCKET.on("w"), when_down=share)).allowed for _ in range(2)] == [True, False]
    assert not (await alone.check(LOG.at(0).on("w"), when_down=share)).allowed


async def test_a_share_is_free_again_after_the_period() -> None:
    """Units of a share are free again when their period is over."""
    catalogue, rule = Catalogue("t"), sliding_window("r", 2, per=_PERIOD)
    async with connect("redis://127.0.0.1:1", catalogue, required=False) as store:
        limiter = store[RateLimits(catalogue, "t", rule, cached_denials=0)]
        share, began = local_share(of=1), time.monotonic()
        assert (await limiter.check(rule.on("u"), cost=2, when_down=share)).allowed
        while not (await limiter.check(rule.on("u"), when_down=share)).allowed:
            assert time.monotonic() - began < 5
        assert time.monotonic() - began >= _PERIOD.total_seconds()


async def test_a_policy_decides_quickly(alone: BoundRateLimits) -> None:
    """A decision without the server takes less than half a millisecond of CPU time."""
    claims, began = (WINDOW.on("u"), CLOSED.on("u"), SHARED.on("u")), time.process_time()
    for _ in range(1000):
        await alone.check(*claims)
    assert (time.process_time() - began) / 1000 < 0.000_5


async def test_only_checks_have_policies(alone: BoundRateLimits) -> None:
    """`peek` and `reset` raise without the server; a correction returns False."""
    with pytest.raises(ConnectionFailed):
        await alone.peek(WINDOW.on("u"))
    with pytest.raises(ConnectionFailed):
        await alone.reset(WINDOW.on("u"))
    assert not await alone.refund(await alone.check(WINDOW.on("u")))


async def test_a_full_server_counts_as_an_outage(full: Valkey) -> None:
    """While it cannot write, the policy decides and corrections return False; afterwards they succeed."""
    async with connect(full.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], CLOSED.on(new_subject())
        taken = await limiter.check(claim, cost=2)
        full.ask("CONFIG", "SET", "maxmemory", 1)
        denied = await limiter.check(claim)
        assert not denied.allowed
        assert denied.degraded
        assert not await limiter.refund(taken)
        full.ask("CONFIG", "SET", "maxmemory", 0)
        assert await limiter.refund(taken)
        assert (await limiter.check(claim)).remaining == 4


async def test_a_flushed_server_counts_from_zero(full: Valkey) -> None:
    """After a flush the whole limit is available, and scripts are loaded again."""
    async with connect(full.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], WINDOW.on(new_subject())
        await limiter.check(claim, cost=5)
        await store.call("FLUSHALL")
        await store.call("SCRIPT", "FLUSH")
        assert (await limiter.check(claim)).remaining == 4
