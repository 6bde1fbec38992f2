"""Corrections and checks that may touch several slots of a cluster.

*Corrections* (refunds, settlements, resets) go to where and when the units were taken: to that window's key,
to that grain of the log. Expired units need none. A decision is corrected once. While the server is down no
correction is made, and the units stay taken until they expire: limits err on the strict side. So does a
process that dies between a reservation and its settlement.

*A check over several slots* is one round trip per slot, all of them concurrent. Each slot's claims are atomic
among themselves. When one slot has no room, what the others took is given back before the decision is
returned. So a check never admits more than any limit, and a denied one leaves nothing taken; but for the
length of a round trip its units are unavailable to other checks, which may be denied because of that. If this
process or a node dies just then, they stay taken until they expire.

Without a hash tag, a fixed window's key is in another slot each window, so its claims may meet nodes whose
clocks differ. Around a window's edge such nodes may send a claim back and forth; the third attempt counts it
in the window it asks for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from time import monotonic
from typing import Literal, NamedTuple, TypeAlias, cast

from ephemera.errors import ConnectionFailed, InvalidClaim, OutcomeUnknown, ServerError
from ephemera.keyspace import REDIS_ERRORS, is_outage
from ephemera.patterns.rate_limits._claims import (
    TAKE,
    Claim,
    WindowClock,
    check_cost,
    correction_arguments,
    keys_and_arguments,
)
from ephemera.patterns.rate_limits._decision import (
    ClaimState,
    Decision,
    DecisionSource,
    Reply,
    numbers,
    usage,
)
from ephemera.patterns.rate_limits._denials import DenialCache
from ephemera.patterns.rate_limits._rules import WhenDown
from ephemera.wire import Client, Script, key_slot

RESET = Script.load("ephemera.patterns.rate_limits", "reset")
CORRECT = Script.load("ephemera.patterns.rate_limits", "correct")

Fallback: TypeAlias = Callable[[Sequence[Claim], int, WhenDown | None, Exception], Decision]
"""Decides claims whose server failed; raises an error that is not an outage."""


class Change(NamedTuple):
    """Units to add to what a claim took from a key at a moment, in ms since 1970; below 0 to give back."""

    claim: Claim
    key: str
    units: int
    taken: int
    taken_at: int
    used: int
    """What the claim had used before, in the reply's unit."""


class Corrections:
    """Refunds, settlements and resets on one server or cluster."""

    def __init__(self, client: Client, denials: DenialCache, channel: str) -> None:
        self._run = client.run
        self._denials = denials
        self._channel = channel
        self._by_slot = client.is_cluster

    async def settle(self, decision: Decision, cost: int) -> bool:
        """Replace the cost of a decision; claims with their own cost keep it."""
        if cost == 0:
            return await self.refund(decision)
        more = check_cost(cost) - decision.cost
        return await self._correct_once(decision, [0 if claim.cost else more for claim in decision.claims])

    async def refund(self, decision: Decision) -> bool:
        """Give back all that a decision took."""
        units = [-(claim.cost or decision.cost) for claim in decision.claims]
        return await self._correct_once(decision, units)

    async def correct(self, changes: Collection[Change]) -> None:
        """Apply changes, those of each slot in one step."""
        self._denials.drop(change.claim.id for change in changes if change.units < 0)
        groups = defaultdict(list)
        for change in changes:
            groups[key_slot(change.key) if self._by_slot else 0].append(change)
        runs = []
        for group in groups.values():
            arguments = [self._channel]
            for change in group:
                arguments += correction_arguments(
                    change.claim, change.units, change.taken, change.taken_at, change.used
                )
            runs.append(self._run(CORRECT, [change.key for change in group], arguments))
        # Wait for all, so that a slot that fails does not hide the results of the others.
        for problem in await asyncio.gather(*runs, return_exceptions=True):
            if isinstance(problem, BaseException):
                raise problem

    async def reset(self, claim: Claim) -> list[int]:
        """Clear what a claim has used in its window, if the script agrees that it is the current one."""
        fixed = claim.rule.window is not None
        bounds = (int(claim.starts), int(claim.ends)) if fixed else (0, 0)
        reply: list[int] = await self._run(RESET, (claim.key,), (self._channel, claim.id, *bounds))
        self._denials.drop((claim.id,))
        return reply

    async def _correct_once(self, decision: Decision, units: list[int]) -> bool:
        if not decision.taken:
            if decision.source != "server" or not decision.allowed:
                return False
            raise InvalidClaim(
                decision.claims[0].rule.name,
                "this decision is settled already, or took nothing",
                "settle or refund a decision of check() once",
            )
        decision.taken = False
        times = decision._node_times or [decision.now] * len(units)
        taken = [claim.cost or decision.cost for claim in decision.claims]
        used = numbers(cast("bytes", decision._reply))[1:]
        changes = map(Change, decision.claims, decision._keys, units, taken, times, used)
        try:
            await self.correct([change for change in changes if change.units])
        except (ConnectionFailed, ServerError) as problem:
            if not is_outage(problem):
                raise
            # On one server it was certainly not applied, and may be tried again.
            decision.taken = not (self._by_slot or isinstance(problem, OutcomeUnknown))
            return False
        return True


