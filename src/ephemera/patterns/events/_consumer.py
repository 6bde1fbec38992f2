"""A consumer: reads events, passes them to its handlers, and leaves nothing behind when it stops.

*Reading.* It reads as many events as it has room for: on a dedicated connection while it waits, on the shared
one while there is more. It waits for a server that is down, and creates its group again if it was lost.

*Maintenance.* Pending events are renewed every quarter of a lease, so a long handler keeps its event, and one
whose process died or hangs loses it after a lease. XAUTOCLAIM follows its cursor through the pending list
when a retry of this consumer is due, and every quarter of a lease for events of other consumers. The stream
is trimmed once a second while events are acknowledged.

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

from ephemera.errors import ConnectionFailed, EphemeraError, InvalidValue, ServerError, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, is_outage
from ephemera.patterns.events._entries import Delivery, EventCodec
from ephemera.patterns.events._group_member import (
    GROUP_MISSING,
    ConsumerGroupMember,
    PendingState,
    create_group,
    recreate_group,
)
from ephemera.patterns.events._handlers import HandlerPool
from ephemera.patterns.events._outcomes import ConsumerCounts, GroupCounts, Outcomes

E = TypeVar("E")
Handler = Callable[[E, Delivery], Awaitable[object]]
"""Handles an event: it returns when it is done, and raises to have the event delivered again."""

log = logging.getLogger("ephemera.events")

_FIRST_PAUSE = 0.02  # seconds before the next attempt to read from a server that is down; doubles each time
_LONGEST_PAUSE = 1.0
_CANCEL_AGAIN = 0.25  # seconds
_TICK = 1.0  # seconds
_NO_ROOM = 0.05  # seconds until claiming continues that stopped for lack of room
_START = b"0-0"


class Consumer(Generic[E]):
    """One consumer of a group: what `consume` returns, for an `async with` block."""

    def __init__(
        self,
        member: ConsumerGroupMember,
        codec: EventCodec[E],
        handler: Handler[E],
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
        self._concurrency = concurrency
        self._grace = grace
        self._group_counts = group_counts
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        """Its name in the group: host, process, and a token."""
        return self._member.name

    @property
    def pending(self) -> int:
        """How many events were delivered to it and are not finished."""
        return len(self._handlers.pending)

    async def __aenter__(self) -> Self:
        member = self._member
        try:
            await create_group(member.client, member.key, member.group)
        except REDIS_ERRORS as problem:
            if not is_outage(problem):
                raise
            log.warning("%r: %r starts while its server is down: %s", member.key, member.group, problem)
        self._outcomes = Outcomes(member, self.counts)
        self._handlers = HandlerPool(
            member, self._codec, self._handler, self._outcomes, self.counts, self._concurrency
        )
        self._maintenance = Maintenance(member, self._handlers, self._outcomes, self.counts)
        self._group_counts.add(member.group, self.counts)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._maintenance.run())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reading, maintenance = self._tasks
        self._maintenance.may_claim = False
        try:
            await _cancel(reading)
            unfinished = await self._handlers.stop(self._grace)
            await self._outcomes.finish()
        finally:
            await _cancel(maintenance)
            self._group_counts.remove(self._member.group, self.counts)
        try:
            await self._leave(unfinished)
        except EphemeraError as problem:
            log.warning("%r: %s could not leave its group: %s", self._member.key, self.name, problem)

    async def _leave(self, unfinished: list[PendingState]) -> None:
        member = self._member
        unfinished += await member.lost_deliveries(self._handlers.last)
        await member.set_idle(unfinished)
        await member.trim()
        await member.leave()

    async def _read(self) -> None:
        """Read until cancelled."""
        pause, more = _FIRST_PAUSE, False
        while True:
            try:
                room = await self._handlers.wait_for_room()
                entries = await self._member.read(room, block=not more)
                more = bool(entries)
                if entries:
                    self._handlers.accept(entries)
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
            log.info("%r: %r waits for its server: %s", member.key, member.group, problem)
            return False
        if not isinstance(problem, ServerError) or problem.code not in GROUP_MISSING:
            log.error("%r: %r cannot read", member.key, member.group, exc_info=problem)
            return False
        try:
            await recreate_group(member.client, member.key, member.group)
        except EphemeraError as still:
            log.info("%r: the group %r cannot be created: %s", member.key, member.group, still)
            return False
        return True

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of {self._member.group!r} on {self._member.key!r}, {self.counts}>"


class Maintenance:
    """Renews, claims and trims for one consumer."""

    def __init__(
        self, member: ConsumerGroupMember, handlers: HandlerPool, outcomes: Outcomes, counts: ConsumerCounts
    ) -> None:
        self.may_claim = True
        """False once the consumer stops."""
        self._member = member
        self._handlers = handlers
        self._outcomes = outcomes
        self._counts = counts
        self._lease = member.policy.lease.total_seconds()
        self._renews_at = monotonic() + self._lease / 4
        self._claims_at = monotonic()
        self._cursor = _START
        self._claiming = False
        self._trimmed = 0

    async def run(self) -> None:
        """Run until cancelled; waits for a server that is down."""
        while True:
            try:
                await self._run_once()
            except ServerError as error:
                await self._on_error(error)
            except EphemeraError as error:
                log.debug("%r: maintenance waits for the server: %s", self._member.key, error)
            except Exception:
                log.exception("%r: the maintenance of %r failed", self._member.key, self._member.group)
            await self._sleep(self._next_run())

    async def _sleep(self, until: float) -> None:
        """Wait until there is something to do, or a retry is due before that."""
        self._outcomes.next_claim_at = until
        self._outcomes.earlier_retry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, until - monotonic())):
                await self._outcomes.earlier_retry.wait()

    async def _run_once(self) -> None:
        now = monotonic()
        if now >= self._renews_at:
            await self._member.set_idle(self._handlers.renewals())
            self._renews_at = now + self._lease / 4
        self._outcomes.flush()
        if self.may_claim:
            await self._claim(now)
        if self._counts.acked > self._trimmed:
            self._trimmed = self._counts.acked
            await self._member.trim()

    async def _claim(self, now: float) -> None:
        retries = self._outcomes.retry_times
        if now >= self._claims_at:
            self._claiming = True
            self._claims_at = now + self._lease / 4 * random.uniform(0.75, 1.25)
            await self._member.remove_idle_consumers()
        while retries and retries[0] <= now:
            heapq.heappop(retries)
            self._claiming = True
        while self._claiming and self.may_claim and (room := self._handlers.room) > 0:
            self._cursor, entries = await self._member.claim(self._cursor, room)
            self._handlers.accept_claimed(entries)
            self._claiming = self._cursor != _START

    def _next_run(self) -> float:
        """When there is something to do again."""
        now = monotonic()
        if self._claiming:
            return now + _NO_ROOM
        due = self._outcomes.retry_times[:1]
        return min(now + _TICK, self._renews_at, self._claims_at, *due)

    async def _on_error(self, error: ServerError) -> None:
        self._cursor, self._claiming = _START, False
        if error.code not in GROUP_MISSING:
            log.error("%r: the maintenance of %r failed: %s", self._member.key, self._member.group, error)
            return
        try:
            await recreate_group(self._member.client, self._member.key, self._member.group)
        except EphemeraError as problem:
            log.warning(
                "%r: the group %r cannot be created: %s", self._member.key, self._member.group, problem
            )


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it ends: a cancellation that coincides with a timeout is lost."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=_CANCEL_AGAIN)
