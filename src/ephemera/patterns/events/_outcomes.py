"""The outcomes of events, sent to the server: acknowledgements, retries, dead letters, pauses.

*The circuit breaker* of a group: while its dependency is down, its consumers pause. A `Pause` failure opens
it for all consumers of the group, by an entry in a hash of the stream that expires by itself. A consumer
learns of it by its own failure, or within a second. A paused consumer starts no event; the attempts of those
that failed are given back. After `retry_after` one consumer may try one event (half open): if it fails the
same way the group stays paused, with any other outcome it resumes.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Coroutine, Sequence
from time import monotonic
from typing import Any

from ephemera.errors import ConnectionFailed, EphemeraError
from ephemera.keyspace import milliseconds
from ephemera.patterns.events._entries import DeliveredEvent
from ephemera.patterns.events._group_info import ConsumerCounts
from ephemera.patterns.events._group_member import ConsumerGroupMember, due_in
from ephemera.patterns.events._policy import ErrorPolicy, Pause, Redeliver, describe
from ephemera.wire import Script

log = logging.getLogger("ephemera.events")

_MARGIN = 0.005  # seconds after which a due entry is due by the server's clock, too
PAUSE = Script.load("ephemera.patterns.events", "pause")
_NOT_PAUSED = -1
_MAX_REASON = 200  # characters


class Outcomes:
    """The outcomes of one consumer.

    All events handled in one tick of the loop are acknowledged by one XACK, which leaves in the same write as
    the next read. Acknowledgements that did not reach the server are repeated; the other outcomes need not
    be, since a pending entry that is not renewed is claimed after a lease.
    """

    def __init__(
        self,
        member: ConsumerGroupMember,
        errors: ErrorPolicy,
        breaker: Breaker | None,
        counts: ConsumerCounts,
    ) -> None:
        self.retry_times: list[float] = []
        """When retries are due, by `monotonic`: a heap."""
        self.wake = asyncio.Event()
        """Set when the maintenance task has something to do before it expected to."""
        self.errors = errors
        self._member = member
        self._breaker = breaker
        self._counts = counts
        self._acks: list[bytes] = []
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._flushing = False
        self._loop = asyncio.get_running_loop()

    def handled(self, event: DeliveredEvent) -> None:
        """Acknowledge an event whose handler returned."""
        self._counts.handled += 1
        if self._breaker is not None:
            self._reached_dependency(self._breaker, event)
        self.ack(event.id)

    def failed(self, event: DeliveredEvent, error: BaseException) -> None:
        """Handle an event whose handler raised, as the consumer's `on_error` says."""
        self._counts.failed += 1
        text, action = describe(error), self.errors.action(error)
        if isinstance(action, Pause) and self._breaker is not None:
            if self._breaker.opens(event.id, action):
                self._spawn(self._pause(self._breaker, event, action, text))
                return
        elif self._breaker is not None:
            self._reached_dependency(self._breaker, event)
        if action == "drop":
            self._counts.dropped += 1
            self._log(logging.INFO, "drops", event, text)
            self.ack(event.id)
        elif action == "dead_letter" or event.delivery.attempt >= self.errors.max_deliveries(action):
            self._log(logging.ERROR, "makes a dead letter of", event, text)
            self.dead_letter(event.id, event.flat, text, event.delivery.attempt, event.delivery.origin)
        else:
            self._log(logging.WARNING, "failed to handle", event, text)
            retry = action if isinstance(action, Redeliver) else self.errors.default
            delay = retry.delay(event.delivery.attempt)
            self._spawn(self._schedule(event.id, delay, event.delivery.attempt))

    def ack(self, entry_id: bytes) -> None:
        """Acknowledge an entry at the end of this tick."""
        self._acks.append(entry_id)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def is_acking(self, entry_id: bytes) -> bool:
        """Whether the acknowledgement of an entry has not been sent yet."""
        return entry_id in self._acks

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

    def _reached_dependency(self, breaker: Breaker, event: DeliveredEvent) -> None:
        if breaker.closes(event.id):
            self._spawn(self._resume(breaker))

    async def _resume(self, breaker: Breaker) -> None:
        await breaker.close()
        self.wake.set()

    async def _pause(self, breaker: Breaker, event: DeliveredEvent, pause: Pause, text: str) -> None:
        await breaker.open(pause, text)
        await self._schedule(event.id, milliseconds(pause.retry_after), event.delivery.attempt - 1)
        self.wake.set()

    async def _schedule(self, entry_id: bytes, delay: int, deliveries: int) -> None:
        """Have an entry claimed after this many milliseconds."""
        await self._member.set_idle([due_in(delay, entry_id, deliveries)])
        self._claim_in(delay / 1000 + _MARGIN)

    async def _write_dead_letter(
        self, entry_id: bytes, flat: Sequence[bytes], error: str, attempt: int, origin: str
    ) -> None:
        dead = await self._member.dead_letter(entry_id, flat, error, attempt, origin)
        self._counts.dead += dead  # not `+= await`, which would read the count before it waits
        if self._member.lanes is not None:
            self._claim_in(0)  # the next event of its key is due

    def _claim_in(self, seconds: float) -> None:
        heapq.heappush(self.retry_times, monotonic() + seconds)
        self.wake.set()

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
        except Exception:
            log.exception("%r: an outcome cannot be recorded", self._member.key)

    def _log(self, level: int, what: str, event: DeliveredEvent, text: str) -> None:
        where = (self._member.key, self._member.group, what, event.delivery.id, event.delivery.attempt)
        log.log(level, "%r: %r %s %s, attempt %d: %s", *where, text)


