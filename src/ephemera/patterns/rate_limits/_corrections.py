"""What was taken, corrected afterwards: refunds, settlements and resets.

A correction goes to where and when the units were taken: to that window's key, to that grain of the log. What
has passed meanwhile needs none. It is made once for each decision. When the server is away it is not made,
and what was taken stays taken until its time is over: limits err towards less. A process that dies between a
reservation and its settlement leaves it so, too.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from ephemera.errors import ConnectionFailed, InvalidClaim, OutcomeUnknown, ServerError
from ephemera.keyspace import is_outage
from ephemera.patterns.rate_limits._claims import Claim, check_cost
from ephemera.patterns.rate_limits._decision import Decision
from ephemera.patterns.rate_limits._denials import Denials
from ephemera.wire import Client, Script, key_slot

RESET = Script.load("ephemera.patterns.rate_limits", "reset")
SETTLE = Script.load("ephemera.patterns.rate_limits", "settle")


class Change(NamedTuple):
    """Units to add to what a claim took from a key at a moment, in ms since 1970; below 0 to give back."""

    claim: Claim
    key: str
    units: int
    taken_at: int


class Reservation:
    """An estimated cost that was taken, until the block that `reserve` opened ends."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.used: int | None = None

    @property
    def allowed(self) -> bool:
        """Whether there was room; when not, nothing was taken."""
        return self.decision.allowed

    def settle(self, cost: int) -> None:
        """Say what it has really cost; 0 when nothing. Without it, the estimate stands."""
        if cost:
            check_cost(cost, "reservation")
        self.used = cost


class Settling:
    """Corrections on one server."""

    def __init__(self, client: Client, denials: Denials, channel: str, *, by_slot: bool) -> None:
        self._run = client.run
        self._denials = denials
        self._channel = channel
        self._by_slot = by_slot

    async def settle(self, decision: Decision, cost: int) -> bool:
        """Let a decision have cost this in place of what it took; claims with their own cost keep it."""
        if cost == 0:
            return await self.refund(decision)
        more = check_cost(cost) - decision.cost
        return await self._once(decision, [0 if claim.cost else more for claim in decision.claims])

    async def refund(self, decision: Decision) -> bool:
        """Give back all that a decision took."""
        return await self._once(decision, [-(claim.cost or decision.cost) for claim in decision.claims])

    async def correct(self, changes: Collection[Change]) -> None:
        """Make changes, each slot's in one step."""
        self._denials.forget(change.claim.id for change in changes if change.units < 0)
        groups = defaultdict(list)
        for change in changes:
            groups[key_slot(change.key) if self._by_slot else 0].append(change)
        runs = []
        for group in groups.values():
            words = [self._channel]
            for change in group:
                words += change.claim.correction(change.units, change.taken_at)
            runs.append(self._run(SETTLE, [change.key for change in group], words))
        # All are waited for, so that a slot that fails does not hide what the others came to.
        done = await asyncio.gather(*runs, return_exceptions=True)
        for problem in done:
            if isinstance(problem, BaseException):
                raise problem

    async def reset(self, claim: Claim) -> list[int]:
        """Forget what a claim has used, in the window that it is in, if the script agrees that it is."""
        fixed = claim.rule.window is not None
        bounds = (int(claim.starts), int(claim.ends)) if fixed else (0, 0)
        reply: list[int] = await self._run(RESET, claim.keys, (self._channel, claim.id, *bounds))
        self._denials.forget((claim.id,))
        return reply

    async def _once(self, decision: Decision, units: list[int]) -> bool:
        if not decision.taken:
            if decision.source != "server" or not decision.allowed:
                return False
            raise InvalidClaim(
                decision.claims[0].rule.name,
                "this decision is settled already, or took nothing",
                "settle or refund a decision of check() once",
            )
        decision.taken = False
        moments = decision.moments or [decision.now] * len(units)
        changes = map(Change, decision.claims, decision.keys, units, moments)
        try:
            await self.correct([change for change in changes if change.units])
        except (ConnectionFailed, ServerError) as problem:
            if not is_outage(problem):
                raise
            # On one server it was certainly not done, and may be tried again.
            decision.taken = not (self._by_slot or isinstance(problem, OutcomeUnknown))
            return False
        return True
