"""Remembered denials: they cost the server nothing, and end when they can, wherever room was made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Store, connect
from ephemera.patterns.rate_limits import (
    Claim,
    Decision,
    Limiter,
    RateLimits,
    Rule,
    fixed_window,
    sliding_window,
)
from tests.patterns.limited import BRIEF, CATALOGUE, DAY, KINDS, LIMITS, LOG, WINDOW, somebody
from tests.wire.waiting import eventually

kinds = pytest.mark.parametrize("rule", KINDS, ids=lambda rule: rule.name)


@pytest.fixture(params=["server", "cluster"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, Store]]:
    """Two processes' stores, as far as limits can tell."""
    url = request.getfixturevalue(request.param).url
    async with connect(url, CATALOGUE) as one, connect(url, CATALOGUE) as other:
        yield one, other


async def _fill(limiter: Limiter, claim: Claim) -> Decision:
    """Use all of a claim's limit, and return the decision that took it."""
    taken = await limiter.check(claim, cost=claim.limit)
    assert taken.allowed
    return taken


async def _until_remembered(limiter: Limiter, *claims: Claim) -> Decision:
    """A denial by memory; the first denials of a store are asked for while it begins to listen."""
    while True:
        denied = await limiter.check(*claims)
        assert not denied.allowed
        if denied.source == "memory":
            return denied
        await asyncio.sleep(0.001)


@pytest.mark.standalone("it counts the commands of one server")
@kinds
async def test_a_remembered_denial_asks_nobody(server: Valkey, rule: Rule) -> None:
    """Ten thousand checks of a denied subject run no script, and say what the first denial said."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], rule.on(somebody())
        await _fill(limiter, claim)
        announced = (await _until_remembered(limiter, claim)).retry_after
        before = await _scripts_run(store)
        for _ in range(10_000):
            denied = await limiter.check(claim)
        assert await _scripts_run(store) == before
        assert limiter.remembered > 10_000
        assert [outcome.rule for outcome in denied.violated] == [rule.name]
        assert announced is not None
        assert denied.retry_after is not None
        assert denied.retry_after < announced


async def _scripts_run(store: Store) -> int:
    """How often this server was asked to run a script, by anybody."""
    statistics = (await store.call("INFO", "commandstats")).decode()
    lines = [line for line in statistics.splitlines() if line.startswith("cmdstat_evalsha:")]
    return int(lines[0].split("calls=")[1].split(",")[0])


async def test_a_denial_ends_when_it_said(server: Valkey) -> None:
    """Memory holds a subject off until the announced moment, and then it passes."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], BRIEF.on(somebody())
        denied = await limiter.check(claim, cost=5)
        while denied.source != "memory":
            denied = await limiter.check(claim, cost=5)
        while not (decision := await limiter.check(claim)).allowed:
            await asyncio.sleep(0.001)
        assert decision.remaining == 4


@kinds
async def test_a_refund_in_another_process_is_heard(stores: tuple[Store, Store], rule: Rule) -> None:
    """Room that one process makes is used by the other, long before the denial's own end."""
    here, there = (store[LIMITS] for store in stores)
    claim = rule.on(somebody())
    taken = await _fill(there, claim)
    await _until_remembered(here, claim)
    assert await there.refund(taken)
    await eventually(lambda: claim.id not in here._denials.kept)
    assert (await here.check(claim)).remaining == 4


@kinds
async def test_a_reset_in_another_process_is_heard(stores: tuple[Store, Store], rule: Rule) -> None:
    """A support engineer's reset lets the subject in everywhere."""
    here, there = (store[LIMITS] for store in stores)
    claim = rule.on(somebody())
    await _fill(there, claim)
    await _until_remembered(here, claim)
    await there.reset(claim)
    await eventually(lambda: claim.id not in here._denials.kept)
    assert (await here.check(claim)).allowed


async def test_a_settlement_below_the_estimate_is_heard(stores: tuple[Store, Store]) -> None:
    """Units that a reservation did not need are there for others."""
    here, there = (store[LIMITS] for store in stores)
    claim = LOG.on(somebody())
    taken = await _fill(there, claim)
    await _until_remembered(here, claim)
    assert await there.settle(taken, 2)
    await eventually(lambda: claim.id not in here._denials.kept)
    assert (await here.check(claim)).remaining == 2


async def test_a_smaller_cost_is_not_denied_by_a_larger_ones_denial(server: Valkey) -> None:
    """A denial of four units says nothing of two, and everything of five."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], WINDOW.on(somebody())
        await limiter.check(claim, cost=2)
        denied = await limiter.check(claim, cost=4)
        while denied.source != "memory":
            denied = await limiter.check(claim, cost=4)
        assert (await limiter.check(claim, cost=5)).source == "memory"
        assert (await limiter.check(claim, cost=3)).allowed


async def test_a_known_denial_decides_among_other_claims(server: Valkey) -> None:
    """A check that holds a denied claim is denied by it, in other company too, and takes nothing."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim, other = store[LIMITS], WINDOW.on(somebody()), LOG.on(somebody())
        await _fill(limiter, claim)
        await _until_remembered(limiter, LOG.on(somebody()), claim)
        denied = await limiter.check(other, claim)
        assert denied.source == "memory"
        assert [(outcome.claim, outcome.violated) for outcome in denied.outcomes] == [(claim, True)]
        assert (await limiter.peek(other)).remaining == 5


