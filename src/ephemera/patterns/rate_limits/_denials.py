"""Denials: cached in this process, and logged in Redis for operators.

*The cache.* A denied subject costs the server nothing until it can pass, or a check a minute. A denial holds
until the moment at which the script said there would be room, a minute at most, for the same limit and at
least the same cost. Before that, only a
refund, a settlement or a reset can make room, and each is announced on a channel in the step that makes it.
So denials are cached only while this process subscribes to that channel; it subscribes at its first denial,
and drops all denials when it may have missed an announcement.

The channel and the replies use different connections, so an announcement may overtake the reply of an earlier
check: `version` counts announcements, and a denial is not cached for a claim that was announced after the
check was sent. What a check over several slots gives back is announced too, but for claims that had room, so
its denial is cached.

*The log.* A limit's own keys do not show who is being throttled: the limit of a subject (a tier, one agreed
with a customer) is known only to the process that checks. So each process logs its denials, batched: at most
two commands per second and some hundred denials each, however many checks are denied. A cached denial is
logged once. A failure to write the log is ignored, as the denial is what counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, cast

import msgspec

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, FieldCodec, Keyspace, SortedSetAccessor
from ephemera.patterns.rate_limits._claims import Claim
from ephemera.patterns.rate_limits._decision import Decision, usage
from ephemera.patterns.rate_limits._rules import Rule
from ephemera.wire import Client, Script

LOG_DENIALS = Script.load("ephemera.patterns.rate_limits", "log_denials")
MAX_LOGGED = 1000
"""Entries of the log of denials, for the rules of one declaration."""

_LONGEST = 60_000  # milliseconds; the server's counter may have been lost, or may not have been ours
_RESUBSCRIBE_AFTER = 0.5  # seconds
_BATCH_FOR = 0.5  # seconds for which denials are collected
_BATCH_SIZE = 200  # denials that one command logs
_FIELD = FieldCodec()
"""Subjects are logged as keys render them: any text or bytes, while JSON takes only UTF-8."""

log = logging.getLogger("ephemera.rate_limits")


class RuleCounts:
    """The decisions of one rule on one store; each check counts as one of these."""

    __slots__ = ("allowed", "degraded", "denied", "remembered")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0  # by the server: this rule had no room
        self.remembered = 0  # denied by the cache of this process
        self.degraded = 0  # decided by policy, while the server was down


class CachedDenial(msgspec.Struct, eq=False, gc=False):
    """A denial that need not be sent again."""

    until: float
    limit: int
    cost: int
    decision: Decision
    counts: RuleCounts
    """Those of the rule that had no room."""

    def for_claim(self, claim: Claim) -> Decision:
        """The denial of a check with other claims besides this one: only this one's state is known."""
        index = [each.id for each in self.decision.claims].index(claim.id)
        state = usage(self.decision._reply)[index]
        reply = [0, self.decision.now, *state]
        return msgspec.structs.replace(self.decision, claims=(claim,), _keys=(), _reply=reply)


class DenialCache:
    """At most `size` denials by claim, and the task that receives announcements of room."""

    def __init__(self, client: Client, channel: str, size: int, by_rule: Mapping[Rule, RuleCounts]) -> None:
        self.by_claim: OrderedDict[str, CachedDenial] = OrderedDict()
        self.by_check: dict[tuple[Claim, ...], CachedDenial] = {}
        """The same by all claims of a check at the usual cost: one lookup for a check that is repeated."""
        self.version = 0
        self._announced: dict[str, int] = {}  # claims, and the version that announced each
        self._all_announced = 0  # the version up to which any claim may have been announced
        self._client = client
        self._channel = channel
        self._size = size
        self._by_rule = by_rule
        self._subscribed = False
        self._task: asyncio.Task[None] | None = None

    def add(self, decision: Decision, version: int) -> None:
        """Cache a denial sent under a version, for each claim without room; the first one subscribes."""
        if self._task is None and self._size:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._receive(), name="ephemera-rate-limits")
        if not self._subscribed or version < self._all_announced:
            return
        decision = msgspec.structs.replace(decision, source="memory")
        for claim, (_, wait, _) in zip(decision.claims, usage(decision._reply), strict=True):
            if wait and self._announced.get(claim.id, 0) <= version:
                wait = min(wait if wait > 0 else claim.rule.algorithm.per, _LONGEST)
                until = decision._decided_at + wait / 1000
                units = claim.cost or decision.cost
                denial = CachedDenial(until, claim.limit, units, decision, self._by_rule[claim.rule])
                self._store(claim.id, denial)
                if decision.cost == 1:
                    self.by_check[decision.claims] = denial

    def find(self, claims: tuple[Claim, ...], cost: int) -> Decision | None:
        """The denial of a check that has a denied claim, at the same limit and at least the same cost."""
        for claim in claims:
            # An object that is not a claim is refused later, when the check is validated.
            denial = self.by_claim.get(claim.id) if claim.__class__ is Claim else None
            if (
                denial is not None
                and denial.until > monotonic()
                and denial.limit == claim.limit
                and (claim.cost or cost) >= denial.cost
            ):
                denial.counts.remembered += 1
                return denial.decision if denial.decision.claims == claims else denial.for_claim(claim)
        return None

    def drop(self, ids: Iterable[str]) -> None:
        """Drop the denials of these claims."""
        self.version += 1
        if len(self._announced) >= self._size:
            self._announced.clear()
            self._all_announced = self.version
        for each in ids:
            self._remove(each)
            self._announced[each] = self.version

    def drop_all(self) -> None:
        """Drop all denials."""
        self.version += 1
        self._all_announced = self.version
        self._announced.clear()
        self.by_claim.clear()
        self.by_check.clear()

    async def aclose(self) -> None:
        """Unsubscribe."""
        await _cancelled(self._task)

    def _store(self, claim: str, denial: CachedDenial) -> None:
        self._remove(claim)
        if len(self.by_claim) >= self._size:
            self._remove(next(iter(self.by_claim)))
        if len(self.by_check) >= self._size:
            self.by_check.clear()
        self.by_claim[claim] = denial

    def _remove(self, claim: str) -> None:
        denial = self.by_claim.pop(claim, None)
        if denial is not None:
            denial.until = 0.0  # `by_check` may still have it

    async def _receive(self) -> None:
        while True:
            try:
                await self._receive_once()
            except StoreClosed:
                return
            except ConnectionFailed:
                pass
            except ServerError as problem:
                log.warning("denials are not cached: cannot subscribe to %r: %s", self._channel, problem)
                return
            except Exception:  # denials must never outlive what ends them
                log.exception("receiving announcements on %r failed; subscribing again", self._channel)
            finally:
                self._subscribed = False
                self.drop_all()
            await asyncio.sleep(_RESUBSCRIBE_AFTER)

    async def _receive_once(self) -> None:
        async with self._client.subscribe(self._channel) as messages:
            self.drop_all()
            self._subscribed = True
            async for message in messages:
                if message.lost:
                    self.drop_all()
                else:
                    # Bytes that are not text name no claim, and must not end the subscription.
                    self.drop(message.data.decode(errors="surrogateescape").split("\n"))


