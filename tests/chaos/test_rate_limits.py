"""Limits while their server is killed, paused or restarted: policies decide, and no caller waits long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey
from ephemera.keyspace import Store, connect
from ephemera.patterns.rate_limits import BoundRateLimits, Claim, Rule
from tests.patterns.limit_fixtures import CATALOGUE, CLOSED, LIMITS, SHARED, WINDOW, new_subject
from tests.wire.conditions import answered, eventually

_TIMEOUT = 3.0  # seconds


@pytest.fixture
async def store(victim: Valkey) -> AsyncIterator[Store]:
    """A store on a server that a test breaks, with the default timeout of 250 ms."""
    async with connect(victim.url, CATALOGUE) as opened:
        yield opened


@pytest.fixture
async def waiting(victim: Valkey) -> AsyncIterator[Store]:
    """The same with a long timeout, to distinguish a wait from a slow machine."""
    async with connect(f"{victim.url}?timeout={_TIMEOUT}", CATALOGUE) as opened:
        yield opened


async def _decided(limiter: BoundRateLimits) -> list[tuple[bool, bool]]:
    """For open, closed and shared rules: whether each allows, and whether by policy."""
    decisions = [await limiter.check(rule.on("u")) for rule in (WINDOW, CLOSED, SHARED)]
    return [(decision.allowed, decision.degraded) for decision in decisions]


_BY_POLICY = [(True, True), (False, True), (True, True)]
_BY_SERVER = [(True, False), (True, False), (True, False)]


async def test_a_killed_server_leaves_the_decision_to_policies(victim: Valkey, waiting: Store) -> None:
    """Policies decide at once, without waiting; when the server is back, it decides again."""
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


async def test_a_hung_server_is_waited_for_once(victim: Valkey, waiting: Store) -> None:
    """Checks in flight wait for the timeout together; later ones do not wait."""
    limiter = waiting[LIMITS]
    assert await _decided(limiter) == _BY_SERVER
    victim.pause()
    began = time.monotonic()
    asking = await asyncio.gather(*(limiter.check(CLOSED.on(new_subject())) for _ in range(100)))
    assert time.monotonic() - began < 10 * _TIMEOUT  # not a hundred timeouts
    assert {(decision.allowed, decision.degraded) for decision in asking} == {(False, True)}
    began = time.monotonic()
    assert await _decided(limiter) == _BY_POLICY
    assert time.monotonic() - began < 3 * _TIMEOUT
    victim.resume()
    await answered(lambda: limiter.peek(WINDOW.on("u")))
    assert await _decided(limiter) == _BY_SERVER


async def test_a_denied_subject_stays_denied_while_the_server_is_down(victim: Valkey, store: Store) -> None:
    """Cached denials take precedence over the policy; an empty server that returns decides again."""
    limiter, claim = store[LIMITS], WINDOW.on(new_subject())
    await limiter.check(claim, cost=5)
    while (await limiter.check(claim)).source != "memory":
        await asyncio.sleep(0.001)
    victim.kill()
    await eventually(lambda: not store.client().up)
    assert (await limiter.check(claim)).source == "memory"
    victim.restart()
    await eventually(lambda: not limiter._denials.by_claim)
    await answered(lambda: limiter.peek(claim))
    assert (await limiter.check(claim)).remaining == 4


async def test_a_reservation_survives_the_loss_of_its_server(victim: Valkey, store: Store) -> None:
    """A reservation that cannot be settled stays taken, and its block ends normally."""
    limiter, claim = store[LIMITS], WINDOW.on(new_subject())
    async with limiter.reserve(claim, cost=3) as reservation:
        victim.pause()
        reservation.settle(1)
    victim.resume()
    await answered(lambda: limiter.peek(claim))
    assert (await limiter.peek(claim)).remaining in (2, 4)  # a paused server may settle when it resumes


@pytest.fixture
def shards() -> Iterator[Cluster]:
    """Three masters without replicas, so that there is no failover."""
    with embedded.cluster(masters=3, replicas=0, node_timeout=20_000) as running:
        yield running
        for node in running.nodes:
            node.resume()


async def test_a_lost_node_leaves_its_claims_to_policies_and_takes_nothing(shards: Cluster) -> None:
    """A check over two nodes of which one hangs is decided by server and policy, and a denial gives back."""
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


async def _first(limiter: BoundRateLimits, rule: Rule, *, degraded: bool) -> Claim:
    """Return a claim whose node is down, or is not."""
    while True:
        claim = rule.on(new_subject())
        if (await limiter.check(claim)).degraded == degraded:
            return claim
