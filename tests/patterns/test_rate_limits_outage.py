"""Without a server: open, closed or a local share, decided at once; and errors that are no outage."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Catalogue, connect
from ephemera.patterns.rate_limits import Limiter, RateLimits, Rule, local_share, sliding_window
from tests.patterns.limited import BUCKET, CATALOGUE, CLOSED, KINDS, LIMITS, LOG, SHARED, WINDOW, somebody

_PERIOD = timedelta(milliseconds=200)


@pytest.fixture(scope="module")
def full() -> Iterator[Valkey]:
    """A server that may hold no more than it does."""
    with embedded.valkey(config={"maxmemory-policy": "noeviction"}) as running:
        yield running


@pytest.fixture
async def alone(server: Valkey) -> AsyncIterator[Limiter]:
    """Limits of a store whose server is not there."""
    url = server.url.replace(str(server.port), "1")
    async with connect(url, CATALOGUE, required=False) as store:
        yield store[LIMITS]


async def test_an_open_rule_lets_everybody_in(alone: Limiter) -> None:
    """Nothing is known of its state, and the decision says that it is a policy's."""
    for _ in range(20):
        decision = await alone.check(WINDOW.on("u"))
        assert decision.allowed
        assert decision.degraded
        assert (decision.outcomes, decision.remaining, decision.retry_after) == ((), None, 0)
    assert alone.degraded == 20


async def test_a_closed_rule_lets_nobody_in(alone: Limiter) -> None:
    """Whatever the other rules say; and it asks to come again in a second."""
    for decision in (await alone.check(CLOSED.on("u")), await alone.check(WINDOW.on("u"), CLOSED.on("u"))):
        assert not decision.allowed
        assert decision.degraded
        assert [outcome.rule for outcome in decision.violated] == ["closed"]
        assert decision.retry_after is not None
        assert 0.9 < decision.retry_after <= 1


async def test_a_check_may_have_a_policy_of_its_own(alone: Limiter) -> None:
    """It goes before those of the rules."""
    assert (await alone.check(CLOSED.on("u"), when_down="open")).allowed
    assert not (await alone.check(WINDOW.on("u"), when_down="closed")).allowed
    assert [(await alone.check(WINDOW.on("v"), when_down=local_share(of=2))).allowed for _ in range(3)] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("rule", [*KINDS, SHARED], ids=lambda rule: rule.name)
async def test_a_local_share_is_a_part_of_the_limit(alone: Limiter, rule: Rule) -> None:
    """One of two processes admits half, rounded down, and then says when there is room again."""
    claim, share = rule.on(somebody()), local_share(of=2)
    half = claim.limit // 2
    passed = [await alone.check(claim, when_down=share) for _ in range(half)]
    assert [decision.remaining for decision in passed] == list(range(half - 1, -1, -1))
    denied = await alone.check(claim, when_down=share)
    assert not denied.allowed
    assert denied.remaining == 0
    assert denied.retry_after is not None
    assert 86_000 < denied.retry_after <= 86_400
    assert (await alone.check(rule.on(somebody()), when_down=share)).allowed


async def test_a_share_is_taken_from_all_claims_or_none(alone: Limiter) -> None:
    """A closed rule beside it keeps the share as it was; a cost above the share cannot pass for now."""
    claim = SHARED.on(somebody())
    assert not (await alone.check(claim, CLOSED.on("u"))).allowed
    denied = await alone.check(claim, cost=3)
    assert not denied.allowed
    assert denied.retry_after is not None
    assert denied.retry_after <= 1
    assert (await alone.check(claim, cost=2)).remaining == 0


async def test_a_share_of_a_small_limit_is_one_and_of_nothing_is_nothing(alone: Limiter) -> None:
    """Eight processes with a limit of five admit one each."""
    share = local_share(of=8)
    assert [(await alone.check(BUCKET.on("w"), when_down=share)).allowed for _ in range(2)] == [True, False]
    assert not (await alone.check(LOG.at(0).on("w"), when_down=share)).allowed


async def test_a_share_is_free_again_after_the_period() -> None:
    """Exactly as much as was taken, when its period is over."""
    catalogue, rule = Catalogue("t"), sliding_window("r", 2, per=_PERIOD)
    async with connect("redis://127.0.0.1:1", catalogue, required=False) as store:
        limiter = store[RateLimits(catalogue, "t", rule, remember=0)]
        share, began = local_share(of=1), time.monotonic()
        assert (await limiter.check(rule.on("u"), cost=2, when_down=share)).allowed
        while not (await limiter.check(rule.on("u"), when_down=share)).allowed:
            assert time.monotonic() - began < 5
        assert time.monotonic() - began >= _PERIOD.total_seconds()


async def test_a_policy_decides_in_no_time(alone: Limiter) -> None:
    """A thousand decisions without a server take less than half a millisecond of work each."""
    claims, began = (WINDOW.on("u"), CLOSED.on("u"), SHARED.on("u")), time.process_time()
    for _ in range(1000):
        await alone.check(*claims)
    assert (time.process_time() - began) / 1000 < 0.000_5


async def test_only_checks_have_policies(alone: Limiter) -> None:
    """Whoever wants to look or to reset is told that nobody can; a correction says that it was not made."""
    with pytest.raises(ConnectionFailed):
        await alone.peek(WINDOW.on("u"))
    with pytest.raises(ConnectionFailed):
        await alone.reset(WINDOW.on("u"))
    assert not await alone.refund(await alone.check(WINDOW.on("u")))


async def test_a_server_that_is_full_counts_as_away(full: Valkey) -> None:
    """When it may not write, the policy decides, and corrections wait; with room again all is as before."""
    async with connect(full.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], CLOSED.on(somebody())
        taken = await limiter.check(claim, cost=2)
        full.ask("CONFIG", "SET", "maxmemory", 1)
        denied = await limiter.check(claim)
        assert not denied.allowed
        assert denied.degraded
        assert not await limiter.refund(taken)
        full.ask("CONFIG", "SET", "maxmemory", 0)
        assert await limiter.refund(taken)
        assert (await limiter.check(claim)).remaining == 4


async def test_an_emptied_server_counts_anew(full: Valkey) -> None:
    """After a flush, or when the key was evicted, there is one limit more; scripts are loaded again."""
    async with connect(full.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], WINDOW.on(somebody())
        await limiter.check(claim, cost=5)
        await store.call("FLUSHALL")
        await store.call("SCRIPT", "FLUSH")
        assert (await limiter.check(claim)).remaining == 4
