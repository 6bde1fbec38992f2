"""The limits of a store: check, peek, reserve, settle, refund, reset.

One check is one run of one script on a standalone server. The keys of fixed windows name the window, and all
keys must be given to the script, so this process estimates the server's time; the script compares, takes
nothing when the window is another one, and returns its time. Such a check takes two round trips: the first
one of a process whose clock is wrong, and those that cross a window boundary in transit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from ephemera._bounded_cache import BoundedCache
from ephemera.errors import ConnectionFailed, InvalidClaim, ServerError
from ephemera.keyspace import Store, is_outage
from ephemera.patterns.rate_limits._claims import (
    TAKE,
    Claim,
    JointClaim,
    WindowClock,
    check_claims,
    check_cost,
    keys_and_arguments,
    roll_window,
)
from ephemera.patterns.rate_limits._decision import Decision, LocalShares, usage
from ephemera.patterns.rate_limits._denials import DenialCache, DenialLog, RuleCounts
from ephemera.patterns.rate_limits._rules import NO_TIER, Limit, Rule, WhenDown
from ephemera.patterns.rate_limits._slots import ClusterChecks, Corrections

if TYPE_CHECKING:
    from ephemera.patterns.rate_limits._declaration import RateLimits

_JOINT_CACHED = 2048


class CostReservation:
    """An estimated cost that was taken, until the block of `reserve` ends."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.cost: int | None = None
        """The real cost, once it is known."""

    @property
    def allowed(self) -> bool:
        """Whether there was room; when not, nothing was taken."""
        return self.decision.allowed

    def settle(self, cost: int) -> None:
        """Set the real cost; 0 when nothing was used. Without it, the estimate stands."""
        if cost:
            check_cost(cost, "reservation")
        self.cost = cost


