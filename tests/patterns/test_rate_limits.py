"""Checks: all or none, by each algorithm, on one server and on a cluster; and the content of a decision."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ephemera import sync
from ephemera.embedded import Cluster, Valkey
from ephemera.errors import InvalidClaim, ServerError, UndeclaredKeyspace, WrongFields
from ephemera.keyspace import Catalogue, Store, connect
from ephemera.patterns.rate_limits import BoundRateLimits, Claim, RateLimits, Rule, fixed_window
from ephemera.wire import key_slot
from tests.patterns.limit_fixtures import (
    CATALOGUE,
    CROWD,
    DAY,
    KINDS,
    LIMITS,
    LOG,
    ORG,
    ORG_LOG,
    WINDOW,
    new_subject,
)
from tests.untyped import untyped

kinds = pytest.mark.parametrize("rule", KINDS, ids=lambda rule: rule.name)


@pytest.fixture(params=["server", "cluster", "redis7"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store on one server, on a cluster, and on Redis 7 where it is installed."""
    async with connect(request.getfixturevalue(request.param).url, CATALOGUE) as opened:
        yield opened


@pytest.fixture
def limiter(store: Store) -> BoundRateLimits:
    """The limits on it."""
    return store[LIMITS]


@kinds
async def test_a_limit_is_admitted_exactly(limiter: BoundRateLimits, rule: Rule) -> None:
    """Five checks pass with one unit less each; the sixth is denied, with the rule and the time to wait."""
    claim = rule.on(new_subject())
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
async def test_a_denied_check_takes_from_none_of_its_claims(limiter: BoundRateLimits, rule: Rule) -> None:
    """When one of three subjects has no room, nothing is taken from the other two."""
    full, *others = (rule.on(new_subject()) for _ in range(3))
    for _ in range(5):
        await limiter.check(full)
    for order in ((full, *others), (*others, full)):
        denied = await limiter.check(*order)
        assert [outcome.claim.id for outcome in denied.violated] == [full.id]
    assert [(await limiter.peek(other)).remaining for other in others] == [5, 5]


async def test_rules_of_every_kind_are_taken_together(limiter: BoundRateLimits) -> None:
    """One check over three algorithms and three subjects takes a unit of each, and reports on each."""
    claims = [rule.on(new_subject()) for rule in KINDS]
    decision = await limiter.check(*claims)
    assert decision.allowed
    found = {outcome.rule: (outcome.limit, outcome.remaining) for outcome in decision.outcomes}
    assert found == {rule.name: (5, 4) for rule in KINDS}
    for claim in claims:
        assert (await limiter.peek(claim)).remaining == 4


@kinds
async def test_a_cost_is_taken_as_a_whole_or_not_at_all(limiter: BoundRateLimits, rule: Rule) -> None:
    """Three of five units fit once; then two are left, which a smaller cost may still take."""
    claim = rule.on(new_subject())
    assert (await limiter.check(claim, cost=3)).remaining == 2
    denied = await limiter.check(claim, cost=3)
    assert not denied.allowed
    assert denied.remaining == 2
    assert (await limiter.check(claim, cost=2)).remaining == 0


@kinds
async def test_a_cost_above_the_limit_never_passes(limiter: BoundRateLimits, rule: Rule) -> None:
    """A cost of six units at a limit of five is denied with `retry_after` None."""
    denied = await limiter.check(rule.on(new_subject()), cost=6)
    assert not denied.allowed
    assert denied.retry_after is None


async def test_a_claim_may_have_a_cost_of_its_own(limiter: BoundRateLimits) -> None:
    """A claim with its own cost ignores the cost of the check."""
    user, organization = WINDOW.on(new_subject()), LOG.on(new_subject())
    decision = await limiter.check(user, organization.with_cost(4))
    assert {outcome.rule: outcome.remaining for outcome in decision.outcomes} == {"window": 4, "log": 1}
    decision = await limiter.check(user, LOG.on(new_subject()).with_cost(2), cost=3)
    assert {outcome.rule: outcome.remaining for outcome in decision.outcomes} == {"window": 1, "log": 3}


@kinds
async def test_a_peek_takes_nothing(limiter: BoundRateLimits, rule: Rule) -> None:
    """`peek` reports whether a check would pass and what is left, any number of times."""
    claim = rule.on(new_subject())
    await limiter.check(claim, cost=4)
    for _ in range(3):
        seen = await limiter.peek(claim)
        assert seen.allowed
        assert seen.remaining == 1
    seen = await limiter.peek(claim, WINDOW.on(new_subject()), cost=2)
    assert not seen.allowed
    assert [outcome.rule for outcome in seen.violated] == [rule.name]


async def test_the_log_of_a_crowded_window_stays_small(store: Store) -> None:
    """Six hundred units in a second are counted exactly, in at most 61 entries of 12 bytes."""
    limiter, claim = store[LIMITS], CROWD.on(new_subject())
    passed = 0
    while (await limiter.check(claim)).allowed:
        passed += 1
    assert passed >= 600
    assert await store.call("STRLEN", claim.key) <= 6 + 61 * 12


