"""Cached denials: they cost the server nothing, and end as soon as there is room, wherever it was made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Store, connect
from ephemera.patterns.rate_limits import (
    BoundRateLimits,
    Claim,
    Decision,
    RateLimits,
    Rule,
    fixed_window,
    sliding_window,
)
from tests.patterns.limit_fixtures import BRIEF, CATALOGUE, DAY, KINDS, LIMITS, LOG, WINDOW, new_subject
from tests.wire.conditions import eventually

kinds = pytest.mark.parametrize("rule", KINDS, ids=lambda rule: rule.name)


@pytest.fixture(params=["server", "cluster"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores, as of two processes."""
    url = request.getfixturevalue(request.param).url
    async with connect(url, CATALOGUE) as one, connect(url, CATALOGUE) as other:
        yield one, other


async def _fill(limiter: BoundRateLimits, claim: Claim) -> Decision:
    """Use up a claim's limit, and return the decision."""
    taken = await limiter.check(claim, cost=claim.limit)
    assert taken.allowed
    return taken


async def _until_cached(limiter: BoundRateLimits, *claims: Claim) -> Decision:
    """Return a cached denial; the first denials of a store come from the server until it has subscribed."""
    while True:
        denied = await limiter.check(*claims)
        assert not denied.allowed
        if denied.source == "memory":
            return denied
        await asyncio.sleep(0.001)


@pytest.mark.standalone("it counts the commands of one server")
@kinds
async def test_a_cached_denial_does_not_ask_the_server(server: Valkey, rule: Rule) -> None:
    """Ten thousand checks of a denied subject run no script, and return the first denial."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], rule.on(new_subject())
        await _fill(limiter, claim)
        announced = (await _until_cached(limiter, claim)).retry_after
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
    """How often a script was run on this server."""
    statistics = (await store.call("INFO", "commandstats")).decode()
    lines = [line for line in statistics.splitlines() if line.startswith("cmdstat_evalsha:")]
    return int(lines[0].split("calls=")[1].split(",")[0])


async def test_a_denial_is_checked_again_within_a_minute(server: Valkey) -> None:
    """A counter that another program wrote, or that was lost, denies no longer than that after its end."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], WINDOW.on(new_subject())
        await _fill(limiter, claim)
        denied = await _until_cached(limiter, claim)
        assert denied.retry_after is not None
        left = limiter._denials.by_claim[claim.id].until - monotonic()
        assert 0 < left <= 60


async def test_a_denial_ends_when_announced(server: Valkey) -> None:
    """A cached denial lasts until the announced moment, and then the subject passes."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], BRIEF.on(new_subject())
        denied = await limiter.check(claim, cost=5)
        while denied.source != "memory":
            denied = await limiter.check(claim, cost=5)
        while not (decision := await limiter.check(claim)).allowed:
            await asyncio.sleep(0.001)
        assert decision.remaining == 4


@kinds
async def test_a_refund_in_another_process_ends_a_denial(stores: tuple[Store, Store], rule: Rule) -> None:
    """A refund in one process makes room in the other, long before the denial's own end."""
    here, there = (store[LIMITS] for store in stores)
    claim = rule.on(new_subject())
    taken = await _fill(there, claim)
    await _until_cached(here, claim)
    assert await there.refund(taken)
    await eventually(lambda: claim.id not in here._denials.by_claim)
    assert (await here.check(claim)).remaining == 4


@kinds
async def test_a_reset_in_another_process_ends_a_denial(stores: tuple[Store, Store], rule: Rule) -> None:
    """A reset admits the subject in every process."""
    here, there = (store[LIMITS] for store in stores)
    claim = rule.on(new_subject())
    await _fill(there, claim)
    await _until_cached(here, claim)
    await there.reset(claim)
    await eventually(lambda: claim.id not in here._denials.by_claim)
    assert (await here.check(claim)).allowed


async def test_a_settlement_below_the_estimate_ends_a_denial(stores: tuple[Store, Store]) -> None:
    """Units that a reservation did not need are available to others."""
    here, there = (store[LIMITS] for store in stores)
    claim = LOG.on(new_subject())
    taken = await _fill(there, claim)
    await _until_cached(here, claim)
    assert await there.settle(taken, 2)
    await eventually(lambda: claim.id not in here._denials.by_claim)
    assert (await here.check(claim)).remaining == 2


async def test_a_smaller_cost_is_not_denied_by_the_denial_of_a_larger_one(server: Valkey) -> None:
    """A denial of four units does not cover three, but covers five."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], WINDOW.on(new_subject())
        await limiter.check(claim, cost=2)
        denied = await limiter.check(claim, cost=4)
        while denied.source != "memory":
            denied = await limiter.check(claim, cost=4)
        assert (await limiter.check(claim, cost=5)).source == "memory"
        assert (await limiter.check(claim, cost=3)).allowed


async def test_a_cached_denial_decides_among_other_claims(server: Valkey) -> None:
    """A check that includes a denied claim is denied by it, even with other claims, and takes nothing."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim, other = store[LIMITS], WINDOW.on(new_subject()), LOG.on(new_subject())
        await _fill(limiter, claim)
        await _until_cached(limiter, LOG.on(new_subject()), claim)
        denied = await limiter.check(other, claim)
        assert denied.source == "memory"
        assert [(outcome.claim, outcome.violated) for outcome in denied.outcomes] == [(claim, True)]
        assert (await limiter.peek(other)).remaining == 5


