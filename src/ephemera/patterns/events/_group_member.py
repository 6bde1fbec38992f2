"""One consumer of a group as the server knows it: its commands and scripts, and the wait for new events.

The idle time of a pending entry says what it waits for. While a consumer handles it, it is renewed, so it
stays below a lease. If it grows beyond that, the consumer died or hangs: the entry is *abandoned*. An entry
with an outcome, one that failed or was returned, has an idle time of about ten years: it is *due* when it
reaches them, so a retry in a minute is set to ten years less a minute. The pending list is the schedule.

A consumer that waits alone waits in XREADGROUP, on a dedicated connection, and gets its events with the
reply. All others of a process wait in one XREAD on all their streams, on a second connection; when a stream
has news, its consumers read them on the shared connection. XREAD delivers nothing, so it may end at any time:
one more consumer that has to wait ends it by an entry on a stream of the process's own, and it starts again
with one stream more. On a cluster, only streams of one slot can share an XREAD.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ephemera._futures import discard
from ephemera.errors import EphemeraError
from ephemera.keyspace import RecordCodec, Store, milliseconds
from ephemera.patterns.events._entries import DeadLetterEntry, dead_letter_entry
from ephemera.patterns.events._group_info import StreamKeys, create_group
from ephemera.patterns.events._policy import DeliveryPolicy
from ephemera.wire import Client, Script, key_slot

log = logging.getLogger("ephemera.events")

_PACKAGE = "ephemera.patterns.events"
_ORDER = (f"{_PACKAGE}:order",)
CLAIM = Script.load(_PACKAGE, "claim", shared=_ORDER)
READ_ORDERED = Script.load(_PACKAGE, "read_ordered", shared=_ORDER)
FINISH_ORDERED = Script.load(_PACKAGE, "finish_ordered", shared=_ORDER)
DROP_LANES = Script.load(_PACKAGE, "drop_lanes", shared=_ORDER)
DEAD_LETTER = Script.load(_PACKAGE, "dead_letter", shared=_ORDER)
SET_IDLE = Script.load(_PACKAGE, "set_idle")
TRIM = Script.load(_PACKAGE, "trim")
REMOVE_CONSUMERS = Script.load(_PACKAGE, "remove_consumers")

DUE = 10 * 365 * 86_400_000
"""The idle time in milliseconds at which an entry that has an outcome is due."""
WITH_OUTCOME = DUE // 2
"""Idle times from here on are those of entries that have an outcome."""
NO_LIMIT = 2 * DUE
BLOCK = 5000
"""Milliseconds that a read waits for an event."""
LANES_LIFETIME = 7 * 86_400_000  # milliseconds
_MAX_UNFINISHED = 10_000  # events of an ordered stream that wait in the lanes of one group
_TOO_MANY = 2  # the reply of a read when there are too many
_CONSUMER_IDLE = 60_000  # milliseconds for which an idle consumer without pending events is kept at least
_BATCH = 100  # entries
_MAX_ERROR = 1000  # characters

PendingState = tuple[bytes, int, int]
"""What XCLAIM sets of a pending entry: its id, its idle time in milliseconds, its number of deliveries."""
NewEntry = tuple[bytes, list[bytes]]
ClaimedEntry = tuple[bytes, list[bytes], int]
"""An entry with its number of deliveries, this one included."""

RING = Script.load("ephemera.patterns.events", "ring")

BELL_LIFETIME = 60_000
"""Milliseconds for which the stream that ends an XREAD exists."""
_LANES_FULL_DELAY = 0.05  # seconds until a stream is read again that has too many unfinished events
_START = b"0-0"


class IdleTime(NamedTuple):
    """What the idle time of a pending entry says, in seconds."""

    idle: float
    """Since its consumer last gave a sign of life; 0 if it waits for a retry."""
    retry_in: float | None
    """Until its retry is due; None if it has no outcome yet."""

    @classmethod
    def decode(cls, idle: int) -> IdleTime:
        """Decode XPENDING's milliseconds."""
        if idle < WITH_OUTCOME:
            return cls(idle / 1000, None)
        return cls(0.0, max(0, DUE - idle) / 1000)


def due_in(delay: int, entry_id: bytes, deliveries: int) -> PendingState:
    """The state of an entry that any consumer may claim after this many milliseconds."""
    return entry_id, DUE - delay, deliveries


