"""The handlers at work: a bounded number of tasks that take events from one queue.

A handler is awaited inside a task that lives as long as the consumer, so an event costs no task of its own,
and one whose handler does not wait costs no turn of the loop either. A second task is woken only while there
is more to do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ephemera.patterns.events._entries import Delivery, EventCodec, Read
from ephemera.patterns.events._members import Held, Member

if TYPE_CHECKING:
    from ephemera.patterns.events._outcome import Counts, Outcomes

_NO_OUTCOME = "it was delivered {} times without an outcome: its consumers died, or hung, while they had it"


class Taken(NamedTuple):
    """An event that this consumer has and did not finish."""

    id: bytes
    event: Any
    delivery: Delivery
    flat: Sequence[bytes]


class Work:
    """The events that a consumer has taken, and the tasks that handle them."""

    def __init__(
        self,
        member: Member,
        codec: EventCodec[Any],
        handler: Callable[[Any, Delivery], Awaitable[object]],
        outcomes: Outcomes,
        counts: Counts,
        concurrency: int,
    ) -> None:
        self.taken: dict[bytes, Taken] = {}
        self._member = member
        self._codec = codec
        self._handler = handler
        self._outcomes = outcomes
        self._counts = counts
        self._concurrency = concurrency
        self.last = b"0-0"
        """The last entry that was delivered here."""
        self._waiting: deque[Taken] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._room: asyncio.Future[None] | None = None
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._tasks = {self._loop.create_task(self._work()) for _ in range(concurrency)}

    @property
    def room(self) -> int:
        """How many more events may be taken."""
        return self._concurrency - len(self.taken)

    async def has_room(self) -> int:
        """Wait until more events may be taken, and return how many."""
        while self.room <= 0:
            self._room = self._loop.create_future()
            await self._room
        return self.room

    def take(self, entries: Sequence[tuple[bytes, list[bytes]]]) -> None:
        """Handle entries that were delivered for the first time."""
        for entry_id, flat in entries:
            self.take_one(entry_id, flat, 1)
        self.last = entries[-1][0]

    def take_over(self, entries: Sequence[tuple[bytes, list[bytes], int]]) -> None:
        """Handle entries that were delivered before, so many times with this one."""
        for entry_id, flat, attempt in entries:
            self.take_one(entry_id, flat, attempt)
            self.last = max(self.last, entry_id, key=_order)

    def take_one(self, entry_id: bytes, flat: list[bytes], attempt: int) -> None:
        """Handle an entry, unless it is in hand already, for another group, or cannot be handled."""
        if entry_id in self.taken or self._outcomes.is_acking(entry_id):
            return
        read = self._codec.read(flat)
        if read.group is not None and read.group != self._member.group:
            self._outcomes.ack(entry_id)
        elif read.problem is not None:
            self._outcomes.bury(entry_id, flat, read.problem, attempt, read.origin)
        elif attempt > self._member.declared.deliveries:
            told = _NO_OUTCOME.format(attempt - 1)
            self._outcomes.bury(entry_id, flat, told, attempt - 1, read.origin)
        else:
            self._begin(entry_id, flat, attempt, read)

    def _begin(self, entry_id: bytes, flat: list[bytes], attempt: int, read: Read) -> None:
        name = entry_id.decode()
        delivery = Delivery(name, attempt, self._member.key, self._member.group, read.origin or name)
        taken = self.taken[entry_id] = Taken(entry_id, read.event, delivery, flat)
        self._waiting.append(taken)
        if self._idle and len(self._waiting) == 1:
            self._wake_one()

    def in_hand(self) -> list[Held]:
        """The events that were taken and not finished, to be kept from others."""
        return [(each.id, 0, each.delivery.attempt) for each in self.taken.values()]

    async def stop(self, grace: float) -> list[Held]:
        """Begin nothing more, let what runs finish within `grace` seconds; what is left, to be given back."""
        self._stopping = True
        unstarted = {each.id for each in self._waiting}
        self._waiting.clear()
        while self._idle:
            self._wake_one()
        try:
            await asyncio.wait(self._tasks, timeout=grace)
        finally:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        lease = self._member.lease
        return [
            (each.id, lease, each.delivery.attempt - (each.id in unstarted)) for each in self.taken.values()
        ]

    async def _work(self) -> None:
        waiting, handler, finish = self._waiting, self._handler, self._finish
        while not self._stopping:
            if not waiting:
                idle = self._loop.create_future()
                self._idle.append(idle)
                await idle
                continue
            taken = waiting.popleft()
            if waiting and self._idle:
                self._wake_one()
            try:
                await handler(taken.event, taken.delivery)
            except Exception as error:
                self._outcomes.failed(taken, error)
            except asyncio.CancelledError as error:
                if _is_ours(asyncio.current_task()):
                    raise
                self._outcomes.failed(taken, error)
            else:
                self._counts.handled += 1
                self._outcomes.ack(taken.id)
            finish(taken)

    def _finish(self, taken: Taken) -> None:
        del self.taken[taken.id]
        room = self._room
        if room is not None:
            self._room = None
            if not room.done():
                room.set_result(None)

    def _wake_one(self) -> None:
        idle = self._idle.pop()
        if not idle.done():
            idle.set_result(None)


def _order(entry_id: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split(b"-")))


def _is_ours(task: asyncio.Task[Any] | None) -> bool:
    """Whether a cancellation came from outside; otherwise the handler has raised it."""
    return task is not None and task.cancelling() > 0