class BoundRateLimits:
    """The limits of one store, and their counts since it was opened: what `store[LIMITS]` gives."""

    def __init__(self, limits: RateLimits, store: Store) -> None:
        client = store.client(limits.role)
        channel = limits.channel.key()
        self.allowed = 0
        self.denied = 0
        self.degraded = 0
        """Decisions by policy, while the server was down; not among the above."""
        self.by_rule = {rule: RuleCounts() for rule in limits.rules.values()}
        """A check of several rules counts for each that allowed it, or for each that had no room."""
        self._limits = limits
        self._run, self._send = client.run, client.send
        self._clock = WindowClock()
        self._denials = DenialCache(client, channel, limits.cached_denials, self.by_rule)
        self._denied_claims, self._denied_checks = self._denials.by_claim, self._denials.by_check
        self._denial_log = DenialLog(client, limits.denied)
        self._joint: BoundedCache[tuple[Claim, ...], JointClaim] = BoundedCache(_JOINT_CACHED)
        self._changed: dict[tuple[Rule, str], Limit] = {}
        self._shares = LocalShares()
        self._corrections = Corrections(client, self._denials, channel)
        self._cluster = (
            ClusterChecks(client, self._clock, self._corrections, self._by_policy)
            if client.is_cluster
            else None
        )
        store.before_close(self._denials.aclose)
        store.before_close(self._denial_log.aclose)

    @property
    def remembered(self) -> int:
        """Denials by the cache of this process, without the server; not among `denied`."""
        return sum(counts.remembered for counts in self.by_rule.values())

    async def check(self, *claims: Claim, cost: int = 1, when_down: WhenDown | None = None) -> Decision:
        """Take the cost from every claim if all have room, otherwise from none; at most one round trip.

        `when_down` overrides the policies of the rules for this call.
        """
        if self._denied_claims:
            denial = self._denied_checks.get(claims)
            if denial is not None and cost == 1 and denial.until > monotonic():
                denial.counts.remembered += 1
                return denial.decision
        if self._changed:
            claims = self._with_changed_limits(claims)
        if self._denied_claims and (known := self._denials.find(claims, cost)) is not None:
            return known

        single = len(claims) == 1
        joint = claims[0] if single else self._joint.get(claims)
        try:
            if (
                cost != 1
                or joint is None
                or (single and (joint.__class__ is not Claim or joint.limits is not self._limits))
            ):
                return await self._check_any(claims, cost, when_down)
            version, sent = self._denials.version, monotonic()
            now = sent * 1000 + self._clock.offset
            starts, ends, keys, prepared = joint._current
            if not starts <= now < ends:
                roll_window(joint, now)
                _, _, keys, prepared = joint._current
            reply = await self._send(prepared)
            if reply.__class__ is bytes:
                self._count_allowed(claims)
                return Decision(True, claims, keys, cost, reply, sent, True)
            if reply[0] >= 0:
                return self._deny(Decision(False, claims, keys, cost, reply, monotonic()), version)
            self._clock.synchronize(reply[1])
            return await self._check_any(claims, cost, when_down, attempt=1)
        except (ConnectionFailed, ServerError) as problem:
            return self._by_policy(claims, cost, when_down, problem)

    async def peek(self, *claims: Claim, cost: int = 1) -> Decision:
        """The state of these claims, and whether `check` would pass; nothing is taken.

        `cost` is in units of the limits.
        """
        self._validate(claims, cost)
        claims = self._with_changed_limits(claims)
        if self._cluster is not None:
            return await self._cluster.peek(claims, cost)
        reply, keys = await self._ask(claims, cost, "p")
        return Decision(reply[0] == 1, claims, keys, cost, reply, monotonic())

    @asynccontextmanager
    async def reserve(
        self, *claims: Claim, cost: int, when_down: WhenDown | None = None
    ) -> AsyncIterator[CostReservation]:
        """Take an estimated cost now, and settle the real one when the block ends; an error gives it back.

        `when_down` overrides the policies of the rules for this call.
        """
        reservation = CostReservation(await self.check(*claims, cost=cost, when_down=when_down))
        try:
            yield reservation
        except BaseException:
            await self.settle(reservation.decision, reservation.cost or 0)
            raise
        if reservation.cost is not None:
            await self.settle(reservation.decision, reservation.cost)

    async def settle(self, decision: Decision, cost: int) -> bool:
        """Replace the cost of a decision with the real one, even above the limit.

        Claims with a cost of their own keep it, except that a cost of 0 gives everything back. False when
        there was nothing to settle, or the server is down.
        """
        return await self._corrections.settle(decision, cost)

    async def refund(self, decision: Decision) -> bool:
        """Give back all that a decision took; False when it took nothing, or the server is down."""
        return await self._corrections.refund(decision)

    async def reset(self, *claims: Claim) -> None:
        """Clear what these claims have used."""
        self._validate(claims, 1)
        for claim in claims:
            while True:
                self._clock.roll_windows(claims)
                reply = await self._corrections.reset(claim)
                if reply[0] > 0:
                    break
                self._clock.synchronize(reply[1])
            await self._denial_log.remove(claim)

    def set_limit(self, rule: Rule, limit: int, *, tier: str = NO_TIER) -> None:
        """Change a declared limit for this store, in this process; the next check uses it.

        Used units stay used. Limits given by `rule.at(...)` are not affected.

        `tier` names which one, for a rule with tiers.
        """
        self._check_declared(rule)
        rule[tier]  # raises for an unknown tier
        self._changed[rule, tier] = Limit(rule, limit, tier)
        self._denials.drop_all()  # those by the old limit, which `check` would find first

    def limits_of(self, rule: Rule) -> dict[str, int]:
        """The current limits of a rule by tier; of a rule without tiers, under an empty name."""
        changed = {tier: limit.limit for (each, tier), limit in self._changed.items() if each is rule}
        return rule.tiers | changed

    async def _check_any(
        self, claims: tuple[Claim, ...], cost: int, when_down: WhenDown | None, attempt: int = 0
    ) -> Decision:
        """Check claims that are not prepared: at another cost than 1, new together, or over several slots."""
        self._validate(claims, cost)
        version, sent = self._denials.version, monotonic()
        if self._cluster is not None and len(claims) > 1:
            decision = await self._cluster.check(claims, cost, when_down)
            if decision.degraded:
                return decision
        else:
            if cost == 1 and len(claims) > 1:
                self._joint[claims] = JointClaim(claims)
            reply, keys = await self._ask(claims, cost, "t", attempt)
            taken = isinstance(reply, bytes)
            decision = Decision(taken, claims, keys, cost, reply, sent if taken else monotonic(), taken)
        if decision.allowed:
            self._count_allowed(claims)
            return decision
        return self._deny(decision, version)

    async def _ask(
        self, claims: Sequence[Claim], cost: int, mode: Literal["t", "p"], attempt: int = 0
    ) -> tuple[Any, tuple[str, ...]]:
        """The script's reply and the keys that it concerns."""
        while True:
            self._clock.roll_windows(claims)
            keys, arguments = keys_and_arguments(claims, cost, mode, attempt)
            reply = await self._run(TAKE, keys, arguments)
            if reply.__class__ is bytes or reply[0] >= 0:
                return reply, keys
            self._clock.synchronize(reply[1])
            attempt += 1

    def _count_allowed(self, claims: Sequence[Claim]) -> None:
        self.allowed += 1
        for claim in claims:
            self.by_rule[claim.rule].allowed += 1

    def _deny(self, decision: Decision, version: int) -> Decision:
        """Count and log a denial, and cache it, unless room was announced since the check was sent."""
        self.denied += 1
        for claim, (_, wait, _) in zip(decision.claims, usage(decision._reply), strict=True):
            if wait:
                self.by_rule[claim.rule].denied += 1
                self._denial_log.add(claim, claim.cost or decision.cost, decision.now, wait)
        self._denials.add(decision, version)
        return decision

    def _by_policy(
        self, claims: Sequence[Claim], cost: int, when_down: WhenDown | None, problem: Exception
    ) -> Decision:
        """Decide by the rules' policies; an error that is not an outage is raised."""
        if not is_outage(problem):
            raise problem
        self.degraded += 1
        for claim in claims:
            self.by_rule[claim.rule].degraded += 1
        return self._shares.decide(claims, cost, when_down)

    def _with_changed_limits(self, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        check_claims(claims)
        return tuple(map(self._with_changed_limit, claims))

    def _with_changed_limit(self, claim: Claim) -> Claim:
        limit = None if claim.tier is None else self._changed.get((claim.rule, claim.tier))
        if limit is None:
            return claim
        changed = limit.on(*claim.subject)
        return changed if claim.cost is None else changed.with_cost(claim.cost)

    def _validate(self, claims: tuple[Claim, ...], cost: int) -> None:
        """Raise for claims that no check can take."""
        check_claims(claims)
        if cost != 1:
            check_cost(cost)
        if not claims:
            raise InvalidClaim("check", "nothing was claimed", "give at least one claim: rule.on(subject)")
        for claim in claims:
            self._check_declared(claim.rule)
        ids = [claim.id for claim in claims]
        if len(set(ids)) < len(ids):
            twice = next(claim for claim in claims if ids.count(claim.id) > 1)
            raise InvalidClaim(
                twice.rule.name, "a subject is claimed twice", "claim it once, at the whole cost"
            )

    def _check_declared(self, rule: Rule) -> None:
        if rule.limits is not self._limits:
            raise InvalidClaim(
                rule.name,
                "it is not declared by these limits",
                "check it with the limits that declare it: store[LIMITS]",
            )