class Breaker:
    """What one consumer knows of the state of its group."""

    def __init__(self, member: ConsumerGroupMember) -> None:
        self.paused = False
        self.trial: bytes | None = None
        """The event that is tried."""
        self.next_trial = 0.0
        """When one may be tried, by `monotonic`."""
        self._member = member
        self._failures: Counter[Pause] = Counter()

    def opens(self, entry_id: bytes, pause: Pause) -> bool:
        """Count a failure; whether it pauses the group, or keeps it paused."""
        self._failures[pause] += 1
        if self.trial == entry_id:
            self.trial = None
        if not self.paused and self._failures[pause] >= pause.after:
            log.warning("%r: %r pauses: %s", self._member.key, self._member.group, pause)
            self.paused = True
            self.next_trial = monotonic() + pause.retry_after.total_seconds()
        return self.paused

    def closes(self, entry_id: bytes) -> bool:
        """Count an event that was handled, or failed for another reason; whether it was the trial."""
        if self._failures and not self.paused:
            self._failures.clear()
        return self.paused and self.trial == entry_id

    async def open(self, pause: Pause, reason: str) -> None:
        """Pause the group."""
        await self._run("pause", milliseconds(pause.retry_after), reason[:_MAX_REASON])

    async def close(self) -> None:
        """Resume the group."""
        try:
            await self._member.client.call("HDEL", self._member.keys.paused, self._member.group)
        except EphemeraError:
            self.trial = None  # this one is over, and the next one resumes the group
            raise
        self._resume()

    async def refresh(self, *, has_event: bool) -> bool:
        """Ask the server for the group's state; True if this consumer may try one event."""
        may_try = has_event and self.paused and self.trial is None
        return await self._run("try" if may_try else "ask") == 0

    async def _run(self, verb: str, *arguments: int | str) -> int:
        member = self._member
        wait = int(await member.client.run(PAUSE, (member.keys.paused,), (member.group, verb, *arguments)))
        if wait == _NOT_PAUSED:
            self._resume()
        else:
            self.paused = True
            self.next_trial = monotonic() + wait / 1000
        return wait

    def _resume(self) -> None:
        if self.paused:
            log.warning("%r: %r resumes", self._member.key, self._member.group)
        self.paused, self.trial = False, None
        self._failures.clear()
