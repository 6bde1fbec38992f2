"""The pool of handlers: a bounded number of tasks that take events from one queue.

A handler is awaited inside a task that lives as long as the consumer, so an event costs no task of its own,
and one whose handler does not wait costs no turn of the loop either. A second task is woken only while there
is more to do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ephemera.patterns.events._entries import DecodedEntry, DeliveredEvent, Delivery, EventCodec
from ephemera.patterns.events._group_member import ConsumerGroupMember, PendingState
from ephemera.patterns.events._outcomes import ConsumerCounts, Outcomes

_NO_OUTCOME = "it was delivered {} times without an outcome: its consumers died, or hung, while handling it"


class HandlerPool:
    """The events pending for a consumer, and the tasks that handle them."""

    def __init__(
        self,
        member: ConsumerGroupMember,
        codec: EventCodec[Any],
        handler: Callable[[Any, Delivery], Awaitable[object]],
        outcomes: Outcomes,
        counts: ConsumerCounts,
        concurrency: int,
    ) -> None:
        self.pending: dict[bytes, DeliveredEvent] = {}
        self._member = member
        self._codec = codec
        self._handler = handler
        self._outcomes = outcomes
        self._counts = counts
        self._concurrency = concurrency
        self.last = b"0-0"
        """The last entry that was delivered here."""
        self._waiting: deque[DeliveredEvent] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._room: asyncio.Future[None] | None = None
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._tasks = {self._loop.create_task(self._work()) for _ in range(concurrency)}

    @property
    def room(self) -> int:
        """How many more events may be accepted."""
        return self._concurrency - len(self.pending)

    async def wait_for_room(self) -> int:
        """Wait until more events may be accepted, and return how many."""
        while self.room <= 0:
            self._room = self._loop.create_future()
            await self._room
        return self.room

    def accept(self, entries: Sequence[tuple[bytes, list[bytes]]]) -> None:
        """Handle entries that were delivered for the first time."""
        for entry_id, flat in entries:
            self._accept(entry_id, flat, 1)
        self.last = entries[-1][0]

    def accept_claimed(self, entries: Sequence[tuple[bytes, list[bytes], int]]) -> None:
        """Handle entries that were delivered before, each with its number of deliveries so far."""
        for entry_id, flat, attempt in entries:
            self._accept(entry_id, flat, attempt)
            self.last = max(self.last, entry_id, key=_order)

    def renewals(self) -> list[PendingState]:
        """What keeps the pending events from being claimed by other consumers."""
        return [(each.id, 0, each.delivery.attempt) for each in self.pending.values()]

    async def stop(self, grace: float) -> list[PendingState]:
        """Start no more handlers, give running ones `grace` seconds, and return what other consumers get."""
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
        lease = self._member.policy.lease_milliseconds
        return [
            (each.id, lease, each.delivery.attempt - (each.id in unstarted)) for each in self.pending.values()
        ]

    def _accept(self, entry_id: bytes, flat: list[bytes], attempt: int) -> None:
        """Handle an entry, unless it is pending already, for another group, or cannot be handled."""
        if entry_id in self.pending or self._outcomes.is_acking(entry_id):
            return
        entry = self._codec.decode(flat)
        if entry.group is not None and entry.group != self._member.group:
            self._outcomes.ack(entry_id)
        elif entry.problem is not None:
            self._outcomes.dead_letter(entry_id, flat, entry.problem, attempt, entry.origin)
        elif attempt > self._member.policy.max_deliveries:
            error = _NO_OUTCOME.format(attempt - 1)
            self._outcomes.dead_letter(entry_id, flat, error, attempt - 1, entry.origin)
        else:
            self._enqueue(entry_id, flat, attempt, entry)

    def _enqueue(self, entry_id: bytes, flat: list[bytes], attempt: int, entry: DecodedEntry) -> None:
        name = entry_id.decode()
        delivery = Delivery(name, attempt, self._member.key, self._member.group, entry.origin or name)
        event = self.pending[entry_id] = DeliveredEvent(entry_id, entry.event, delivery, flat)
        self._waiting.append(event)
        if self._idle and len(self._waiting) == 1:
            self._wake_one()

    async def _work(self) -> None:
        waiting, handler, finish = self._waiting, self._handler, self._finish
        while not self._stopping:
            if not waiting:
                idle = self._loop.create_future()
                self._idle.append(idle)
                await idle
                continue
            pending = waiting.popleft()
            if waiting and self._idle:
                self._wake_one()
            try:
                await handler(pending.event, pending.delivery)
            except Exception as error:
                self._outcomes.nack(pending, error)
            except asyncio.CancelledError as error:
                if _is_cancelled(asyncio.current_task()):
                    raise
                self._outcomes.nack(pending, error)
            else:
                self._counts.handled += 1
                self._outcomes.ack(pending.id)
            finish(pending)

    def _finish(self, pending: DeliveredEvent) -> None:
        del self.pending[pending.id]
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


def _is_cancelled(task: asyncio.Task[Any] | None) -> bool:
    """Whether the task itself was cancelled; otherwise the handler raised the cancellation."""
    return task is not None and task.cancelling() > 0
