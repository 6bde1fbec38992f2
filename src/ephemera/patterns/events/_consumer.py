"""A consumer: reads events, passes them to its handlers, and leaves nothing behind when it stops.

*Reading.* It reads as many events as it has room for: on the shared connection while there is more, and while
it waits on one for all consumers of the process. It waits for a server that is down, and creates its group
again if it was lost.

*Maintenance.* Pending events are renewed every quarter of a lease, so a long handler keeps its event, and one
whose process died or hangs loses it after a lease. The pending list is walked by a cursor: for entries that
are due when a retry of this consumer is, and for those and the abandoned ones of dead consumers every quarter
of a lease. The stream is trimmed once a second while events are acknowledged.

*Stopping.* No more events are started; those started are finished and acknowledged; the others are returned,
so that another consumer claims them at once. The consumer's name is removed unless events wait in it for a
retry.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ephemera._outage_log import OutageLog
from ephemera.errors import ConnectionFailed, EphemeraError, InvalidValue, ServerError, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, is_outage
from ephemera.patterns.events._entries import Delivery, EventCodec
from ephemera.patterns.events._group_info import (
    GROUP_MISSING,
    ConsumerCounts,
    GroupCounts,
)
from ephemera.patterns.events._group_member import (
    DUE,
    NO_LIMIT,
    WITH_OUTCOME,
    ClaimedEntry,
    ConsumerGroupMember,
    NewEntry,
    OrderedGroupMember,
)
from ephemera.patterns.events._handlers import HandlerPool
from ephemera.patterns.events._outcomes import Breaker, Outcomes
from ephemera.patterns.events._policy import ErrorPolicy

log = logging.getLogger("ephemera.events")

_TICK = 1.0  # seconds
_ON_ERROR = 0.25  # seconds until maintenance is tried again
_NO_EVENT = 0.2  # seconds until a paused consumer looks again for an event to try
_START = b"-"

E = TypeVar("E")
Handler = Callable[[E, Delivery], Awaitable[object]]
"""Handles an event: it returns when it is done, and raises to have the event delivered again."""
WaitingRead = Callable[[int], Awaitable[list[NewEntry]]]
"""Reads new entries, up to a number, and waits some seconds for them."""

_FIRST_PAUSE = 0.02  # seconds before the next attempt to read from a server that is down; doubles each time
_LONGEST_PAUSE = 1.0
_CANCEL_AGAIN = 0.25  # seconds


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
        self._outages = OutageLog(log)

    async def run(self) -> None:
        """Run until cancelled; waits for a server that is down."""
        while True:
            self._outcomes.wake.clear()
            try:
                await self._run_once()
                self._outages.regain(
                    self, "%r: the maintenance of %r continues", self._member.key, self._member.group
                )
            except ServerError as error:
                await self._on_error(error)
            except EphemeraError as error:
                log.debug("%r: maintenance waits for the server: %s", self._member.key, error)
                await asyncio.sleep(_ON_ERROR)
            except Exception as problem:
                self._log_failure(problem, exc_info=problem)
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
            self._log_failure(error)
            await asyncio.sleep(_ON_ERROR)
            return
        try:
            await self._member.recreate_group()
        except EphemeraError as problem:
            self._log_failure(problem)

    def _log_failure(self, error: Exception, *, exc_info: Exception | None = None) -> None:
        """Log the first failure; the next success is logged, too."""
        where = (self._member.key, self._member.group)
        message = "%r: the maintenance of %r failed: %s"
        self._outages.lose(self, message, *where, error, level=logging.ERROR, exc_info=exc_info)


class Consumer(Generic[E]):
    """One consumer of a group: what `consume` returns, for an `async with` block."""

    def __init__(
        self,
        member: ConsumerGroupMember,
        codec: EventCodec[E],
        handler: Handler[E],
        errors: ErrorPolicy,
        waiting_read: WaitingRead,
        *,
        concurrency: int,
        grace: float,
        group_counts: GroupCounts,
    ) -> None:
        if concurrency < 1:
            raise InvalidValue(member.key, "a concurrency of at least 1", str(concurrency))
        self.counts = ConsumerCounts()
        """What it has done since it started."""
        self._member = member
        self._codec = codec
        self._handler = handler
        self._errors = errors
        self._waiting_read = waiting_read
        self._breaker = Breaker(member) if errors.pauses else None
        self._concurrency = concurrency
        self._grace = grace
        self._group_counts = group_counts
        self._tasks: list[asyncio.Task[None]] = []
        self._outages = OutageLog(log)

    @property
    def name(self) -> str:
        """Its name in the group: host, process, and a token."""
        return self._member.name

    @property
    def pending(self) -> int:
        """How many events were delivered to it and are not finished."""
        return len(self._handlers.pending)

    @property
    def paused(self) -> bool:
        """Whether it waits because its group is paused."""
        return self._breaker is not None and self._breaker.paused

    async def __aenter__(self) -> Self:
        member = self._member
        try:
            await member.create_group()
            if self._breaker is not None:
                await self._breaker.refresh(has_event=False)
        except REDIS_ERRORS as problem:
            # A key of another type is another program's; once it is removed, the group is created.
            if not is_outage(problem) and getattr(problem, "code", "") != "WRONGTYPE":
                raise
            log.warning("%r: %r starts without its group: %s", member.key, member.group, problem)
        self._outcomes = Outcomes(member, self._errors, self._breaker, self.counts)
        self._handlers = HandlerPool(
            member, self._codec, self._handler, self._outcomes, self._breaker, self._concurrency
        )
        if self.paused:
            self._handlers.hold()
        if isinstance(member, OrderedGroupMember):
            member.successors.accept = self._handlers.accept_claimed
        self._maintenance = Maintenance(member, self._handlers, self._outcomes, self._breaker, self.counts)
        self._group_counts.add(member.keys, member.group, self.counts)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._maintenance.run())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reading, maintenance = self._tasks
        self._maintenance.may_claim = False
        if isinstance(self._member, OrderedGroupMember):
            self._member.successors.wanted = False
        try:
            await _cancel(reading)
            await self._handlers.stop(self._grace)
            await self._outcomes.finish()
        finally:
            await _cancel(maintenance)
            self._group_counts.remove(self._member.keys, self._member.group, self.counts)
        try:
            await self._leave()
        except EphemeraError as problem:
            log.warning("%r: %s could not leave its group: %s", self._member.key, self.name, problem)

    async def _leave(self) -> None:
        member = self._member
        lost = await member.lost_deliveries(self._handlers.last)
        await member.set_idle([*self._handlers.unfinished(), *lost])
        await member.trim()
        await member.leave()

    async def _read(self) -> None:
        """Read until cancelled."""
        pause, more = _FIRST_PAUSE, False
        while True:
            try:
                room = await self._handlers.wait_for_room()
                entries = await (self._member.read(room, block=False) if more else self._waiting_read(room))
                more = bool(entries)
                self._outages.regain(self, "%r: %r reads again", self._member.key, self._member.group)
                if entries:
                    self._handlers.accept(entries)
                    if len(entries) < room:
                        # Everything was read. Handlers and publishers of this process run first, so that the
                        # next read brings more: a quarter more events, row "published, handled, acked".
                        await asyncio.sleep(0)
                pause = _FIRST_PAUSE
            except StoreClosed:
                log.warning("%r: the store was closed while %r was reading", self._member.key, self.name)
                return
            except Exception as problem:
                more = False
                if not await self._recovered(problem):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    async def _recovered(self, problem: Exception) -> bool:
        """Create a group that was lost; False if the consumer can only wait."""
        member = self._member
        if isinstance(problem, ConnectionFailed):
            self._outages.lose(self, "%r: %r waits for its server: %s", member.key, member.group, problem)
            return False
        if not isinstance(problem, ServerError) or problem.code not in GROUP_MISSING:
            what = (member.key, member.group)
            self._outages.lose(self, "%r: %r cannot read", *what, level=logging.ERROR, exc_info=problem)
            return False
        try:
            await member.recreate_group()
        except EphemeraError as still:
            what = (member.key, member.group)
            self._outages.lose(self, "%r: the group %r cannot be created: %s", *what, still)
            return False
        return True

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of {self._member.group!r} on {self._member.key!r}, {self.counts}>"


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it ends: a cancellation that coincides with a timeout is lost."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=_CANCEL_AGAIN)
