"""Who is being throttled, by which rule, and how anybody's limits stand; and making room again.

The limiters list whom they deny (`patterns.rate_limits.noting`). What is listed is asked for again with the
pattern's own `peek`, which takes nothing, so whoever has room meanwhile is left out: two trips for each
declaration, however many keys there are. With Redis down every call raises `ConnectionFailed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ephemera.errors import EphemeraError
from ephemera.keyspace import Store
from ephemera.patterns.rate_limits import Claim, Outcome, RateLimits
from ephemera.patterns.rate_limits import _denial_log as noting


class Standing(msgspec.Struct, frozen=True):
    """How one rule stands for one subject."""

    rule: str
    subject: tuple[str, ...]
    limit: int
    tier: str
    """Empty where a rule has none, or where the limit was none of the declared."""
    cost: int
    """Units that were asked for."""
    remaining: int
    retry_after: float | None
    """Seconds until there is room for that: 0 when there is, None for never."""
    reset: float
    """Seconds until all of it is free again."""

    @property
    def named(self) -> str:
        """The subject as a person reads it: bytes that are no text, which a page cannot show, are escaped."""
        return ", ".join(self.subject).encode("utf-8", "backslashreplace").decode() or "everybody"

    @property
    def throttled(self) -> bool:
        """Whether there is no room."""
        return self.retry_after != 0


async def throttled(store: Store, limits: RateLimits, most: int = 200) -> list[Standing]:
    """Those who were denied and would be again now, the one who waits longest first."""
    client = store.client(limits.role)
    listed: list[bytes] = await client.call(
        "ZRANGE", limits.denied.key(), "+inf", "-inf", "BYSCORE", "REV", "LIMIT", 0, most
    )
    claims: dict[str, Claim] = {}
    for text in listed:
        if (claim := _claim(limits, text)) is not None:
            claims.setdefault(claim.id, claim)
    if not claims:
        return []
    decision = await store[limits].peek(*claims.values())
    return [_standing(outcome) for outcome in decision.outcomes if outcome.violated]


async def standing(store: Store, limits: RateLimits, rule: str, subject: Sequence[str]) -> list[Standing]:
    """How a rule stands for a subject, at each of its declared limits."""
    declared = limits[rule]
    found: list[Standing] = []
    for tier in declared.tiers:
        decision = await store[limits].peek(declared[tier].on(*subject))
        found += map(_standing, decision.outcomes)
    return found


async def reset(store: Store, limits: RateLimits, rule: str, subject: Iterable[str]) -> None:
    """Forget what a subject has used of a rule; every process hears of it."""
    declared = limits[rule]
    await store[limits].reset(declared[next(iter(declared.tiers))].on(*subject))


def _claim(limits: RateLimits, text: bytes) -> Claim | None:
    """The claim that was denied; None for a rule that is no more, or has other subjects now."""
    denied = noting.read(text)
    if denied is None or denied.rule not in limits.rules:
        return None
    try:
        return limits[denied.rule].at(denied.limit).on(*denied.subject).costing(denied.cost)
    except EphemeraError:
        return None


def _standing(outcome: Outcome) -> Standing:
    claim = outcome.claim
    tier = next((name for name, limit in claim.rule.tiers.items() if limit == outcome.limit), "")
    return Standing(
        rule=outcome.rule,
        subject=tuple(map(str, claim.subject)),
        limit=outcome.limit,
        tier=tier,
        cost=claim.cost or 1,
        remaining=outcome.remaining,
        retry_after=outcome.retry_after if outcome.violated else 0,
        reset=outcome.reset,
    )
