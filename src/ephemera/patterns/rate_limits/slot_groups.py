"""A check over several slots of a cluster: one trip per slot, all of them at the same time.

Each slot's claims are atomic among themselves. Across slots: when one of them has no room, what the others
took is given back before the decision is returned. So a check never admits more than any limit, and a denied
one leaves nothing taken; but for the length of a trip its units are missing to others, who may be denied for
them, and if this process dies just then, or a node does, they stay taken until their time is over.

Without a tag, a fixed window's key lies in another slot each window, so its claims may meet nodes whose
clocks differ. Around a window's edge such nodes may send a claim to and fro; the third one counts it in the
window it is asked for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Literal, NamedTuple

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.rate_limits.asking import plan
from ephemera.patterns.rate_limits.decision import Decision, numbers
from ephemera.patterns.rate_limits.outage import is_outage
from ephemera.patterns.rate_limits.settling import Change
from ephemera.wire.slots import slot_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ephemera.patterns.rate_limits.claims import Claim
    from ephemera.patterns.rate_limits.decision import Reply, Source
    from ephemera.patterns.rate_limits.limiter import Limiter
    from ephemera.patterns.rate_limits.outage import WhenDown


class Answer(NamedTuple):
    """What one slot said of its claims; or why it did not."""

    claims: Sequence[Claim]
    keys: tuple[str, ...]
    reply: Reply
    problem: Exception | None = None

    @property
    def took(self) -> bool:
        """Whether its units are taken."""
        return isinstance(self.reply, bytes)

    @property
    def verdict(self) -> int:
        """1 or 0: all its claims have room, or not; -1: it is another window's time."""
        return 1 if isinstance(self.reply, bytes) else self.reply[0]

    @property
    def now(self) -> int:
        """The node's time in milliseconds since 1970."""
        return numbers(self.reply)[0] if isinstance(self.reply, bytes) else self.reply[1]

    def stand(self) -> list[int]:
        """Used, wait and reset of each claim, as they are with nothing taken."""
        if not isinstance(self.reply, bytes):
            return self.reply[2:]
        now, *used = numbers(self.reply)
        return [
            number
            for claim, before in zip(self.claims, used, strict=True)
            for number in (before, 0, claim.rule.algorithm.after(claim.limit, before, 0, now)[1])
        ]


class SlotGroups:
    """Checks over several slots, for one limiter."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def check(
        self, claims: Sequence[Claim], cost: int, when_down: WhenDown | None, version: int
    ) -> Decision:
        """Take from every claim if all slots have room; give back what was taken otherwise."""
        asked = await self._ask(claims, cost, "t")
        answers = [answer for answer in asked if answer.problem is None]
        failed = [answer for answer in asked if answer.problem is not None]
        for answer in failed:
            if answer.problem is not None and not is_outage(answer.problem):
                await self._give_back(answers, cost)
                raise answer.problem
        if failed:
            absent = [claim for answer in failed for claim in answer.claims]
            by_policy = self._limiter.without_server(absent, cost, when_down)
            answers.append(Answer(by_policy.claims, (), by_policy.reply))
        allowed = all(answer.verdict for answer in answers)
        decision = _merged(answers, cost, allowed=allowed, degraded=bool(failed))
        if allowed:
            self._limiter.allowed += not failed
            return decision
        await self._give_back(answers, cost)
        return decision if failed else self._limiter.deny(decision, version)

    async def peek(self, claims: Sequence[Claim], cost: int) -> Decision:
        """How the claims stand; every slot must answer."""
        answers = await self._ask(claims, cost, "p")
        for answer in answers:
            if answer.problem is not None:
                raise answer.problem
        allowed = all(answer.verdict for answer in answers)
        return _merged(answers, cost, allowed=allowed, degraded=False)

    async def _ask(self, claims: Sequence[Claim], cost: int, mode: Literal["t", "p"]) -> list[Answer]:
        answers: list[Answer] = []
        pending: Sequence[Claim] = claims
        attempt = 0
        while pending:
            self._limiter.turn(pending)
            asked = [self._ask_one(group, cost, mode, attempt) for group in by_slot(pending)]
            pending = []
            for answer in await asyncio.gather(*asked):
                if answer.problem is None and answer.verdict < 0:
                    self._limiter.learn(answer.now)
                    pending = [*pending, *answer.claims]
                else:
                    answers.append(answer)
            attempt += 1
        return answers

    async def _ask_one(self, claims: list[Claim], cost: int, mode: Literal["t", "p"], attempt: int) -> Answer:
        keys = tuple([claim.key for claim in claims])
        try:
            reply = await self._limiter.take(keys, plan(claims, cost, mode, attempt))
        except (ConnectionFailed, ServerError) as problem:
            return Answer(claims, keys, [], problem)
        return Answer(claims, keys, reply)

    async def _give_back(self, answers: list[Answer], cost: int) -> None:
        changes = [
            Change(claim, key, -(claim.cost or cost), answer.now)
            for answer in answers
            if answer.took
            for claim, key in zip(answer.claims, answer.keys, strict=True)
        ]
        # A node that cannot be told keeps them until their time is over, as said above.
        with suppress(ConnectionFailed, ServerError):
            await self._limiter.settling.correct(changes)


def by_slot(claims: Sequence[Claim]) -> list[list[Claim]]:
    """Claims in groups whose keys share a slot."""
    groups = defaultdict(list)
    for claim in claims:
        groups[slot_of(claim.key)].append(claim)
    return list(groups.values())


def _merged(answers: list[Answer], cost: int, *, allowed: bool, degraded: bool) -> Decision:
    """One decision of what all slots said, in the script's own form."""
    claims = tuple(claim for answer in answers for claim in answer.claims)
    keys = tuple(key for answer in answers for key in answer.keys)
    now = max((answer.now for answer in answers), default=0)
    taken = allowed and bool(answers) and all(answer.took for answer in answers)
    reply: Reply
    if taken:
        reply = now.to_bytes(6, "big") + b"".join(bytes(answer.reply)[6:] for answer in answers)
    else:
        reply = [int(allowed), now, *(number for answer in answers for number in answer.stand())]
    source: Source = "outage" if degraded else "server"
    moments = tuple(answer.now for answer in answers for _ in answer.claims)
    return Decision(allowed, claims, keys, cost, reply, monotonic(), taken, source, moments)
