"""The maintenance of one consumer: it renews, claims, resumes and trims.

Pending events are renewed every quarter of a lease, so a long handler keeps its event, and one whose process
died or hangs loses it after a lease. The pending list is walked by a cursor: for entries that are due when a
retry of this consumer is, and for those and the abandoned ones of dead consumers every quarter of a lease.
The stream is trimmed once a second while events are acknowledged.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from contextlib import suppress
from time import monotonic

from ephemera.errors import EphemeraError, ServerError
from ephemera.patterns.events._group_info import GROUP_MISSING, ConsumerCounts
from ephemera.patterns.events._group_member import (
    DUE,
    NO_LIMIT,
    WITH_OUTCOME,
    ClaimedEntry,
    ConsumerGroupMember,
)
from ephemera.patterns.events._handlers import HandlerPool
from ephemera.patterns.events._outcomes import Breaker, Outcomes

log = logging.getLogger("ephemera.events")

_TICK = 1.0  # seconds
_ON_ERROR = 0.25  # seconds until maintenance is tried again
_NO_EVENT = 0.2  # seconds until a paused consumer looks again for an event to try
_START = b"-"


class ClaimWalk:
    """A walk through the pending list that claims entries of one range of idle times."""

    def __init__(self, member: ConsumerGroupMember, shortest: int, too_long: int) -> None:
        self.active = False
        self._member = member
        self._idle = (shortest, too_long)
        self._cursor = _START
        self._again = False

    def start(self) -> None:
        """Walk; once more after the current walk, which may have passed what became due."""
        self._again = self.active
        self.active = True

    def reset(self) -> None:
        """End the walk: its group was lost."""
        self.active, self._cursor, self._again = False, _START, False

    async def claim(self, count: int) -> list[ClaimedEntry]:
        """The next entries."""
        self._cursor, entries = await self._member.claim(self._idle, self._cursor, count)
        if self._cursor == _START:
            self.active, self._again = self._again, False
        return entries


class Maintenance:
    """Renews, claims, resumes and trims for one consumer."""

    def __init__(
        self,
        member: ConsumerGroupMember,
        handlers: HandlerPool,
        outcomes: Outcomes,
        breaker: Breaker | None,
        counts: ConsumerCounts,
    ) -> None:
        self.may_claim = True
        """False once the consumer stops."""
        self._member = member
        self._handlers = handlers
        self._outcomes = outcomes
        self._breaker = breaker
        self._counts = counts
        self._lease = member.policy.lease.total_seconds()
        self._renews_at = monotonic() + self._lease / 4
        self._walks_at = monotonic()
        self._due = ClaimWalk(member, DUE, NO_LIMIT)
        self._abandoned = ClaimWalk(member, member.policy.lease_milliseconds, WITH_OUTCOME)
        self._asks_at = self._tries_at = self._trims_at = monotonic()
        self._trimmed = 0

    async def run(self) -> None:
        """Run until cancelled; waits for a server that is down."""
        while True:
            self._outcomes.wake.clear()
            try:
                await self._run_once()
            except ServerError as error:
                await self._on_error(error)
            except EphemeraError as error:
                log.debug("%r: maintenance waits for the server: %s", self._member.key, error)
                await asyncio.sleep(_ON_ERROR)
            except Exception:
                log.exception("%r: the maintenance of %r failed", self._member.key, self._member.group)
                await asyncio.sleep(_ON_ERROR)
            await self._sleep()

    async def _sleep(self) -> None:
        """Wait until there is something to do; an outcome may ask for it earlier."""
        until = min(monotonic() + _TICK, self._renews_at)
        if self._breaker is None or not self._breaker.paused:
            until = min(until, self._walks_at, *self._outcomes.retry_times[:1])
        elif self._breaker.trial is None:
            until = min(until, max(self._breaker.next_trial, self._tries_at))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, until - monotonic())):
                await self._outcomes.wake.wait()

    async def _run_once(self) -> None:
        now = monotonic()
        if now >= self._renews_at:
            await self._member.set_idle(self._handlers.renewals())
            self._renews_at = now + self._lease / 4
        self._outcomes.flush()
        if self.may_claim and self._breaker is not None:
            await self._check_pause(self._breaker)
        if self.may_claim and not (self._breaker is not None and self._breaker.paused):
            await self._claim(now)
        if self._counts.acked > self._trimmed and now >= self._trims_at:
            self._trimmed, self._trims_at = self._counts.acked, now + _TICK
            await self._member.trim()

    async def _claim(self, now: float) -> None:
        retries, handlers = self._outcomes.retry_times, self._handlers
        if now >= self._walks_at:
            self._walks_at = now + self._lease / 4 * random.uniform(0.75, 1.25)
            self._due.start()
            self._abandoned.start()
            await self._member.remove_leftovers()
        if retries and retries[0] <= now:
            self._due.start()
        while retries and retries[0] <= now:
            heapq.heappop(retries)
        while self._due.active and self.may_claim and handlers.room > 0:
            handlers.accept_claimed(await self._due.claim(handlers.room))
        while self._wants_abandoned and self.may_claim and handlers.room > 0:
            handlers.accept_claimed(await self._abandoned.claim(1), abandoned=True)
        # While this is set, an event that finishes wakes this task; an abandoned one does so in any case.
        handlers.reserve_for_claims(due=self._due.active or self._wants_abandoned)

    @property
    def _wants_abandoned(self) -> bool:
        return self._abandoned.active and not self._handlers.has_abandoned

    async def _check_pause(self, breaker: Breaker) -> None:
        """Hold or resume events as the group does, and try one if this consumer may."""
        now, handlers = monotonic(), self._handlers
        is_due = breaker.paused and breaker.trial is None and now >= max(breaker.next_trial, self._tries_at)
        if is_due and not handlers.has_held:
            await self._fetch_trial()
            self._tries_at = now + _NO_EVENT
        if is_due or now >= self._asks_at:
            self._asks_at = now + _TICK
            if await breaker.refresh(has_event=is_due and handlers.has_held):
                breaker.trial = handlers.try_one()
        if breaker.paused:
            handlers.hold()
        else:
            handlers.resume()

    async def _fetch_trial(self) -> None:
        """Get an event to try: a new one if possible, since one that failed may fail for its own reasons."""
        self._handlers.hold()
        entries = await self._member.read(1, block=False)
        if entries:
            self._handlers.accept_claimed([(entry_id, flat, 1) for entry_id, flat in entries])
            return
        for walk in (self._due, self._abandoned):
            walk.start()
            while walk.active and not self._handlers.has_held:
                self._handlers.accept_claimed(await walk.claim(1), abandoned=walk is self._abandoned)

    async def _on_error(self, error: ServerError) -> None:
        self._due.reset()
        self._abandoned.reset()
        if error.code not in GROUP_MISSING:
            log.error("%r: the maintenance of %r failed: %s", self._member.key, self._member.group, error)
            await asyncio.sleep(_ON_ERROR)
            return
        try:
            await self._member.recreate_group()
        except EphemeraError as problem:
            log.warning(
                "%r: the group %r cannot be created: %s", self._member.key, self._member.group, problem
            )
