"""Checks: all or none, by each algorithm, on one server and on a cluster; and what a decision says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ephemera import sync
from ephemera.embedded import Valkey
from ephemera.errors import InvalidClaim, ServerError, UndeclaredKeyspace, WrongFields
from ephemera.keyspace import Catalogue, Store, connect
from ephemera.patterns.rate_limits import Limiter, RateLimits, Rule, fixed_window
from ephemera.wire import key_slot
from tests.patterns.limited import (
    CATALOGUE,
    CROWD,
    DAY,
    KINDS,
    LIMITS,
    LOG,
    ORG,
    ORG_LOG,
    WINDOW,
    somebody,
)

kinds = pytest.mark.parametrize("rule", KINDS, ids=lambda rule: rule.name)


@pytest.fixture(params=["server", "cluster", "redis7"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store on one server, on a cluster, and on Redis 7 where it is installed."""
    async with connect(request.getfixturevalue(request.param).url, CATALOGUE) as opened:
        yield opened


@pytest.fixture
def limiter(store: Store) -> Limiter:
    """The limits on it."""
    return store[LIMITS]


@kinds
async def test_a_limit_is_admitted_to_its_last_unit_and_no_further(limiter: Limiter, rule: Rule) -> None:
    """Five checks pass with one unit less each, and the sixth does not, saying who, why and for how long."""
    claim = rule.on(somebody())
    passed = [await limiter.check(claim) for _ in range(5)]
    assert [decision.allowed for decision in passed] == [True] * 5
    assert [decision.remaining for decision in passed] == [4, 3, 2, 1, 0]
    assert all(decision.retry_after == 0 and not decision.violated for decision in passed)

    denied = await limiter.check(claim)
    assert not denied.allowed
    assert not denied.degraded
    assert denied.remaining == 0
    (violated,) = denied.violated
    assert (violated.rule, violated.limit, violated.claim) == (rule.name, 5, claim)
    assert denied.retry_after is not None
    assert denied.reset is not None
    assert 0 < denied.retry_after <= denied.reset + 0.01 <= 86_400.1


@kinds
async def test_a_denied_check_takes_from_none_of_its_claims(limiter: Limiter, rule: Rule) -> None:
    """When one of three subjects has no room, the two others keep all of theirs."""
    full, *others = (rule.on(somebody()) for _ in range(3))
    for _ in range(5):
        await limiter.check(full)
    for order in ((full, *others), (*others, full)):
        denied = await limiter.check(*order)
        assert [outcome.claim.id for outcome in denied.violated] == [full.id]
    assert [(await limiter.peek(other)).remaining for other in others] == [5, 5]


async def test_rules_of_every_kind_are_taken_together(limiter: Limiter) -> None:
    """One check over three algorithms and three subjects takes a unit of each, and reports on each."""
    claims = [rule.on(somebody()) for rule in KINDS]
    decision = await limiter.check(*claims)
    assert decision.allowed
    found = {outcome.rule: (outcome.limit, outcome.remaining) for outcome in decision.outcomes}
    assert found == {rule.name: (5, 4) for rule in KINDS}
    for claim in claims:
        assert (await limiter.peek(claim)).remaining == 4


@kinds
async def test_a_cost_is_taken_as_a_whole_or_not_at_all(limiter: Limiter, rule: Rule) -> None:
    """Three of five units fit once; the second time two are left, which a smaller cost may still have."""
    claim = rule.on(somebody())
    assert (await limiter.check(claim, cost=3)).remaining == 2
    denied = await limiter.check(claim, cost=3)
    assert not denied.allowed
    assert denied.remaining == 2
    assert (await limiter.check(claim, cost=2)).remaining == 0


@kinds
async def test_a_cost_above_the_limit_never_passes_and_says_so(limiter: Limiter, rule: Rule) -> None:
    """Six units of five have no moment at which they fit."""
    denied = await limiter.check(rule.on(somebody()), cost=6)
    assert not denied.allowed
    assert denied.retry_after is None


async def test_a_claim_may_have_a_cost_of_its_own(limiter: Limiter) -> None:
    """A request counts once for its user and by its tokens for its organization."""
    user, organization = WINDOW.on(somebody()), LOG.on(somebody())
    decision = await limiter.check(user, organization.costing(4))
    assert {outcome.rule: outcome.remaining for outcome in decision.outcomes} == {"window": 4, "log": 1}
    decision = await limiter.check(user, LOG.on(somebody()).costing(2), cost=3)
    assert {outcome.rule: outcome.remaining for outcome in decision.outcomes} == {"window": 1, "log": 3}


@kinds
async def test_a_peek_takes_nothing(limiter: Limiter, rule: Rule) -> None:
    """Looking says whether a check would pass, and what is left, any number of times."""
    claim = rule.on(somebody())
    await limiter.check(claim, cost=4)
    for _ in range(3):
        seen = await limiter.peek(claim)
        assert seen.allowed
        assert seen.remaining == 1
    seen = await limiter.peek(claim, WINDOW.on(somebody()), cost=2)
    assert not seen.allowed
    assert [outcome.rule for outcome in seen.violated] == [rule.name]