def consumer_name() -> str:
    """A name that no other consumer has: host, process and a token."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """One consumer of one group."""

    client: Client
    policy: DeliveryPolicy
    letter_codec: RecordCodec[DeadLetterEntry]
    keys: StreamKeys
    group: str
    name: str
    lanes: str | None = None
    """The key of the lanes, if the stream is ordered by key."""

    @property
    def key(self) -> str:
        """The key of the stream."""
        return self.keys.stream

    async def read(self, count: int, *, block: bool) -> list[NewEntry]:
        """New entries for this consumer; none after blocking for five seconds, or at once."""
        waiting = ("BLOCK", BLOCK) if block else ()
        read = await self.client.call(
            "XREADGROUP", "GROUP", self.group, self.name, "COUNT", count, *waiting, "STREAMS", self.key, ">"
        )
        return next(iter(read.values())) if read else []

    def ack(self, ids: Iterable[bytes]) -> Awaitable[int]:
        """Acknowledge entries."""
        return self.client.call("XACK", self.key, self.group, *ids)

    async def claim(
        self, idle: tuple[int, int], cursor: bytes, count: int
    ) -> tuple[bytes, list[ClaimedEntry]]:
        """Claim entries whose idle time is within bounds; returns the next cursor, too."""
        keys = (self.key,) if self.lanes is None else (self.key, self.lanes)
        arguments = (self.group, self.name, *idle, cursor, count, _BATCH, LANES_LIFETIME)
        following, entries = await self.client.run(CLAIM, keys, arguments)
        return following, entries

    async def set_idle(self, states: Sequence[PendingState]) -> None:
        """Set the idle times of entries, if they are still pending for this consumer."""
        for start in range(0, len(states), _BATCH):
            flat = [part for each in states[start : start + _BATCH] for part in each]
            await self.client.run(SET_IDLE, (self.key,), (self.group, self.name, *flat))

    async def dead_letter(
        self, entry_id: bytes, flat: Sequence[bytes], error: str, attempt: int, origin: str
    ) -> bool:
        """Move an entry to the dead letters; False if it is no longer pending for this consumer."""
        letter = dead_letter_entry(flat, error[:_MAX_ERROR], attempt, origin, self.key, self.group)
        fields = self.letter_codec.encode(letter)
        most = self.policy.max_dead_letters
        arguments: list[Any] = [self.group, self.name, entry_id, most, DUE, *fields]
        keys = (self.key, self.keys.dead, *(() if self.lanes is None else (self.lanes,)))
        return bool(await self.client.run(DEAD_LETTER, keys, arguments))

    async def trim(self) -> int:
        """Remove the events that every group has handled, and that are not retained."""
        return int(await self.client.run(TRIM, (self.key,), (milliseconds(self.policy.retention),)))

    async def leave(self) -> bool:
        """Remove this consumer from its group, unless events are pending for it."""
        return bool(await self._remove_consumers(self.name))

    async def create_group(self) -> bool:
        """Create the group, and its stream if necessary; False if it existed."""
        return await create_group(self.client, self.key, self.group)

    async def recreate_group(self) -> None:
        """Create a group that the server has lost."""
        if await self.create_group():
            log.warning(
                "%r: the group %r was lost; it starts again at the first event there is", self.key, self.group
            )

    async def remove_leftovers(self) -> None:
        """Remove consumers that are idle for long and have nothing pending."""
        await self._remove_consumers("")

    async def lost_deliveries(self, after: bytes) -> list[PendingState]:
        """Entries delivered to this consumer after an id, in replies that never arrived."""
        pending = await self.client.call(
            "XPENDING", self.key, self.group, b"(" + after, "+", _BATCH, self.name
        )
        return [
            due_in(0, entry_id, max(0, times - 1))
            for entry_id, _, idle, times in pending
            if idle < WITH_OUTCOME
        ]

    def _remove_consumers(self, name: str) -> Awaitable[int]:
        idle = max(_CONSUMER_IDLE, 2 * self.policy.lease_milliseconds)
        return self.client.run(REMOVE_CONSUMERS, (self.key,), (self.group, name, idle))


@dataclass(slots=True)
class Successors:
    """Where the next events of keys go whose event was acknowledged."""

    wanted: bool = True
    """False once the consumer stops: then other consumers get them."""
    accept: Callable[[Sequence[ClaimedEntry]], None] | None = None
    too_many: bool = False
    """Whether too many events wait for others of their keys to read more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedGroupMember(ConsumerGroupMember):
    """A consumer of a stream that is ordered by key: it gets only the first unfinished event of each."""

    lanes: str
    successors: Successors

    async def read(self, count: int, *, block: bool) -> list[NewEntry]:  # noqa: ARG002 - it never blocks
        """New entries that may be handled now."""
        arguments = (self.group, self.name, count, _MAX_UNFINISHED, LANES_LIFETIME)
        entries: list[NewEntry] = []
        more = 1
        while more == 1 and not entries:
            more, entries = await self.client.run(READ_ORDERED, (self.key, self.lanes), arguments)
        self.successors.too_many = more == _TOO_MANY
        return entries

    async def create_group(self) -> bool:
        """Create the group without what the lanes still have of one that was deleted."""
        await self.client.run(DROP_LANES, (self.key, self.lanes), ())
        return await ConsumerGroupMember.create_group(self)

    async def remove_leftovers(self) -> None:
        """Remove idle consumers, and the lanes of groups that were deleted."""
        await ConsumerGroupMember.remove_leftovers(self)
        await self.client.run(DROP_LANES, (self.key, self.lanes), ())

    async def ack(self, ids: Iterable[bytes]) -> int:
        """Acknowledge entries, and take the next ones of their keys."""
        arguments = (self.group, self.name, "take" if self.successors.wanted else "", DUE, *ids)
        acked, entries = await self.client.run(FINISH_ORDERED, (self.key, self.lanes), arguments)
        if entries and self.successors.accept is not None:
            self.successors.accept(entries)
        return int(acked)


