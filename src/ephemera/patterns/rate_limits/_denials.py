"""Denials that this process remembers: whoever was denied costs the server nothing until it can pass.

A denial holds until the moment at which the script said there would be room, for the same limit and at least
the same cost. Before that, only a refund, a settlement or a reset can make room, and each is announced on a
channel in the step that makes it. So denials are remembered only while this process listens to that channel,
it starts to listen at its first denial, and it forgets all of them when it may have missed an announcement.

The channel and the replies are different connections, so an announcement may overtake the reply of a check
that came before it: `version` counts announcements, and the denial of a claim that was announced after it was
asked for is not remembered. What a check over several slots gives back is announced too, but of claims that
had room, so its denial is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from time import monotonic

import msgspec

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed
from ephemera.patterns.rate_limits._claims import Claim
from ephemera.patterns.rate_limits._decision import Decision
from ephemera.patterns.rate_limits._rules import Rule
from ephemera.wire import Client

log = logging.getLogger("ephemera.rate_limits")

_RETRY = 0.5  # seconds until the next attempt to listen


class RuleCounts:
    """What one rule decided on one store, in checks; each is of one of these."""

    __slots__ = ("allowed", "degraded", "denied", "remembered")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0  # it was this rule that had no room
        self.remembered = 0  # the same by a denial that this process remembers
        self.degraded = 0  # its policy decided, the server being away


class Denial(msgspec.Struct, eq=False, gc=False):
    """Why a claim need not be asked for."""

    until: float
    limit: int
    cost: int
    decision: Decision
    counts: RuleCounts
    """Those of the rule that had no room."""

    def alone(self, claim: Claim) -> Decision:
        """The answer to a check that holds this claim among other ones than then: it alone is known."""
        place = [each.id for each in self.decision.claims].index(claim.id)
        used, wait, reset = self.decision.stand()[place]
        reply = [0, self.decision.now, used, wait, reset]
        return msgspec.structs.replace(self.decision, claims=(claim,), keys=(), reply=reply)


class Denials:
    """At most `most` denials, by claim; and the task that hears when they end early."""

    def __init__(self, client: Client, channel: str, most: int, by_rule: Mapping[Rule, RuleCounts]) -> None:
        self.kept: OrderedDict[str, Denial] = OrderedDict()
        self.exact: dict[tuple[Claim, ...], Denial] = {}
        """The same by all claims of a check, at the usual cost: one look for who comes again as before."""
        self.version = 0
        self._freed: dict[str, int] = {}  # claims, and the version that announced each
        self._all_freed = 0  # the version up to which any may have been
        self._client = client
        self._channel = channel
        self._most = most
        self._by_rule = by_rule
        self._listening = False
        self._task: asyncio.Task[None] | None = None

    def remember(self, decision: Decision, version: int) -> None:
        """Keep a denial asked for under a version, for each claim without room; the first one listens."""
        if self._task is None and self._most:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._listen(), name="ephemera-rate-limits")
        if not self._listening or version < self._all_freed:
            return
        decision = msgspec.structs.replace(decision, source="memory")
        for claim, (_, wait, _) in zip(decision.claims, decision.stand(), strict=True):
            if wait and self._freed.get(claim.id, 0) <= version:
                until = decision.at + (wait if wait > 0 else claim.rule.algorithm.per) / 1000
                units = claim.cost or decision.cost
                denial = Denial(until, claim.limit, units, decision, self._by_rule[claim.rule])
                self._keep(claim.id, denial)
                if decision.cost == 1:
                    self.exact[decision.claims] = denial

    def recall(self, claims: tuple[Claim, ...], cost: int) -> Decision | None:
        """The denial of a check that holds a denied claim, at the same limit and at least the same cost."""
        for claim in claims:
            denial = self.kept.get(claim.id)
            if (
                denial is not None
                and denial.until > monotonic()
                and denial.limit == claim.limit
                and (claim.cost or cost) >= denial.cost
            ):
                denial.counts.remembered += 1
                return denial.decision if denial.decision.claims == claims else denial.alone(claim)
        return None

    def forget(self, ids: Iterable[str]) -> None:
        """Let these claims ask again."""
        self.version += 1
        if len(self._freed) >= self._most:
            self._freed.clear()
            self._all_freed = self.version
        for each in ids:
            self._drop(each)
            self._freed[each] = self.version

    def forget_all(self) -> None:
        """Let everybody ask again."""
        self.version += 1
        self._all_freed = self.version
        self._freed.clear()
        self.kept.clear()
        self.exact.clear()

    def _keep(self, claim: str, denial: Denial) -> None:
        self._drop(claim)
        if len(self.kept) >= self._most:
            self._drop(next(iter(self.kept)))
        if len(self.exact) >= self._most:
            self.exact.clear()
        self.kept[claim] = denial

    def _drop(self, claim: str) -> None:
        denial = self.kept.pop(claim, None)
        if denial is not None:
            denial.until = 0.0  # `exact` may still have it

    async def aclose(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except StoreClosed:
                return
            except ConnectionFailed:
                pass
            except ServerError as problem:
                log.warning("denials are not remembered, for %r cannot be heard: %s", self._channel, problem)
                return
            except Exception:  # whatever it is, denials must not outlive what ends them
                log.exception("an announcement on %r could not be heard; listening anew", self._channel)
            finally:
                self._listening = False
                self.forget_all()
            await asyncio.sleep(_RETRY)

    async def _hear(self) -> None:
        async with self._client.subscribe(self._channel) as messages:
            self.forget_all()
            self._listening = True
            async for message in messages:
                if message.lost:
                    self.forget_all()
                else:
                    # Bytes that are no text name no claim, and must not end the listening.
                    self.forget(message.data.decode(errors="surrogateescape").split("\n"))