async def test_the_log_of_a_crowded_window_stays_small(store: Store) -> None:
    """Six hundred units in a second are counted exactly, in at most 61 places of 12 bytes."""
    limiter, claim = store[LIMITS], CROWD.on(somebody())
    passed = 0
    while (await limiter.check(claim)).allowed:
        passed += 1
    assert passed >= 600
    assert await store.call("STRLEN", claim.key) <= 6 + 61 * 12


async def test_a_reset_forgets_what_was_used(limiter: Limiter) -> None:
    """All of the limit is there again at once, also for whoever is denied by memory."""
    for rule in KINDS:
        claim = rule.on(somebody())
        await limiter.check(claim, cost=5)
        assert not (await limiter.check(claim)).allowed
        await limiter.reset(claim)
        assert (await limiter.check(claim)).remaining == 4


async def test_claims_with_a_common_tag_share_a_slot(limiter: Limiter) -> None:
    """Rules tagged by the organization are one slot's, so a check over them is atomic on a cluster, too."""
    organization = somebody()
    claims = ORG.on(organization), ORG_LOG.on(organization)
    assert (await limiter.check(*claims)).allowed
    assert len({key_slot(claim.key) for claim in claims}) == 1


async def test_what_no_check_can_mean_is_refused(limiter: Limiter) -> None:
    """Each refusal names the rule and what to do."""
    claim = WINDOW.on(somebody())
    elsewhere = fixed_window("elsewhere", 5, per=DAY)
    RateLimits(Catalogue("elsewhere"), "elsewhere", elsewhere)
    with pytest.raises(InvalidClaim, match="nothing was claimed"):
        await limiter.check()
    with pytest.raises(InvalidClaim, match="window: a subject is claimed twice"):
        await limiter.check(claim, WINDOW.on(*claim.subject))
    with pytest.raises(InvalidClaim, match="elsewhere: it is not declared by these limits"):
        await limiter.check(elsewhere.on("u"))
    for cost in (0, -1, 1.5, "1"):
        with pytest.raises(InvalidClaim, match="cannot cost"):
            await limiter.check(claim, LOG.on("u"), cost=cost)  # type: ignore[arg-type]
        with pytest.raises(InvalidClaim, match="window: it cannot cost"):
            claim.costing(cost)  # type: ignore[arg-type]
    with pytest.raises(WrongFields, match="takes subject; given a, b"):
        WINDOW.on("a", "b")
    assert (await limiter.peek(claim)).remaining == 5


async def test_a_rule_that_nobody_declares_has_no_claims() -> None:
    """A rule needs the keys that only a declaration gives it."""
    with pytest.raises(InvalidClaim, match=r"stray: no RateLimits declares this rule"):
        fixed_window("stray", 5, per=DAY).on("u")


async def test_limits_need_a_store_that_has_their_catalogue(server: Valkey) -> None:
    """Their keys would be unknown to everything that is made from a catalogue."""
    async with connect(server.url, Catalogue("other")) as other:
        with pytest.raises(UndeclaredKeyspace, match="'limited:freed' belongs to the catalogue 'limited'"):
            other[LIMITS]


async def test_a_key_of_another_type_is_replaced(store: Store) -> None:
    """Whatever else wrote under our key, counting goes on from nothing; garbage counts as nothing, too."""
    limiter = store[LIMITS]
    for rule in KINDS:
        claim = rule.on(somebody())
        await limiter.check(claim)
        await store.call("UNLINK", claim.key)
        await store.call("LPUSH", claim.key, "x")
        assert (await limiter.check(claim)).remaining == 4
        for garbage in ("not a number", "", "\x00" * 30):
            await store.call("SET", claim.key, garbage)
            assert (await limiter.check(claim)).outcomes


async def test_an_error_that_is_no_outage_is_raised(server: Valkey) -> None:
    """A user who may not run scripts is told so, and not let in by a policy."""
    server.ask("ACL", "SETUSER", "limited-nobody", "on", ">secret", "~*", "&*", "+@all", "-evalsha", "-eval")
    url = server.url.replace("redis://", "redis://limited-nobody:secret@")
    async with connect(url, CATALOGUE) as store:
        with pytest.raises(ServerError, match="NOPERM"):
            await store[LIMITS].check(WINDOW.on(somebody()))


def test_code_that_does_not_await_checks_by_waiting(server: Valkey) -> None:
    """A blocking store runs every operation of the limits, remembered denials too."""
    claim = WINDOW.on(somebody())
    with sync.connect(server.url, CATALOGUE) as store:
        limiter = store.aio[LIMITS]
        assert store.wait(limiter.check(claim, cost=5)).remaining == 0
        while store.wait(limiter.check(claim)).source != "memory":
            pass
        store.wait(limiter.reset(claim))
        assert store.wait(limiter.check(claim)).remaining == 4
