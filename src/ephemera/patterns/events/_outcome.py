"""What became of events, told to the server in batches: acknowledgements, retries and dead letters.

All that is handled in one tick of the loop is acknowledged by one XACK, which leaves in the same write as the
next read. A failed event gets an idle time that makes it a lease old when its retry is due, so the pending
list itself is the schedule: whoever looks next then takes it, also when this process is gone by then.
Acknowledgements that did not reach the server are repeated; the rest need not be, since an entry of which
nobody speaks is taken over after a lease.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Coroutine, Sequence
from time import monotonic
from typing import Any

from ephemera.errors import ConnectionFailed, EphemeraError
from ephemera.patterns.events._members import Member
from ephemera.patterns.events._worker import Taken

log = logging.getLogger("ephemera.events")

_MARGIN = 0.005  # seconds after which a due entry certainly is a lease old by the server's clock


class Counts:
    """What a consumer has done since it began; plain numbers, read at any time."""

    __slots__ = ("acked", "dead", "failed", "handled")

    def __init__(self) -> None:
        self.handled = 0
        """Attempts that went well."""
        self.failed = 0
        """Attempts that did not."""
        self.acked = 0
        """Acknowledged on the server; events that are for other groups are, too."""
        self.dead = 0
        """Made dead letters."""

    def add(self, other: Counts) -> None:
        """Add what another has done."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __repr__(self) -> str:
        return "Counts(" + ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__) + ")"


class Tallies:
    """What all consumers of a store have done, by group; also those that have ended."""

    def __init__(self) -> None:
        self._running: list[tuple[str, Counts]] = []
        self._ended: dict[str, Counts] = {}

    def begin(self, group: str, counts: Counts) -> None:
        """Count a consumer from now on."""
        self._running.append((group, counts))

    def end(self, group: str, counts: Counts) -> None:
        """Keep what a consumer has done."""
        self._running.remove((group, counts))
        self._ended.setdefault(group, Counts()).add(counts)

    def by_group(self) -> dict[str, Counts]:
        """The sums of this moment."""
        sums: dict[str, Counts] = {}
        for group, counts in [*self._ended.items(), *self._running]:
            sums.setdefault(group, Counts()).add(counts)
        return sums


class Outcomes:
    """The outcomes of one consumer."""

    def __init__(self, member: Member, counts: Counts) -> None:
        self.retries: list[float] = []
        """When retries are due, by `monotonic`: a heap."""
        self.looks_at = 0.0
        """When somebody will look at them."""
        self.sooner = asyncio.Event()
        """That one is due before that."""
        self._member = member
        self._counts = counts
        self._acks: list[bytes] = []
        self._on_their_way: set[asyncio.Future[Any]] = set()
        self._flushing = False
        self._loop = asyncio.get_running_loop()

    def ack(self, entry_id: bytes) -> None:
        """Acknowledge an entry at the end of this tick."""
        self._acks.append(entry_id)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def is_acking(self, entry_id: bytes) -> bool:
        """Whether an entry is handled, and the server could not be told yet."""
        return entry_id in self._acks

    def failed(self, taken: Taken, error: BaseException) -> None:
        """Have an event tried again later, or make it a dead letter."""
        self._counts.failed += 1
        told = f"{type(error).__name__}: {error}"
        member, delivery = self._member, taken.delivery
        if delivery.attempt >= member.declared.deliveries:
            log.error("%r: %s is a dead letter of %r: %s", member.key, delivery.id, member.group, told)
            self.bury(taken.id, taken.flat, told, delivery.attempt, delivery.origin)
        else:
            log.warning(
                "%r: attempt %d at %s by %r failed: %s",
                member.key, delivery.attempt, delivery.id, member.group, told,
            )  # fmt: skip
            self._spawn(self._retry_later(taken.id, delivery.attempt))

    def bury(
        self, entry_id: bytes, flat: Sequence[bytes], error: str, attempt: int, origin: str | None
    ) -> None:
        """Make an entry a dead letter."""
        self._spawn(self._bury(entry_id, flat, error, attempt, origin or entry_id.decode()))

    def flush(self) -> None:
        """Send the acknowledgements that are due, also those that could not be sent before."""
        self._flushing = False
        ids, self._acks = self._acks, []
        if not ids:
            return
        try:
            sent = asyncio.ensure_future(self._member.ack(ids))
        except EphemeraError:
            self._acks = ids
            return
        self._on_their_way.add(sent)

        def settle(done: asyncio.Future[int]) -> None:
            self._on_their_way.discard(done)
            self._settled(done, ids)

        sent.add_done_callback(settle)

    async def finish(self) -> None:
        """Wait until the server knows everything, or cannot be told."""
        self.flush()
        while self._on_their_way:
            await asyncio.wait(self._on_their_way)

    def _settled(self, done: asyncio.Future[int], ids: list[bytes]) -> None:
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
        task = self._loop.create_task(self._quietly(work))
        self._on_their_way.add(task)
        task.add_done_callback(self._on_their_way.discard)

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EphemeraError as problem:
            log.warning("%r: an outcome is not told, its event comes again: %s", self._member.key, problem)

    async def _retry_later(self, entry_id: bytes, attempt: int) -> None:
        member = self._member
        delay = member.delay(attempt)
        await member.keep([(entry_id, member.lease - delay, attempt)])
        due = monotonic() + delay / 1000 + _MARGIN
        heapq.heappush(self.retries, due)
        if due < self.looks_at:
            self.sooner.set()

    async def _bury(
        self, entry_id: bytes, flat: Sequence[bytes], error: str, attempt: int, origin: str
    ) -> None:
        self._counts.dead += await self._member.bury(entry_id, flat, error, attempt, origin)
