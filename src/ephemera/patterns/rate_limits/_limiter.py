"""The working object of `RateLimits` on a store: check, peek, reserve, settle, refund, reset.

One check is one run of one script on a standalone server. The keys of fixed windows name the window, and all
keys must be given to the script, so this process estimates the server's time; the script compares, takes
nothing when the window is another one, and says what time it is. Such a check takes two trips: the first one
of a process whose clock is wrong, and the few that cross a window's edge on their way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Literal

from ephemera.errors import ConnectionFailed, InvalidClaim, ServerError
from ephemera.keyspace import Store, is_outage
from ephemera.patterns.rate_limits._claims import (
    TAKE,
    Claim,
    JointClaim,
    check_cost,
    plan,
    refuse_others,
    turn_all,
)
from ephemera.patterns.rate_limits._corrections import Reservation, Settling
from ephemera.patterns.rate_limits._decision import Decision, Reply
from ephemera.patterns.rate_limits._denial_log import NotedDenials
from ephemera.patterns.rate_limits._denials import Denials, RuleCounts
from ephemera.patterns.rate_limits._outage import Shares, WhenDown
from ephemera.patterns.rate_limits._slot_groups import SlotGroups
from ephemera.wire import Arg

if TYPE_CHECKING:
    from ephemera.patterns.rate_limits._declaration import RateLimits

_JOINT_KEPT = 4096  # then they are made anew


class Limiter:
    """Limits at work on one store, and what they did since it was opened."""

    def __init__(self, home: RateLimits, store: Store) -> None:
        client = store.client(home.role)
        on_cluster = client.is_cluster
        channel = home.channel.key()
        self.allowed = 0
        self.denied = 0
        self.degraded = 0  # decisions of a policy, the server being away; not among the above
        self.by_rule = {rule: RuleCounts() for rule in home.rules.values()}
        """A check of several rules counts for each that allowed it, or for each that had no room."""
        self._home = home
        self._run, self._run_prepared = client.run, client.run_prepared
        self._denials = Denials(client, channel, home.remember, self.by_rule)
        self._kept, self._exact = self._denials.kept, self._denials.exact
        self._noted = NotedDenials(client, home.denied)
        self._joint: dict[tuple[Claim, ...], JointClaim] = {}
        self._shares = Shares()
        self._slots = SlotGroups(self) if on_cluster else None
        self._offset = (time() - monotonic()) * 1000  # ms from our monotonic clock to the server's, estimated
        self.settling = Settling(client, self._denials, channel, by_slot=on_cluster)
        store.before_close(self._denials.aclose)
        store.before_close(self._noted.aclose)

    @property
    def remembered(self) -> int:
        """Denials that cost the server nothing; not among `denied`."""
        return sum(counts.remembered for counts in self.by_rule.values())

    async def check(self, *claims: Claim, cost: int = 1, when_down: WhenDown | None = None) -> Decision:
        """Take the cost from every claim if all have room, from none otherwise; one trip, or none."""
        try:
            if self._kept:
                denial = self._exact.get(claims)
                if denial is not None and cost == 1 and denial.until > monotonic():
                    denial.counts.remembered += 1
                    return denial.decision
                known = self._denials.recall(claims, cost)
                if known is not None:
                    return known

            version, sent = self._denials.version, monotonic()
            if cost != 1 or (self._slots is not None and len(claims) > 1):
                return await self._check_any(claims, cost, when_down)
            joint = claims[0] if len(claims) == 1 else self._joint.get(claims) or self._join(claims)
            if joint.home is not self._home:
                self._accept(claims, cost)
            now = sent * 1000 + self._offset
            if not joint.starts <= now < joint.ends:
                joint.turn(now)
            keys = joint.keys
            reply = await self._run_prepared(joint.taking)
            if reply.__class__ is not bytes and reply[0] < 0:
                self.learn(reply[1])
                reply, keys = await self._ask(claims, cost, "t", attempt=1)
        except (ConnectionFailed, ServerError, AttributeError) as problem:
            return self.without_server(claims, cost, when_down, problem)
        if reply.__class__ is bytes:
            self.allow(claims)
            return Decision(True, claims, keys, cost, reply, sent, True)
        return self.deny(Decision(False, claims, keys, cost, reply, monotonic()), version)

    async def peek(self, *claims: Claim, cost: int = 1) -> Decision:
        """How these claims stand, and whether `check` would pass; nothing is taken."""
        refuse_others(claims)
        self._accept(claims, cost)
        if self._slots is not None:
            return await self._slots.peek(claims, cost)
        reply, keys = await self._ask(claims, cost, "p")
        return Decision(reply[0] == 1, claims, keys, cost, reply, monotonic())

    @asynccontextmanager
    async def reserve(
        self, *claims: Claim, cost: int, when_down: WhenDown | None = None
    ) -> AsyncIterator[Reservation]:
        """Take an estimated cost now, and settle the real one when the block ends; an error gives it back."""
        reservation = Reservation(await self.check(*claims, cost=cost, when_down=when_down))
        try:
            yield reservation
        except BaseException:
            await self.settle(reservation.decision, reservation.used or 0)
            raise
        if reservation.used is not None:
            await self.settle(reservation.decision, reservation.used)

    async def settle(self, decision: Decision, cost: int) -> bool:
        """Let a decision have cost this in place of what it took, even above the limit.

        Claims with a cost of their own keep it, except that a cost of 0 gives everything back. False when
        there was nothing to settle, or the server is away.
        """
        return await self.settling.settle(decision, cost)

    async def refund(self, decision: Decision) -> bool:
        """Give back all that a decision took; False when it took nothing, or the server is away."""
        return await self.settling.refund(decision)

    async def reset(self, *claims: Claim) -> None:
        """Forget what these claims have used."""
        refuse_others(claims)
        self._accept(claims, 1)
        for claim in claims:
            while True:
                self.turn(claims)
                reply = await self.settling.reset(claim)
                if reply[0] > 0:
                    break
                self.learn(reply[1])
            await self._noted.forget(claim)

    # Checks of another cost than 1 or over several slots; what `SlotGroups` shares is public to it.

    async def _check_any(self, claims: tuple[Claim, ...], cost: int, when_down: WhenDown | None) -> Decision:
        self._accept(claims, cost)
        version, sent = self._denials.version, monotonic()
        if self._slots is not None and len(claims) > 1:
            return await self._slots.check(claims, cost, when_down, version)
        reply, keys = await self._ask(claims, cost, "t")
        if isinstance(reply, bytes):
            self.allow(claims)
            return Decision(True, claims, keys, cost, reply, sent, True)
        return self.deny(Decision(False, claims, keys, cost, reply, monotonic()), version)

    async def _ask(
        self, claims: Sequence[Claim], cost: int, mode: Literal["t", "p"], attempt: int = 0
    ) -> tuple[Any, tuple[str, ...]]:
        """The script's reply and the keys that it concerns."""
        while True:
            self.turn(claims)
            keys = tuple([claim.key for claim in claims])
            reply = await self._run(TAKE, keys, plan(claims, cost, mode, attempt))
            if reply.__class__ is bytes or reply[0] >= 0:
                return reply, keys
            self.learn(reply[1])
            attempt += 1

    async def take(self, keys: Sequence[Arg], words: Sequence[Arg]) -> Reply:
        """One run of the script."""
        reply: Reply = await self._run(TAKE, keys, words)
        return reply

    def turn(self, claims: Sequence[Claim]) -> None:
        """Bring claims on fixed windows into the server's present window, as far as we know."""
        turn_all(claims, monotonic() * 1000 + self._offset)

    def learn(self, now: int) -> None:
        """Take the server's word on the time, in milliseconds since 1970."""
        self._offset = now - monotonic() * 1000

    def allow(self, claims: Sequence[Claim]) -> None:
        """Count a check that all of its rules had room for."""
        self.allowed += 1
        for claim in claims:
            self.by_rule[claim.rule].allowed += 1

    def deny(self, decision: Decision, version: int) -> Decision:
        """Count a denial, and remember it, but for claims whose room was announced since it was asked for."""
        self.denied += 1
        for claim, (_, wait, _) in zip(decision.claims, decision.stand(), strict=True):
            if wait:
                self.by_rule[claim.rule].denied += 1
                self._noted.note(claim, claim.cost or decision.cost, decision.now, wait)
        self._denials.remember(decision, version)
        return decision

    def without_server(
        self, claims: Sequence[Claim], cost: int, when_down: WhenDown | None, problem: Exception
    ) -> Decision:
        """What the rules' policy decides; a problem that is no outage is raised."""
        if not is_outage(problem):
            refuse_others(claims)  # not before they are used: every check would pay for the look
            raise problem
        self.degraded += 1
        for claim in claims:
            self.by_rule[claim.rule].degraded += 1
        known, reply = self._shares.decide(claims, cost, when_down)
        return Decision(reply[0] == 1, tuple(known), (), cost, reply, monotonic(), source="outage")

    def _join(self, claims: tuple[Claim, ...]) -> JointClaim:
        """Claims that are checked together, kept for the next time."""
        self._accept(claims, 1)
        if len(self._joint) >= _JOINT_KEPT:
            self._joint.clear()
        joint = self._joint[claims] = JointClaim(claims)
        return joint

    def _accept(self, claims: tuple[Claim, ...], cost: int) -> None:
        """Refuse what no check can mean."""
        if cost != 1:
            check_cost(cost)
        if not claims:
            raise InvalidClaim("check", "nothing was claimed", "give at least one claim: rule.on(subject)")
        for claim in claims:
            if claim.rule.home is not self._home:
                raise InvalidClaim(
                    claim.rule.name,
                    "it is not declared by these limits",
                    "check it with the limits that declare it: store[LIMITS]",
                )
        if len({claim.id for claim in claims}) < len(claims):
            ids = [claim.id for claim in claims]
            twice = next(claim for claim in claims if ids.count(claim.id) > 1)
            raise InvalidClaim(
                twice.rule.name, "a subject is claimed twice", "claim it once, at the whole cost"
            )