class DeniedClaim(NamedTuple):
    """One entry of the log: a rule at a limit and a cost, and the subject as text."""

    rule: str
    limit: int
    cost: int
    subject: tuple[str, ...]

    @classmethod
    def decode(cls, entry: bytes) -> DeniedClaim | None:
        """Decode an entry; None when it is not one of ours."""
        denied = _decode(entry)
        if denied is None:
            return None
        subject = tuple(map(_FIELD.decode, denied.subject))
        return None if None in subject else denied._replace(subject=cast("tuple[str, ...]", subject))


class DenialLog:
    """Logs the denials of one process."""

    def __init__(self, client: Client, keyspace: Keyspace[SortedSetAccessor[str]]) -> None:
        self._client = client
        self._key = keyspace.key()
        self._lifetime = keyspace.lifetime.milliseconds or 0
        self._batch: dict[bytes, int] = {}
        self._sending: asyncio.Task[None] | None = None

    def add(self, claim: Claim, cost: int, now: int, wait: int) -> None:
        """Log a denial until there is room: `wait` ms after `now`, or for one period if never."""
        if len(self._batch) < _BATCH_SIZE:
            until = now + (wait if wait > 0 else claim.rule.algorithm.per)
            entry = DeniedClaim(claim.rule.name, claim.limit, cost, _subject(claim))
            self._batch[msgspec.json.encode(entry)] = until
        if self._sending is None:
            loop = asyncio.get_running_loop()
            self._sending = loop.create_task(self._send(), name="ephemera-rate-limits-denial-log")

    async def remove(self, claim: Claim) -> None:
        """Remove the entries of a subject whose limit was reset; failures are ignored."""
        name = (claim.rule.name, _subject(claim))
        for entry in [entry for entry in self._batch if _names(entry, name)]:
            del self._batch[entry]
        with suppress(*REDIS_ERRORS):
            logged = await self._client.call("ZRANGE", self._key, 0, MAX_LOGGED)
            if found := [entry for entry in logged if _names(entry, name)]:
                await self._client.call("ZREM", self._key, *found)

    async def aclose(self) -> None:
        """Stop sending."""
        await _cancelled(self._sending)

    async def _send(self) -> None:
        await asyncio.sleep(_BATCH_FOR)
        self._sending = None
        batch, self._batch = self._batch, {}
        arguments: list[Any] = [self._lifetime, MAX_LOGGED]
        for entry, until in batch.items():
            arguments += (until, entry)
        if batch:
            with suppress(*REDIS_ERRORS, StoreClosed):
                await self._client.run(LOG_DENIALS, (self._key,), arguments)


async def _cancelled(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _subject(claim: Claim) -> tuple[str, ...]:
    return tuple(map(_FIELD.encode, claim.subject))


def _decode(entry: bytes) -> DeniedClaim | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(entry, type=DeniedClaim)
    return None


def _names(entry: bytes, name: tuple[str, tuple[str, ...]]) -> bool:
    denied = _decode(entry)
    return denied is not None and (denied.rule, denied.subject) == name