async def test_a_denial_over_several_subjects_is_remembered(stores: tuple[Store, Store]) -> None:
    """Also on a cluster, where what the other slots took is given back, and that is announced."""
    limiter, claim = stores[0][LIMITS], WINDOW.on(somebody())
    others = [LOG.on(somebody()) for _ in range(5)]
    await _fill(limiter, claim)
    async with asyncio.timeout(60):
        await _until_remembered(limiter, claim, *others)
    asked = limiter.denied
    for _ in range(100):
        assert (await limiter.check(claim, *others)).source == "memory"
    assert limiter.denied == asked
    assert [(await limiter.peek(other)).remaining for other in others] == [5] * 5


async def test_no_more_denials_are_kept_than_asked_for(server: Valkey) -> None:
    """The oldest goes first; with none to keep, nobody listens and every denial is the server's."""
    for most in (3, 0):
        catalogue = Catalogue("bounded")
        rule = fixed_window("bounded", 1, per=DAY)
        limits = RateLimits(catalogue, somebody(), rule, remember=most)
        async with connect(server.url, catalogue) as store:
            limiter = store[limits]
            claims = [rule.on(number) for number in range(5)]
            for claim in claims:
                await _fill(limiter, claim)
                if most:
                    await _until_remembered(limiter, claim)
            assert list(limiter._denials.kept) == [claim.id for claim in claims[5 - most :]]
            assert (await limiter.check(claims[0])).source == "server"
            assert (limiter._denials._task is None) == (most == 0)


@pytest.mark.parametrize("for_us", [True, False])
async def test_an_announcement_that_overtakes_a_denial_is_not_lost(server: Valkey, for_us: bool) -> None:
    """A denial asked for before its room was announced, and answered after, is not remembered; others are."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], WINDOW.on(somebody())
        await _fill(limiter, claim)
        await _until_remembered(limiter, claim)
        limiter._denials.forget([claim.id])
        pending = asyncio.create_task(limiter.check(claim))
        await asyncio.sleep(0)
        limiter._denials.forget([claim.id if for_us else "somebody else"])
        assert (await pending).source == "server"
        assert (claim.id in limiter._denials.kept) is not for_us


@pytest.mark.standalone("it cuts the connections of one server")
async def test_a_process_that_may_have_missed_something_forgets_all(server: Valkey) -> None:
    """When the connection that hears of room is lost, denials are asked for again once it is back."""
    catalogue = Catalogue("gap")
    rule = sliding_window("gap", 1, per=DAY)
    limits = RateLimits(catalogue, somebody(), rule)
    async with connect(server.url, catalogue) as store:
        limiter, claim = store[limits], rule.on(somebody())
        await _fill(limiter, claim)
        await _until_remembered(limiter, claim)
        await store.call("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: claim.id not in limiter._denials.kept)
        await _until_remembered(limiter, claim)


async def test_an_announcement_that_is_no_text_ends_nothing(server: Valkey) -> None:
    """Bytes that name no claim, on the channel, are passed over: what is announced after them is heard."""
    async with connect(server.url, CATALOGUE) as store, connect(server.url, CATALOGUE) as other:
        limiter, claim = store[LIMITS], WINDOW.on(somebody())
        taken = await _fill(limiter, claim)
        await _until_remembered(limiter, claim)
        heard = limiter._denials.version
        await other.call("PUBLISH", limiter._denials._channel, b"\xff\xfe")
        await eventually(lambda: limiter._denials.version > heard)
        async with asyncio.timeout(60):
            await _until_remembered(limiter, claim)
        assert await other[LIMITS].refund(taken)
        await eventually(lambda: claim.id not in limiter._denials.kept)
        assert (await limiter.check(claim)).allowed


async def test_whoever_may_not_listen_remembers_nothing(
    server: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the right to the channel every denial is the server's, and the log says why, once."""
    server.ask("ACL", "SETUSER", "limited-deaf", "on", ">secret", "~*", "resetchannels", "+@all")
    url = server.url.replace("redis://", "redis://limited-deaf:secret@")
    async with connect(url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], WINDOW.on(somebody())
        await _fill(limiter, claim)
        for _ in range(20):
            assert (await limiter.check(claim)).source == "server"
            await asyncio.sleep(0.001)
    assert [record.getMessage()[:27] for record in caplog.records] == ["denials are not remembered,"]