async def test_a_reset_clears_what_was_used(limiter: BoundRateLimits) -> None:
    """The whole limit is available again at once, even for a subject with a cached denial."""
    for rule in KINDS:
        claim = rule.on(new_subject())
        await limiter.check(claim, cost=5)
        assert not (await limiter.check(claim)).allowed
        await limiter.reset(claim)
        assert (await limiter.check(claim)).remaining == 4


async def test_claims_with_a_common_tag_share_a_slot(limiter: BoundRateLimits) -> None:
    """Rules with the organization as hash tag share a slot, so a check over them is atomic on a cluster."""
    organization = new_subject()
    claims = ORG.on(organization), ORG_LOG.on(organization)
    assert (await limiter.check(*claims)).allowed
    assert len({key_slot(claim.key) for claim in claims}) == 1


async def test_a_check_over_several_slots_is_all_or_nothing(cluster: Cluster) -> None:
    """Of claims in two slots a peek takes nothing, a check from both, and a denial gives back its units."""
    async with connect(cluster.url, CATALOGUE) as store:
        limiter, first = store[LIMITS], WINDOW.on(new_subject())
        second = next(
            each for each in iter(lambda: LOG.on(new_subject()), None) if _use_different_slots(first, each)
        )
        assert (await limiter.peek(first, second, cost=2)).remaining == 5
        assert (await limiter.check(first, second, cost=2)).remaining == 3
        assert (await limiter.check(second, cost=3)).remaining == 0
        assert not (await limiter.peek(first, second)).allowed
        assert not (await limiter.check(first, second)).allowed
        assert [(await limiter.peek(each)).remaining for each in (first, second)] == [3, 0]


def _use_different_slots(first: Claim, second: Claim) -> bool:
    return key_slot(first.key) != key_slot(second.key)


async def test_invalid_checks_are_refused(limiter: BoundRateLimits) -> None:
    """Each error names the rule and what to do."""
    claim = WINDOW.on(new_subject())
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
            await limiter.check(claim, LOG.on("u"), cost=untyped(cost))
        with pytest.raises(InvalidClaim, match="window: it cannot cost"):
            claim.with_cost(untyped(cost))
    with pytest.raises(WrongFields, match="takes subject; given a, b"):
        WINDOW.on("a", "b")
    assert (await limiter.peek(claim)).remaining == 5


async def test_an_undeclared_rule_has_no_claims() -> None:
    """A rule has keys only once a `RateLimits` declares it."""
    with pytest.raises(InvalidClaim, match=r"stray: no RateLimits declares this rule"):
        fixed_window("stray", 5, per=DAY).on("u")


async def test_limits_need_a_store_that_has_their_catalogue(server: Valkey) -> None:
    """A store without the catalogue refuses the limits."""
    async with connect(server.url, Catalogue("other")) as other:
        with pytest.raises(UndeclaredKeyspace, match="'limited:freed' belongs to the catalogue 'limited'"):
            other[LIMITS]


async def test_a_key_of_another_type_is_replaced(store: Store) -> None:
    """A foreign value under the key is replaced, and garbage counts as nothing."""
    limiter = store[LIMITS]
    for rule in KINDS:
        claim = rule.on(new_subject())
        await limiter.check(claim)
        await store.call("UNLINK", claim.key)
        await store.call("LPUSH", claim.key, "x")
        decision = await limiter.check(claim)
        assert decision.remaining == 4
        await store.call("UNLINK", claim.key)
        await store.call("LPUSH", claim.key, "x")
        await limiter.refund(decision)
        assert (await limiter.check(claim)).allowed
        for garbage in ("not a number", "", "\x00" * 30):
            await store.call("SET", claim.key, garbage)
            assert (await limiter.check(claim)).outcomes


async def test_an_error_that_is_not_an_outage_is_raised(server: Valkey) -> None:
    """A missing right to run scripts is an error, and no policy decides."""
    server.ask(
        "ACL", "SETUSER", "limited-no-scripts", "on", ">secret", "~*", "&*", "+@all", "-evalsha", "-eval"
    )
    url = f"redis://limited-no-scripts:secret@127.0.0.1:{server.port}"
    async with connect(url, CATALOGUE) as store:
        with pytest.raises(ServerError, match="NOPERM"):
            await store[LIMITS].check(WINDOW.on(new_subject()))


def test_synchronous_code_checks_limits(server: Valkey) -> None:
    """A synchronous store runs every operation of the limits, cached denials too."""
    claim = WINDOW.on(new_subject())
    with sync.connect(server.url, CATALOGUE) as store:
        limiter = store[LIMITS]
        assert limiter.check(claim, cost=5).remaining == 0
        while limiter.check(claim).source != "memory":
            pass
        limiter.reset(claim)
        assert limiter.check(claim).remaining == 4
