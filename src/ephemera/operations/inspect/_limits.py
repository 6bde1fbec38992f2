"""Throttled subjects, the state of a subject's limits, and resetting them.

Rate limits log the subjects that they deny. Those are checked again with `peek`, which consumes nothing, so
subjects that are no longer throttled are left out: two round trips per declaration, however many keys there
are. When Redis is down, every call raises `ConnectionFailed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ephemera.errors import EphemeraError
from ephemera.keyspace import Store
from ephemera.patterns.rate_limits import Claim, DeniedClaim, Outcome, RateLimits


class LimitStatus(msgspec.Struct, frozen=True):
    """The state of one rule for one subject."""

    rule: str
    subject: tuple[str, ...]
    limit: int
    tier: str
    """Empty when the rule has no tiers, or the limit is not one of those declared."""
    cost: int
    """Units that were requested."""
    remaining: int
    retry_after: float | None
    """Seconds until that would be allowed: 0 for now, None for never."""
    reset: float
    """Seconds until the whole limit is available again."""

    @property
    def subject_text(self) -> str:
        """The subject as text; bytes that are not UTF-8 are escaped."""
        return ", ".join(self.subject).encode("utf-8", "backslashreplace").decode() or "everyone"

    @property
    def is_throttled(self) -> bool:
        """Whether the request would be denied now."""
        return self.retry_after != 0


async def throttled_subjects(store: Store, limits: RateLimits, limit: int = 200) -> list[LimitStatus]:
    """Subjects that were denied and would be denied again now, the longest wait first."""
    client = store.client(limits.role)
    listed: list[bytes] = await client.call(
        "ZRANGE", limits.denied.key(), "+inf", "-inf", "BYSCORE", "REV", "LIMIT", 0, limit
    )
    claims: dict[str, Claim] = {}
    for text in listed:
        if (claim := _claim(limits, text)) is not None:
            claims.setdefault(claim.id, claim)
    if not claims:
        return []
    decision = await store[limits].peek(*claims.values())
    tiers = store[limits].limits_of
    return [_status(each, tiers(each.claim.rule)) for each in decision.outcomes if each.violated]


async def limit_status(
    store: Store, limits: RateLimits, rule: str, subject: Sequence[str]
) -> list[LimitStatus]:
    """The state of a rule for a subject, at each of its declared limits."""
    declared = limits[rule]
    found: list[LimitStatus] = []
    for tier in declared.tiers:
        decision = await store[limits].peek(declared[tier].on(*subject))
        found += (_status(outcome, store[limits].limits_of(declared)) for outcome in decision.outcomes)
    return found


async def reset_limit(store: Store, limits: RateLimits, rule: str, subject: Iterable[str]) -> None:
    """Reset a subject's use of a rule; every process is notified."""
    declared = limits[rule]
    await store[limits].reset(declared[next(iter(declared.tiers))].on(*subject))


def _claim(limits: RateLimits, text: bytes) -> Claim | None:
    """The denied claim; None when its rule no longer exists or has other subjects now."""
    denied = DeniedClaim.decode(text)
    if denied is None or denied.rule not in limits.rules:
        return None
    try:
        return limits[denied.rule].at(denied.limit).on(*denied.subject).with_cost(denied.cost)
    except EphemeraError:
        return None


def _status(outcome: Outcome, tiers: dict[str, int]) -> LimitStatus:
    claim = outcome.claim
    tier = next((name for name, limit in tiers.items() if limit == outcome.limit), "")
    return LimitStatus(
        rule=outcome.rule,
        subject=tuple(map(str, claim.subject)),
        limit=outcome.limit,
        tier=tier,
        cost=claim.cost or 1,
        remaining=outcome.remaining,
        retry_after=outcome.retry_after if outcome.violated else 0,
        reset=outcome.reset,
    )