async def test_a_denial_over_several_subjects_is_cached(stores: tuple[Store, Store]) -> None:
    """Also on a cluster, where giving back what the other slots took is announced."""
    limiter, claim = stores[0][LIMITS], WINDOW.on(new_subject())
    others = [LOG.on(new_subject()) for _ in range(5)]
    await _fill(limiter, claim)
    async with asyncio.timeout(60):
        await _until_cached(limiter, claim, *others)
    before = limiter.denied
    for _ in range(100):
        assert (await limiter.check(claim, *others)).source == "memory"
    assert limiter.denied == before
    assert [(await limiter.peek(other)).remaining for other in others] == [5] * 5


async def test_the_number_of_cached_denials_is_bounded(server: Valkey) -> None:
    """The oldest is dropped first; with a size of 0 there is no subscription and no cached denial."""
    for size in (3, 0):
        catalogue = Catalogue("bounded")
        rule = fixed_window("bounded", 1, per=DAY)
        limits = RateLimits(catalogue, new_subject(), rule, cached_denials=size)
        async with connect(server.url, catalogue) as store:
            limiter = store[limits]
            claims = [rule.on(number) for number in range(5)]
            for claim in claims:
                await _fill(limiter, claim)
                if size:
                    await _until_cached(limiter, claim)
            assert list(limiter._denials.by_claim) == [claim.id for claim in claims[5 - size :]]
            assert (await limiter.check(claims[0])).source == "server"
            assert (limiter._denials._task is None) == (size == 0)


@pytest.mark.parametrize("for_us", [True, False])
async def test_an_announcement_that_overtakes_a_denial_counts(server: Valkey, for_us: bool) -> None:
    """A denial sent before its room was announced, and received after, is not cached; others are."""
    async with connect(server.url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], WINDOW.on(new_subject())
        await _fill(limiter, claim)
        await _until_cached(limiter, claim)
        limiter._denials.drop([claim.id])
        pending = asyncio.create_task(limiter.check(claim))
        await asyncio.sleep(0)
        limiter._denials.drop([claim.id if for_us else "another claim"])
        assert (await pending).source == "server"
        assert (claim.id in limiter._denials.by_claim) is not for_us


@pytest.mark.standalone("it cuts the connections of one server")
async def test_a_process_that_may_have_missed_an_announcement_drops_all(server: Valkey) -> None:
    """When the pub/sub connection is lost, cached denials are dropped."""
    catalogue = Catalogue("gap")
    rule = sliding_window("gap", 1, per=DAY)
    limits = RateLimits(catalogue, new_subject(), rule)
    async with connect(server.url, catalogue) as store:
        limiter, claim = store[limits], rule.on(new_subject())
        await _fill(limiter, claim)
        await _until_cached(limiter, claim)
        await store.call("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: claim.id not in limiter._denials.by_claim)
        await _until_cached(limiter, claim)


async def test_an_announcement_that_is_not_text_is_skipped(server: Valkey) -> None:
    """Bytes that name no claim are skipped, and later announcements still count."""
    async with connect(server.url, CATALOGUE) as store, connect(server.url, CATALOGUE) as other:
        limiter, claim = store[LIMITS], WINDOW.on(new_subject())
        taken = await _fill(limiter, claim)
        await _until_cached(limiter, claim)
        before = limiter._denials.version
        await other.call("PUBLISH", limiter._denials._channel, b"\xff\xfe")
        await eventually(lambda: limiter._denials.version > before)
        async with asyncio.timeout(60):
            await _until_cached(limiter, claim)
        assert await other[LIMITS].refund(taken)
        await eventually(lambda: claim.id not in limiter._denials.by_claim)
        assert (await limiter.check(claim)).allowed


async def test_without_the_right_to_subscribe_denials_are_not_cached(
    server: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """Without access to the channel every denial comes from the server, and the log says why, once."""
    server.ask("ACL", "SETUSER", "limited-deaf", "on", ">secret", "~*", "resetchannels", "+@all")
    url = f"redis://limited-deaf:secret@127.0.0.1:{server.port}"
    async with connect(url, CATALOGUE) as store:
        limiter, claim = store[LIMITS], WINDOW.on(new_subject())
        await _fill(limiter, claim)
        for _ in range(20):
            assert (await limiter.check(claim)).source == "server"
            await asyncio.sleep(0.001)
    assert [record.getMessage()[:23] for record in caplog.records] == ["denials are not cached:"]
