"""A consumer: reads events, passes them to its handlers, and leaves nothing behind when it stops.

*Reading.* It reads as many events as it has room for: on the shared connection while there is more, and while
it waits on one for all consumers of the process. It waits for a server that is down, and creates its group
again if it was lost.

*Stopping.* No more events are started; those started are finished and acknowledged; the others are returned,
so that another consumer claims them at once. The consumer's name is removed unless events wait in it for a
retry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ephemera.errors import ConnectionFailed, EphemeraError, InvalidValue, ServerError, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, is_outage
from ephemera.patterns.events._entries import Delivery, EventCodec
from ephemera.patterns.events._group_info import (
    GROUP_MISSING,
    ConsumerCounts,
    GroupCounts,
)
from ephemera.patterns.events._group_member import ConsumerGroupMember, NewEntry, OrderedGroupMember
from ephemera.patterns.events._handlers import HandlerPool
from ephemera.patterns.events._maintenance import Maintenance
from ephemera.patterns.events._outcomes import Breaker, Outcomes
from ephemera.patterns.events._policy import ErrorPolicy

E = TypeVar("E")
Handler = Callable[[E, Delivery], Awaitable[object]]
"""Handles an event: it returns when it is done, and raises to have the event delivered again."""
WaitingRead = Callable[[int], Awaitable[list[NewEntry]]]
"""Reads at most so many new entries, and waits some seconds for them."""

log = logging.getLogger("ephemera.events")

_FIRST_PAUSE = 0.02  # seconds before the next attempt to read from a server that is down; doubles each time
_LONGEST_PAUSE = 1.0
_CANCEL_AGAIN = 0.25  # seconds


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
            await member.recreate_group()
        except EphemeraError as still:
            log.info("%r: the group %r cannot be created: %s", member.key, member.group, still)
            return False
        return True

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of {self._member.group!r} on {self._member.key!r}, {self.counts}>"


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it ends: a cancellation that coincides with a timeout is lost."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=_CANCEL_AGAIN)
