"""The outcomes of events, sent to the server in batches: acknowledgements, retries and dead letters.

All events handled in one tick of the loop are acknowledged by one XACK, which leaves in the same write as the
next read. A failed event gets an idle time that makes it a lease old when its retry is due, so the pending
list itself is the schedule: the next consumer that claims then gets it, even if this process is gone by then.
Acknowledgements that did not reach the server are repeated; the other outcomes need not be, since a pending
entry that is not renewed is claimed after a lease.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Coroutine, Sequence
from time import monotonic
from typing import Any

from ephemera.errors import ConnectionFailed, EphemeraError
from ephemera.patterns.events._entries import DeliveredEvent
from ephemera.patterns.events._group_member import ConsumerGroupMember

log = logging.getLogger("ephemera.events")

_MARGIN = 0.005  # seconds after which a due entry is a lease old by the server's clock, too


class ConsumerCounts:
    """What a consumer has done since it started."""

    __slots__ = ("acked", "dead", "failed", "handled")

    def __init__(self) -> None:
        self.handled = 0
        """Attempts that succeeded."""
        self.failed = 0
        """Attempts that failed."""
        self.acked = 0
        """Acknowledged by the server, events for other groups included."""
        self.dead = 0
        """Moved to the dead letters."""

    def add(self, other: ConsumerCounts) -> None:
        """Add the counts of another consumer."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __repr__(self) -> str:
        return "ConsumerCounts(" + ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__) + ")"


class GroupCounts:
    """What all consumers of a store have done, by group; also those that have stopped."""

    def __init__(self) -> None:
        self._running: list[tuple[str, ConsumerCounts]] = []
        self._ended: dict[str, ConsumerCounts] = {}

    def add(self, group: str, counts: ConsumerCounts) -> None:
        """Include a consumer that starts."""
        self._running.append((group, counts))

    def remove(self, group: str, counts: ConsumerCounts) -> None:
        """Keep only the sums of a consumer that stops."""
        self._running.remove((group, counts))
        self._ended.setdefault(group, ConsumerCounts()).add(counts)

    def by_group(self) -> dict[str, ConsumerCounts]:
        """The current sums."""
        sums: dict[str, ConsumerCounts] = {}
        for group, counts in [*self._ended.items(), *self._running]:
            sums.setdefault(group, ConsumerCounts()).add(counts)
        return sums


class Outcomes:
    """The outcomes of one consumer."""

    def __init__(self, member: ConsumerGroupMember, counts: ConsumerCounts) -> None:
        self.retry_times: list[float] = []
        """When retries are due, by `monotonic`: a heap."""
        self.next_claim_at = 0.0
        """When the maintenance task claims again."""
        self.earlier_retry = asyncio.Event()
        """Set when a retry is due before that."""
        self._member = member
        self._counts = counts
        self._acks: list[bytes] = []
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._flushing = False
        self._loop = asyncio.get_running_loop()

    def ack(self, entry_id: bytes) -> None:
        """Acknowledge an entry at the end of this tick."""
        self._acks.append(entry_id)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def is_acking(self, entry_id: bytes) -> bool:
        """Whether the acknowledgement of an entry has not been sent yet."""
        return entry_id in self._acks

    def nack(self, pending: DeliveredEvent, error: BaseException) -> None:
        """Schedule a retry of an event, or make it a dead letter after its last delivery."""
        self._counts.failed += 1
        text = f"{type(error).__name__}: {error}"
        member, delivery = self._member, pending.delivery
        where = (member.key, member.group, delivery.id)
        if delivery.attempt >= member.policy.max_deliveries:
            log.error("%r: %r makes %s a dead letter: %s", *where, text)
            self.dead_letter(pending.id, pending.flat, text, delivery.attempt, delivery.origin)
        else:
            log.warning("%r: %r failed to handle %s, attempt %d: %s", *where, delivery.attempt, text)
            self._spawn(self._schedule_retry(pending.id, delivery.attempt))

    def dead_letter(
        self, entry_id: bytes, flat: Sequence[bytes], error: str, attempt: int, origin: str | None
    ) -> None:
        """Make an entry a dead letter."""
        self._spawn(self._write_dead_letter(entry_id, flat, error, attempt, origin or entry_id.decode()))

    def flush(self) -> None:
        """Send the acknowledgements that are due, and those that could not be sent before."""
        self._flushing = False
        ids, self._acks = self._acks, []
        if not ids:
            return
        try:
            sent = asyncio.ensure_future(self._member.ack(ids))
        except EphemeraError:
            self._acks = ids
            return
        self._in_flight.add(sent)

        def on_reply(done: asyncio.Future[int]) -> None:
            self._in_flight.discard(done)
            self._count_acks(done, ids)

        sent.add_done_callback(on_reply)

    async def finish(self) -> None:
        """Wait until the server has received every outcome, or cannot."""
        self.flush()
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    def _count_acks(self, done: asyncio.Future[int], ids: list[bytes]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._counts.acked += done.result()
        elif isinstance(error, ConnectionFailed):
            self._acks += ids
        else:
            log.error("%r: %d events cannot be acknowledged: %s", self._member.key, len(ids), error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(self._log_failure(work))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _log_failure(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EphemeraError as problem:
            log.warning(
                "%r: an outcome was not recorded, its event will be delivered again: %s",
                self._member.key,
                problem,
            )

    async def _schedule_retry(self, entry_id: bytes, attempt: int) -> None:
        policy = self._member.policy
        delay = policy.retry_delay(attempt)
        await self._member.set_idle([(entry_id, policy.lease_milliseconds - delay, attempt)])
        due = monotonic() + delay / 1000 + _MARGIN
        heapq.heappush(self.retry_times, due)
        if due < self.next_claim_at:
            self.earlier_retry.set()

    async def _write_dead_letter(
        self, entry_id: bytes, flat: Sequence[bytes], error: str, attempt: int, origin: str
    ) -> None:
        self._counts.dead += await self._member.dead_letter(entry_id, flat, error, attempt, origin)
