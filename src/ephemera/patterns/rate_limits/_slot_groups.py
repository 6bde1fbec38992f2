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
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Literal, NamedTuple

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.keyspace import is_outage
from ephemera.patterns.rate_limits._claims import Claim, plan
from ephemera.patterns.rate_limits._corrections import Change
from ephemera.patterns.rate_limits._decision import Decision, Reply, Source, numbers
from ephemera.patterns.rate_limits._outage import WhenDown
from ephemera.wire import key_slot

if TYPE_CHECKING:
    from ephemera.patterns.rate_limits._limiter import Limiter


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

    def used(self) -> list[int]:
        """What each claim had used before."""
        return numbers(self.reply)[1:] if isinstance(self.reply, bytes) else self.reply[2::3]

    def stand(self) -> list[tuple[int, int, int]]:
        """Used, wait and reset of each claim, as they are with nothing taken."""
        if isinstance(self.reply, list):
            return list(zip(self.reply[2::3], self.reply[3::3], self.reply[4::3], strict=True))
        return [
            (used, 0, claim.rule.algorithm.after(claim.settings, used, 0, self.now)[1])
            for claim, used in zip(self.claims, self.used(), strict=True)
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
        try:
            if failed:
                answers.append(self._by_policy(failed, cost, when_down))
        except ServerError:
            await self._give_back(answers, cost)
            raise
        decision = _merged(claims, answers, cost, degraded=bool(failed))
        if decision.allowed:
            if not failed:
                self._limiter.allow(claims)
            return decision
        await self._give_back(answers, cost)
        return decision if failed else self._limiter.deny(decision, version)

    def _by_policy(self, failed: list[Answer], cost: int, when_down: WhenDown | None) -> Answer:
        """What the policies say of all claims whose slots failed; a problem that is no outage is raised."""
        claims = [claim for answer in failed for claim in answer.claims]
        problems = [answer.problem for answer in failed if answer.problem is not None]
        worst = min(problems, key=is_outage)
        decided = self._limiter.without_server(claims, cost, when_down, worst)
        return Answer(decided.claims, ("",) * len(decided.claims), decided.reply)

    async def peek(self, claims: Sequence[Claim], cost: int) -> Decision:
        """How the claims stand; every slot must answer."""
        answers = await self._ask(claims, cost, "p")
        for answer in answers:
            if answer.problem is not None:
                raise answer.problem
        return _merged(claims, answers, cost, degraded=False)

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
        groups[key_slot(claim.key)].append(claim)
    return list(groups.values())


def _merged(claims: Sequence[Claim], answers: list[Answer], cost: int, *, degraded: bool) -> Decision:
    """One decision of what all slots said, in the script's own form and the order of the claims."""
    allowed = all(answer.verdict for answer in answers)
    taken = allowed and bool(answers) and all(answer.took for answer in answers)
    said = {
        claim: (key, answer.now, used, stand)
        for answer in answers
        for claim, key, used, stand in zip(
            answer.claims, answer.keys, answer.used(), answer.stand(), strict=True
        )
    }
    known = tuple(claim for claim in claims if claim in said)
    keys, moments, used, stands = zip(*(said[claim] for claim in known), strict=True) if known else ((),) * 4
    now = max(moments, default=0)
    reply: Reply
    if taken:
        reply = b"".join(number.to_bytes(6, "big") for number in (now, *used))
    else:
        reply = [int(allowed), now, *(number for stand in stands for number in stand)]
    source: Source = "outage" if degraded else "server"
    return Decision(allowed, known, keys, cost, reply, monotonic(), taken, source, moments)
