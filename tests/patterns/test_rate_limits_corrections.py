"""Corrections: refunds, reservations and settlements, applied where and when the units were taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import InvalidClaim
from ephemera.keyspace import Store, connect
from ephemera.patterns.rate_limits import BoundRateLimits, Rule
from ephemera.patterns.rate_limits._slots import CORRECT
from tests.patterns.limit_fixtures import (
    BRIEF,
    CATALOGUE,
    CROWD,
    KINDS,
    LIMITS,
    LOG,
    SECONDLY,
    WINDOW,
    new_subject,
)

kinds = pytest.mark.parametrize("rule", KINDS, ids=lambda rule: rule.name)


@pytest.fixture(params=["server", "cluster"])
async def limiter(request: pytest.FixtureRequest) -> AsyncIterator[BoundRateLimits]:
    """Limits on one server, and then on a cluster."""
    async with connect(request.getfixturevalue(request.param).url, CATALOGUE) as store:
        yield store[LIMITS]


@kinds
async def test_a_refund_gives_back_what_a_decision_took(limiter: BoundRateLimits, rule: Rule) -> None:
    """A refund gives back all units of all claims of the decision, and no others."""
    claim, other = rule.on(new_subject()), WINDOW.on(new_subject())
    await limiter.check(claim)
    taken = await limiter.check(claim, other, cost=3)
    assert await limiter.refund(taken)
    assert (await limiter.peek(claim)).remaining == 4
    assert (await limiter.peek(other)).remaining == 5


@kinds
async def test_a_settlement_replaces_the_estimated_cost(limiter: BoundRateLimits, rule: Rule) -> None:
    """A lower cost gives the rest back; a higher one is taken, even above the limit."""
    claim = rule.on(new_subject())
    assert await limiter.settle(await limiter.check(claim, cost=4), 1)
    assert (await limiter.peek(claim)).remaining == 4
    assert await limiter.settle(await limiter.check(claim, cost=1), 3)
    assert (await limiter.peek(claim)).remaining == 1
    assert await limiter.settle(await limiter.check(claim, cost=1), 6)
    denied = await limiter.check(claim)
    assert not denied.allowed
    assert denied.remaining == 0


async def test_a_settlement_leaves_claims_with_their_own_cost(limiter: BoundRateLimits) -> None:
    """Claims with their own cost keep it, unless everything is given back."""
    request, tokens = WINDOW.on(new_subject()), LOG.on(new_subject())
    taken = await limiter.check(request.with_cost(1), tokens, cost=5)
    assert await limiter.settle(taken, 2)
    assert [(await limiter.peek(claim)).remaining for claim in (request, tokens)] == [4, 3]
    taken = await limiter.check(request.with_cost(1), tokens, cost=2)
    assert await limiter.settle(taken, 0)
    assert [(await limiter.peek(claim)).remaining for claim in (request, tokens)] == [4, 3]


async def test_a_decision_is_settled_once(limiter: BoundRateLimits) -> None:
    """A second correction raises; a denial has nothing to settle."""
    claim = WINDOW.on(new_subject())
    taken = await limiter.check(claim, cost=5)
    denied = await limiter.check(claim)
    assert not await limiter.refund(denied)
    assert await limiter.refund(taken)
    with pytest.raises(InvalidClaim, match="window: this decision is settled already"):
        await limiter.refund(taken)
    assert (await limiter.peek(claim)).remaining == 5


@pytest.mark.parametrize("rule", [SECONDLY, BRIEF], ids=lambda rule: rule.name)
async def test_expired_units_need_no_refund(server: Valkey, rule: Rule) -> None:
    """Units that are free again are not given back a second time."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], rule.on(new_subject())
        early = await limiter.check(claim, cost=5)
        while not (later := await limiter.check(claim, cost=5)).allowed:
            await asyncio.sleep(0.005)
        state = await store.call("GET", later._keys[0])
        await limiter.refund(early)
        assert await store.call("GET", later._keys[0]) in (state, None)  # None: it has expired, too