class SharedReads:
    """The reads of all consumers on one client."""

    def __init__(self, client: Client) -> None:
        self.reader = secrets.token_hex(8)
        """Names the streams that end an XREAD of this process."""
        self._client = client
        self._bells: dict[int | None, Doorbell] = {}
        self._alone: set[int | None] = set()

    async def read(
        self, member: ConsumerGroupMember, bell: Callable[[str], str], count: int
    ) -> list[NewEntry]:
        """New entries of a stream; may return none after it has waited for them."""
        slot = key_slot(member.key) if self._client.is_cluster else None
        if slot not in self._alone and not isinstance(member, OrderedGroupMember):
            self._alone.add(slot)
            try:
                return await member.read(count, block=True)
            finally:
                self._alone.discard(slot)
        # Sent before the read: if that returns nothing, the group has everything up to this entry.
        newest = asyncio.ensure_future(self._client.call("XREVRANGE", member.key, "+", "-", "COUNT", 1))
        discard(newest)
        entries = await member.read(count, block=False)
        if isinstance(member, OrderedGroupMember) and member.successors.too_many:
            await asyncio.sleep(_LANES_FULL_DELAY)
        elif not entries:
            found = await newest
            if slot not in self._bells:
                self._bells[slot] = Doorbell(self._client, bell(self.reader))
            await self._bells[slot].wait(member.key, found[0][0] if found else _START)
        return entries


class Doorbell:
    """One XREAD for all streams that consumers wait for."""

    def __init__(self, client: Client, own: str) -> None:
        self._client = client
        self._own = own
        self._last_ring = _START
        self._waiting: dict[asyncio.Future[None], tuple[str, bytes]] = {}
        self._task: asyncio.Task[None] | None = None
        self._rings: asyncio.Future[Any] | None = None
        self._reader: asyncio.Task[None] | None = None  # the task whose XREAD is under way

    async def wait(self, key: str, last: bytes) -> None:
        """Wait until a stream may have entries after an id, or some seconds have passed."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = (key, last)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="ephemera-events-wait")
        elif self._reader is self._task and self._rings is None:
            self._rings = asyncio.ensure_future(self._ring())
        try:
            await waiter
        finally:
            self._waiting.pop(waiter, None)
            if not self._waiting and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _ring(self) -> None:
        try:
            await self._client.run(RING, (self._own,), (BELL_LIFETIME,))
        except EphemeraError as problem:
            self._release(set(), problem)

    async def _run(self) -> None:
        """Read until no consumer waits."""
        try:
            while self._waiting:
                await asyncio.sleep(0)  # consumers that begin to wait in the same tick share the read
                self._release(await self._read(), None)
        except EphemeraError as problem:
            self._release(set(), problem)
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _read(self) -> set[str] | None:
        """The streams that may have news; None if the time is over."""
        last: dict[str, bytes] = {}
        for key, after in self._waiting.values():
            last[key] = min(after, last.get(key, after), key=id_order)
        reader = asyncio.current_task()
        self._reader, self._rings = reader, None
        try:
            found = await self._client.call(
                "XREAD",
                "COUNT",
                1,
                "BLOCK",
                BLOCK,
                "STREAMS",
                self._own,
                *last,
                self._last_ring,
                *last.values(),
            )
        finally:
            if self._reader is reader:  # a cancelled task may end after its successor has begun to read
                self._reader = None
        if not found:
            return None
        for entry_id, _ in found.pop(self._own.encode(), ()):
            self._last_ring = entry_id
        return {key.decode() for key in found}

    def _release(self, keys: set[str] | None, problem: EphemeraError | None) -> None:
        """Wake the consumers of some streams, or all of them."""
        for waiter, (key, _) in self._waiting.items():
            if waiter.done() or not (problem or keys is None or key in keys):
                continue
            if problem is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(problem)


class SharedReadsOf:
    """The declaration by which a store has one `SharedReads`."""

    def bind(self, store: Store) -> SharedReads:
        """The reads of a store."""
        return SharedReads(store.client("queue"))


SHARED_READS = SharedReadsOf()


def id_order(entry_id: bytes) -> tuple[int, ...]:
    """The order of the ids of a stream's entries."""
    return tuple(map(int, entry_id.split(b"-")))
