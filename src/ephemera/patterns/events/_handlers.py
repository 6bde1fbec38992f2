"""The pool of handlers: a bounded number of tasks that take events from one queue.

A handler is awaited inside a task that lives as long as the consumer, so an event costs no task of its own,
and one whose handler does not wait costs no turn of the loop either. A second task is woken only while there
is more to do.

While events wait to be claimed, half of the handlers are reserved for them: a backlog of new events would
otherwise take every handler that becomes free, and retries would wait for its end. Of the events whose
consumer died, one is handled at a time, since it may be the one that killed it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ephemera.patterns.events._entries import DecodedEntry, DeliveredEvent, Delivery, EventCodec
from ephemera.patterns.events._group_member import (
    ClaimedEntry,
    ConsumerGroupMember,
    NewEntry,
    PendingState,
    due_in,
    id_order,
)
from ephemera.patterns.events._outcomes import Breaker, Outcomes

_NO_OUTCOME = "it was delivered {} times without an outcome: its consumers died, or hung, while handling it"


class HandlerPool:
    """The events pending for a consumer, and the tasks that handle them."""

    def __init__(
        self,
        member: ConsumerGroupMember,
        codec: EventCodec[Any],
        handler: Callable[[Any, Delivery], Awaitable[object]],
        outcomes: Outcomes,
        breaker: Breaker | None,
        concurrency: int,
    ) -> None:
        self.pending: dict[bytes, DeliveredEvent] = {}
        self.last = b"0-0"
        """The last entry that was delivered here."""
        self._member = member
        self._codec = codec
        self._handler = handler
        self._outcomes = outcomes
        self._breaker = breaker
        self._concurrency = concurrency
        self._claimed: dict[bytes, bool] = {}  # pending events that were claimed: whether they were abandoned
        self._claims_due = False
        self._waiting: deque[DeliveredEvent] = deque()
        self._held: deque[DeliveredEvent] | None = None  # what waits while the group is paused
        self._idle: list[asyncio.Future[None]] = []
        self._room: asyncio.Future[None] | None = None
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._tasks = {self._loop.create_task(self._work()) for _ in range(concurrency)}

    @property
    def room(self) -> int:
        """How many more events may be accepted."""
        return self._concurrency - len(self.pending)

    @property
    def has_abandoned(self) -> bool:
        """Whether an event whose consumer died is pending here: it may kill this one, too."""
        return True in self._claimed.values()

    @property
    def has_held(self) -> bool:
        """Whether an event waits for the end of a pause."""
        return bool(self._held)

    async def wait_for_room(self) -> int:
        """Wait until more new events may be accepted, and return how many."""
        while (room := self._room_for_new()) <= 0:
            self._room = self._loop.create_future()
            await self._room
        return room

    def reserve_for_claims(self, *, due: bool) -> None:
        """Keep half of the handlers for events that wait to be claimed, as long as there are any."""
        self._claims_due = due
        if not due:
            self._notify_room()

    def accept(self, entries: Sequence[NewEntry]) -> None:
        """Handle entries that were delivered for the first time."""
        for entry_id, flat in entries:
            self._accept(entry_id, flat, 1)
        self.last = entries[-1][0]

    def accept_claimed(self, entries: Sequence[ClaimedEntry], *, abandoned: bool = False) -> None:
        """Handle entries that were delivered before, each with its number of deliveries so far."""
        for entry_id, flat, attempt in entries:
            if self._accept(entry_id, flat, attempt):
                self._claimed[entry_id] = abandoned
            self.last = max(self.last, entry_id, key=id_order)

    def renewals(self) -> list[PendingState]:
        """What keeps the pending events from being claimed by other consumers."""
        return [(each.id, 0, each.delivery.attempt) for each in self.pending.values()]

    def hold(self) -> None:
        """Start no more events: the group is paused."""
        if self._held is None:
            self._held = deque(self._waiting)
            self._waiting.clear()

    def resume(self) -> None:
        """Start events again."""
        held, self._held = self._held, None
        if held is not None:
            self._waiting.extend(held)
            self._start_waiting()
            self._notify_room()

    def try_one(self) -> bytes | None:
        """Start one of the events that wait for the end of a pause, and return its id."""
        if not self._held:
            return None
        event = self._held.popleft()
        self._waiting.append(event)
        self._start_waiting()
        return event.id

    async def stop(self, grace: float) -> None:
        """Start no more handlers, and give running ones `grace` seconds."""
        self._stopping = True
        while self._idle:
            self._wake_one()
        try:
            await asyncio.wait(self._tasks, timeout=grace)
        finally:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def unfinished(self) -> list[PendingState]:
        """What other consumers get once this one has stopped; what was not started is not counted."""
        unstarted = {each.id for each in (*self._waiting, *(self._held or ()))}
        return [
            due_in(0, each.id, each.delivery.attempt - (each.id in unstarted))
            for each in self.pending.values()
        ]

    def _room_for_new(self) -> int:
        if self._held is not None:
            return 0
        if not self._claims_due:
            return self.room
        new = len(self.pending) - len(self._claimed)
        return min(self.room, self._concurrency // 2 - new)

    def _accept(self, entry_id: bytes, flat: list[bytes], attempt: int) -> bool:
        """Handle an entry, unless it is pending already, for another group, or cannot be handled."""
        if entry_id in self.pending or self._outcomes.is_acking(entry_id):
            return False
        entry = self._codec.decode(flat)
        if entry.group is not None and entry.group != self._member.group:
            self._outcomes.ack(entry_id)
        elif entry.problem is not None:
            self._outcomes.dead_letter(entry_id, flat, entry.problem, attempt, entry.origin)
        elif attempt > self._outcomes.errors.most_deliveries:
            error = _NO_OUTCOME.format(attempt - 1)
            self._outcomes.dead_letter(entry_id, flat, error, attempt - 1, entry.origin)
        else:
            self._enqueue(entry_id, flat, attempt, entry)
            return True
        return False

    def _enqueue(self, entry_id: bytes, flat: list[bytes], attempt: int, entry: DecodedEntry) -> None:
        name = entry_id.decode()
        delivery = Delivery(name, attempt, self._member.key, self._member.group, entry.origin or name)
        event = self.pending[entry_id] = DeliveredEvent(entry_id, entry.event, delivery, flat)
        if self._held is not None:
            self._held.append(event)
            return
        self._waiting.append(event)
        if self._idle and len(self._waiting) == 1:
            self._wake_one()

    async def _work(self) -> None:
        waiting, handler, handled, finish = self._waiting, self._handler, self._outcomes.handled, self._finish
        while not self._stopping:
            if not waiting:
                idle = self._loop.create_future()
                self._idle.append(idle)
                await idle
                continue
            event = waiting.popleft()
            if waiting and self._idle:
                self._wake_one()
            try:
                await handler(event.event, event.delivery)
            except (SystemExit, KeyboardInterrupt, GeneratorExit):
                raise  # the process ends, or the loop was closed
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled(asyncio.current_task()):
                    raise
                self._failed(event, error)
            else:
                handled(event)
            finish(event)

    def _failed(self, event: DeliveredEvent, error: BaseException) -> None:
        self._outcomes.failed(event, error)
        if self._breaker is not None and self._breaker.paused:
            self.hold()

    def _finish(self, event: DeliveredEvent) -> None:
        del self.pending[event.id]
        was_abandoned = self._claimed and self._claimed.pop(event.id, False)
        if was_abandoned or self._claims_due:
            self._outcomes.wake.set()  # there is room for one that waits to be claimed
        if self._room is not None:
            self._notify_room()

    def _notify_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _start_waiting(self) -> None:
        if self._waiting and self._idle:
            self._wake_one()

    def _wake_one(self) -> None:
        idle = self._idle.pop()
        if not idle.done():
            idle.set_result(None)


def _is_cancelled(task: asyncio.Task[Any] | None) -> bool:
    """Whether the task itself was cancelled; otherwise the handler raised the cancellation."""
    return task is not None and task.cancelling() > 0