class SlotReply(NamedTuple):
    """The reply of one slot about its claims; or its error."""

    claims: Sequence[Claim]
    keys: tuple[str, ...]
    reply: Reply
    problem: Exception | None = None

    @property
    def has_consumed(self) -> bool:
        """Whether its claims consumed their units."""
        return isinstance(self.reply, bytes)

    @property
    def verdict(self) -> int:
        """1 or 0: all its claims have room, or not; -1: the window has rolled over."""
        return 1 if isinstance(self.reply, bytes) else self.reply[0]

    @property
    def now(self) -> int:
        """The node's time in milliseconds since 1970."""
        return numbers(self.reply)[0] if isinstance(self.reply, bytes) else self.reply[1]

    def used(self) -> list[int]:
        """The units that each claim had used before."""
        return numbers(self.reply)[1:] if isinstance(self.reply, bytes) else self.reply[2::3]

    def usage(self) -> list[ClaimState]:
        """Used, wait and reset of each claim, as they are with nothing taken."""
        if isinstance(self.reply, list):
            return usage(self.reply)
        return [
            (used, 0, claim.rule.algorithm.after(claim._settings, used, 0, self.now)[1])
            for claim, used in zip(self.claims, self.used(), strict=True)
        ]


class ClusterChecks:
    """Checks over several slots."""

    def __init__(
        self, client: Client, clock: WindowClock, corrections: Corrections, fallback: Fallback
    ) -> None:
        self._run = client.run
        self._clock = clock
        self._corrections = corrections
        self._fallback = fallback

    async def check(self, claims: Sequence[Claim], cost: int, when_down: WhenDown | None) -> Decision:
        """Take from every claim if all slots have room; otherwise give back what was taken."""
        replies = await self._ask(claims, cost, "t")
        answered = [reply for reply in replies if reply.problem is None]
        failed = [reply for reply in replies if reply.problem is not None]
        try:
            if failed:
                answered.append(self._decide_failed(failed, cost, when_down))
        except ServerError:
            await self._give_back(answered, cost)
            raise
        decision = _merge(claims, answered, cost, degraded=bool(failed))
        if not decision.allowed:
            await self._give_back(answered, cost)
        return decision

    async def peek(self, claims: Sequence[Claim], cost: int) -> Decision:
        """The state of the claims; every slot must answer."""
        replies = await self._ask(claims, cost, "p")
        for reply in replies:
            if reply.problem is not None:
                raise reply.problem
        return _merge(claims, replies, cost, degraded=False)

    def _decide_failed(self, failed: list[SlotReply], cost: int, when_down: WhenDown | None) -> SlotReply:
        """Decide all claims whose slots failed by policy; raise an error that is not an outage."""
        claims = [claim for reply in failed for claim in reply.claims]
        problems = [reply.problem for reply in failed if reply.problem is not None]
        decided = self._fallback(claims, cost, when_down, min(problems, key=is_outage))
        return SlotReply(decided.claims, ("",) * len(decided.claims), decided._reply)

    async def _ask(self, claims: Sequence[Claim], cost: int, mode: Literal["t", "p"]) -> list[SlotReply]:
        answered: list[SlotReply] = []
        pending: Sequence[Claim] = claims
        attempt = 0
        while pending:
            self._clock.roll_windows(pending)
            asked = [self._ask_slot(group, cost, mode, attempt) for group in _by_slot(pending)]
            pending = []
            for reply in await asyncio.gather(*asked):
                if reply.problem is None and reply.verdict < 0:
                    self._clock.synchronize(reply.now)
                    pending = [*pending, *reply.claims]
                else:
                    answered.append(reply)
            attempt += 1
        return answered

    async def _ask_slot(
        self, claims: list[Claim], cost: int, mode: Literal["t", "p"], attempt: int
    ) -> SlotReply:
        keys, arguments = keys_and_arguments(claims, cost, mode, attempt)
        try:
            reply = await self._run(TAKE, keys, arguments)
        except (ConnectionFailed, ServerError) as problem:
            return SlotReply(claims, keys, [], problem)
        return SlotReply(claims, keys, reply)

    async def _give_back(self, replies: list[SlotReply], cost: int) -> None:
        changes = [
            Change(claim, key, -(claim.cost or cost), claim.cost or cost, reply.now, used)
            for reply in replies
            if reply.has_consumed
            for claim, key, used in zip(reply.claims, reply.keys, reply.used(), strict=True)
        ]
        # A node that cannot be reached keeps them until they expire.
        with suppress(*REDIS_ERRORS):
            await self._corrections.correct(changes)


def _by_slot(claims: Sequence[Claim]) -> list[list[Claim]]:
    groups = defaultdict(list)
    for claim in claims:
        groups[key_slot(claim.key)].append(claim)
    return list(groups.values())


def _merge(claims: Sequence[Claim], replies: list[SlotReply], cost: int, *, degraded: bool) -> Decision:
    """Merge the replies of all slots into one decision, in the script's form and the order of the claims."""
    allowed = all(reply.verdict for reply in replies)
    consumed = allowed and bool(replies) and all(reply.has_consumed for reply in replies)
    states_by_claim = {
        claim: (key, reply.now, used, state)
        for reply in replies
        for claim, key, used, state in zip(reply.claims, reply.keys, reply.used(), reply.usage(), strict=True)
    }
    known = tuple(claim for claim in claims if claim in states_by_claim)
    columns = zip(*(states_by_claim[claim] for claim in known), strict=True) if known else ((),) * 4
    keys, times, used, states = columns
    now = max(times, default=0)
    merged: Reply
    if consumed:
        merged = b"".join(number.to_bytes(6, "big") for number in (now, *used))
    else:
        merged = [int(allowed), now, *(number for state in states for number in state)]
    source: DecisionSource = "outage" if degraded else "server"
    return Decision(allowed, known, keys, cost, merged, monotonic(), consumed, source, times)
