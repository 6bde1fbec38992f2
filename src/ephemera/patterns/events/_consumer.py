"""A consumer: reads, hands what it read to its handlers, and leaves nothing behind when it stops.

It reads as many events as it has room for, on a connection of its own where it waits, on the shared one while
there is more. A server that is away is waited for; a group that vanished is made again. Stopping: no event is
begun any more, those begun are finished and acknowledged, others are given back for somebody else to take at
once, and the consumer's name is removed unless events still wait in it for their retry.
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
from ephemera.patterns.events._groups import GONE, make_group, make_group_again
from ephemera.patterns.events._maintenance import Upkeep
from ephemera.patterns.events._members import Held, Member
from ephemera.patterns.events._outcome import Counts, Outcomes, Tallies
from ephemera.patterns.events._worker import Work

E = TypeVar("E")
Handler = Callable[[E, Delivery], Awaitable[object]]
"""What handles an event: it returns when it is done, and raises when it must be tried again."""

log = logging.getLogger("ephemera.events")

_FIRST_PAUSE = 0.02  # seconds until a server that is away is asked again, then twice as long each time
_LONGEST_PAUSE = 1.0
_CANCEL_AGAIN = 0.25  # seconds


class Consumer(Generic[E]):
    """One member of a group at work: what `consume` gives, for an `async with` block."""

    def __init__(
        self,
        member: Member,
        codec: EventCodec[E],
        handler: Handler[E],
        concurrency: int,
        grace: float,
        tallies: Tallies,
    ) -> None:
        if concurrency < 1:
            raise InvalidValue(member.key, "a concurrency of at least 1", str(concurrency))
        self.counts = Counts()
        """What it has done since it began."""
        self._member = member
        self._codec = codec
        self._handler = handler
        self._concurrency = concurrency
        self._grace = grace
        self._tallies = tallies
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def name(self) -> str:
        """Its name in the group: host, process, and a token."""
        return self._member.name

    @property
    def in_hand(self) -> int:
        """Events that it was given and did not finish."""
        return len(self._work.taken)

    async def __aenter__(self) -> Self:
        member = self._member
        try:
            await make_group(member.client, member.key, member.group)
        except REDIS_ERRORS as problem:
            if not is_outage(problem):
                raise
            log.warning("%r: %r starts without its server: %s", member.key, member.group, problem)
        self._outcomes = Outcomes(member, self.counts)
        self._work = Work(member, self._codec, self._handler, self._outcomes, self.counts, self._concurrency)
        self._upkeep = Upkeep(member, self._work, self._outcomes, self.counts)
        self._tallies.begin(member.group, self.counts)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read_on()), loop.create_task(self._upkeep.run())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reading, upkeep = self._tasks
        self._upkeep.claiming = False
        try:
            await _end(reading)
            left = await self._work.stop(self._grace)
            await self._outcomes.finish()
        finally:
            await _end(upkeep)
            self._tallies.end(self._member.group, self.counts)
        try:
            await self._leave(left)
        except EphemeraError as problem:
            log.warning("%r: %s could not say goodbye: %s", self._member.key, self.name, problem)

    async def _leave(self, left: list[Held]) -> None:
        member = self._member
        left += await member.unseen(self._work.last)
        await member.keep(left)
        await member.trim()
        await member.leave()

    async def _read_on(self) -> None:
        """Read until cancelled."""
        pause, more = _FIRST_PAUSE, False
        while True:
            try:
                room = await self._work.has_room()
                entries = await self._member.read(room, block=not more)
                more = bool(entries)
                if entries:
                    self._work.take(entries)
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
        """Make a group that is gone; False when all one can do is wait."""
        member = self._member
        if isinstance(problem, ConnectionFailed):
            log.info("%r: %r waits for its server: %s", member.key, member.group, problem)
            return False
        if not isinstance(problem, ServerError) or problem.code not in GONE:
            log.error("%r: %r cannot read", member.key, member.group, exc_info=problem)
            return False
        try:
            await make_group_again(member.client, member.key, member.group)
        except EphemeraError as still:
            log.info("%r: the group %r cannot be made: %s", member.key, member.group, still)
            return False
        return True

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of {self._member.group!r} on {self._member.key!r}, {self.counts}>"


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it ends: a cancellation that meets a timeout of the same moment is lost."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=_CANCEL_AGAIN)