async def test_a_refund_finds_its_log_entry(limiter: BoundRateLimits) -> None:
    """Units that share an entry of the log are given back one by one."""
    claim = CROWD.on(new_subject())
    taken = [await limiter.check(claim) for _ in range(40)]
    for decision in taken:
        assert await limiter.refund(decision)
    assert (await limiter.peek(claim)).remaining == 600


async def test_a_refund_takes_from_no_other_entry_of_the_log(server: Valkey) -> None:
    """Units are given back to the grain they were taken in: earlier and later units keep their times."""
    async with connect(server.url, CATALOGUE) as store:
        seconds, microseconds = map(int, await store.call("TIME"))
        now, key = seconds * 1000 + microseconds // 1000, f"corrected:{new_subject()}"
        earlier, own, later = now - 3000, now - 2000, now - 100
        await store.call("SET", key, _log((earlier, 1), (own, 2), (later, 1)), "PX", 60_000)
        correction = ("channel", "id", "sliding", -2, 60_000, own)
        assert await store.call("EVAL", CORRECT.source, 1, key, *correction) == 1
        assert await store.call("GET", key) == _log((earlier, 1), (later, 1))


def _log(*entries: tuple[int, int]) -> bytes:
    """The state of a sliding window: the sum, then each entry's time and units."""
    numbers = (sum(units for _, units in entries), *(number for entry in entries for number in entry))
    return b"".join(number.to_bytes(6, "big") for number in numbers)


async def test_a_reservation_settles_at_its_end(limiter: BoundRateLimits) -> None:
    """It settles the cost it was given, or its estimate, or nothing when the block failed."""
    claim = LOG.on(new_subject())
    async with limiter.reserve(claim, cost=4) as reservation:
        assert reservation.allowed
        assert (await limiter.peek(claim)).remaining == 1
        reservation.settle(1)
    assert (await limiter.peek(claim)).remaining == 4
    async with limiter.reserve(claim, cost=2):
        pass
    assert (await limiter.peek(claim)).remaining == 2
    with pytest.raises(RuntimeError, match="the model is down"):
        await _fail_in_reservation(limiter, claim.subject[0])
    assert (await limiter.peek(claim)).remaining == 2
    async with limiter.reserve(claim, cost=3) as reservation:
        assert not reservation.allowed
        assert reservation.decision.violated
    async with limiter.reserve(claim, cost=2) as reservation:
        reservation.settle(0)
    assert (await limiter.peek(claim)).remaining == 2
    with pytest.raises(InvalidClaim, match="reservation: it cannot cost -1"):
        reservation.settle(-1)


async def _fail_in_reservation(limiter: BoundRateLimits, who: object) -> None:
    async with limiter.reserve(LOG.on(str(who)), cost=2):
        raise RuntimeError("the model is down")


async def test_a_cancelled_reservation_gives_its_units_back(limiter: BoundRateLimits) -> None:
    """A cancelled block gives all its units back."""
    claim, reserved = LOG.on(new_subject()), asyncio.Event()

    async def generate() -> None:
        async with limiter.reserve(claim, cost=5):
            reserved.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(generate())
    await reserved.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await limiter.peek(claim)).remaining == 5


async def test_a_settled_key_has_a_ttl(server: Valkey) -> None:
    """Corrections write the TTL with the state, and restore one that was lost."""
    async with connect(server.url, CATALOGUE) as store:
        for rule in KINDS:
            claim = rule.on(new_subject())
            taken = await store[LIMITS].check(claim, cost=3)
            before = await _expiry(store, claim.key)
            await store.call("PERSIST", claim.key)
            await store[LIMITS].settle(taken, 2)
            after = await _expiry(store, claim.key)
            assert 0 < after <= before


async def _expiry(store: Store, key: str) -> int:
    expiry: int = await store.call("PEXPIRETIME", key)
    return expiry
