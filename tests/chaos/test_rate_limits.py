"""Limits while their server is killed, frozen or restarted: policies decide, and nobody waits for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey
from ephemera.keyspace import Store, connect
from ephemera.patterns.rate_limits import Claim, Limiter, Rule
from tests.patterns.limited import CATALOGUE, CLOSED, LIMITS, SHARED, WINDOW, somebody
from tests.wire.waiting import answered, eventually

_TIMEOUT = 3.0  # seconds


@pytest.fixture
async def store(victim: Valkey) -> AsyncIterator[Store]:
    """A store on a server that will not stay well; a quarter of a second is the wire's patience."""
    async with connect(victim.url, CATALOGUE) as opened:
        yield opened


@pytest.fixture
async def waiting(victim: Valkey) -> AsyncIterator[Store]:
    """The same, with so much patience that a wait is told from a machine that stood still."""
    async with connect(f"{victim.url}?timeout={_TIMEOUT}", CATALOGUE) as opened:
        yield opened


async def _decided(limiter: Limiter) -> list[tuple[bool, bool]]:
    """Open, closed and shared rules: whether each allows, and by policy."""
    decisions = [await limiter.check(rule.on("u")) for rule in (WINDOW, CLOSED, SHARED)]
    return [(decision.allowed, decision.degraded) for decision in decisions]


_BY_POLICY = [(True, True), (False, True), (True, True)]
_BY_SERVER = [(True, False), (True, False), (True, False)]


async def test_a_killed_server_leaves_the_decision_to_policies(victim: Valkey, waiting: Store) -> None:
    """At once, with no wait for the server; and when it is back, it decides again."""
    limiter = waiting[LIMITS]
    assert await _decided(limiter) == _BY_SERVER
    victim.kill()
    await eventually(lambda: not waiting.client().up)
    began = time.monotonic()
    assert await _decided(limiter) == _BY_POLICY
    assert time.monotonic() - began < 3 * _TIMEOUT
    victim.restart()
    await answered(lambda: limiter.peek(WINDOW.on("u")))
    assert await _decided(limiter) == _BY_SERVER


async def test_a_frozen_server_is_waited_for_once(victim: Valkey, waiting: Store) -> None:
    """Those who were asking wait for the wire's timeout, together; those who come later do not wait."""
    limiter = waiting[LIMITS]
    assert await _decided(limiter) == _BY_SERVER
    victim.pause()
    began = time.monotonic()
    asking = await asyncio.gather(*(limiter.check(CLOSED.on(somebody())) for _ in range(100)))
    assert time.monotonic() - began < 10 * _TIMEOUT  # not a hundred times that
    assert {(decision.allowed, decision.degraded) for decision in asking} == {(False, True)}
    began = time.monotonic()
    assert await _decided(limiter) == _BY_POLICY
    assert time.monotonic() - began < 3 * _TIMEOUT
    victim.resume()
    await answered(lambda: limiter.peek(WINDOW.on("u")))
    assert await _decided(limiter) == _BY_SERVER


async def test_who_was_denied_stays_denied_while_the_server_is_away(victim: Valkey, store: Store) -> None:
    """Memory goes before the policy; when the server is back, and empty, it is asked again."""
    limiter, claim = store[LIMITS], WINDOW.on(somebody())
    await limiter.check(claim, cost=5)
    while (await limiter.check(claim)).source != "memory":
        await asyncio.sleep(0.001)
    victim.kill()
    await eventually(lambda: not store.client().up)
    assert (await limiter.check(claim)).source == "memory"
    victim.restart()
    await eventually(lambda: not limiter._denials.kept)
    await answered(lambda: limiter.peek(claim))
    assert (await limiter.check(claim)).remaining == 4


async def test_a_reservation_survives_the_loss_of_its_server(victim: Valkey, store: Store) -> None:
    """What was reserved stays taken when it cannot be settled, and the block ends as it would have."""
    limiter, claim = store[LIMITS], WINDOW.on(somebody())
    async with limiter.reserve(claim, cost=3) as reservation:
        victim.pause()
        reservation.settle(1)
    victim.resume()
    await answered(lambda: limiter.peek(claim))
    assert (await limiter.peek(claim)).remaining in (2, 4)  # a frozen server may settle when it thaws


@pytest.fixture
def shards() -> Iterator[Cluster]:
    """Three masters without replicas, so that nobody takes over."""
    with embedded.cluster(masters=3, replicas=0, node_timeout=20_000) as running:
        yield running
        for node in running.nodes:
            node.resume()


async def test_a_lost_node_leaves_its_claims_to_policies_and_takes_nothing(shards: Cluster) -> None:
    """A check over two nodes of which one is frozen is decided by both, and a denial gives back."""
    async with connect(shards.url, CATALOGUE) as opened:
        limiter = opened[LIMITS]
        shards.nodes[0].pause()
        lost = await _first(limiter, CLOSED, degraded=True)
        alive = await _first(limiter, WINDOW, degraded=False)
        denied = await limiter.check(alive, lost)
        assert not denied.allowed
        assert denied.degraded
        assert [outcome.rule for outcome in denied.violated] == ["closed"]
        assert (await limiter.peek(alive)).remaining == 4
        passed = await limiter.check(alive, lost, when_down="open")
        assert passed.allowed
        assert passed.degraded
        assert [(outcome.rule, outcome.remaining) for outcome in passed.outcomes] == [("window", 4)]
        assert (await limiter.peek(alive)).remaining == 3


async def _first(limiter: Limiter, rule: Rule, *, degraded: bool) -> Claim:
    """A claim whose node is away, or is not."""
    while True:
        claim = rule.on(somebody())
        if (await limiter.check(claim)).degraded == degraded:
            return claim
