"""A consumer group, and one consumer of it as the server knows it.

A group starts at the first event that the stream still has, both when it is new and when it had to be created
again because the server lost it. So no event that is present is missed; what was handled shortly before the
loss, and not trimmed yet, is delivered once more.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from ephemera.errors import ServerError
from ephemera.keyspace import RecordCodec
from ephemera.patterns.events._entries import DeadLetterEntry, payload
from ephemera.wire import Client, Script

log = logging.getLogger("ephemera.events")

CLAIM = Script.load("ephemera.patterns.events", "claim")
SET_IDLE = Script.load("ephemera.patterns.events", "set_idle")
DEAD_LETTER = Script.load("ephemera.patterns.events", "dead_letter")
TRIM = Script.load("ephemera.patterns.events", "trim")
REMOVE_CONSUMERS = Script.load("ephemera.patterns.events", "remove_consumers")

GROUP_MISSING = ("NOGROUP", "UNBLOCKED")
"""The server's errors for a group that it does not have, and for a wait on a stream that was deleted."""
BLOCK = 5000
"""Milliseconds that a read waits for an event."""
_CONSUMER_IDLE = 60_000  # milliseconds for which an idle consumer without pending events is kept at least
_BATCH = 100  # entries
_MAX_ERROR = 1000  # characters

PendingState = tuple[bytes, int, int]
"""What XCLAIM sets of a pending entry: its id, its idle time in milliseconds, its number of deliveries."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """How often and after what delays events are delivered."""

    max_deliveries: int = 10
    """After so many failed deliveries an event becomes a dead letter."""
    first_retry: timedelta = timedelta(seconds=1)
    """The delay before the second delivery; it doubles each time, up to a lease."""
    lease: timedelta = timedelta(seconds=60)
    """After so long without a sign of life from its consumer, a pending event is claimed by another one."""
    max_dead_letters: int = 100_000
    """How many of the newest dead letters are kept."""

    @property
    def lease_milliseconds(self) -> int:
        """The lease as Redis takes it."""
        return round(self.lease.total_seconds() * 1000)

    def retry_delay(self, attempt: int) -> int:
        """Milliseconds between a failed attempt and the next one."""
        first = self.first_retry.total_seconds() * 1000
        return int(min(self.lease_milliseconds, first * (1 << min(attempt - 1, 32))))


class GroupInfo(msgspec.Struct, frozen=True):
    """The state of one consumer group."""

    name: str
    consumers: int
    pending: int
    """Delivered and not acknowledged: being handled, or waiting for a retry."""
    lag: int | None
    """Not delivered yet; None if the server cannot tell."""


class StreamInfo(msgspec.Struct, frozen=True):
    """The state of a stream and its groups: what `info()` returns."""

    key: str
    length: int
    dead: int
    """How many dead letters there are."""
    groups: tuple[GroupInfo, ...]


async def create_group(client: Client, key: str, group: str) -> bool:
    """Create a group, and its stream if necessary; False if it existed."""
    try:
        await client.call("XGROUP", "CREATE", key, group, "0", "MKSTREAM")
    except ServerError as error:
        if error.code != "BUSYGROUP":
            raise
        return False
    return True


async def recreate_group(client: Client, key: str, group: str) -> None:
    """Create a group that the server has lost."""
    if await create_group(client, key, group):
        log.warning("%r: the group %r was lost; it starts again at the first event there is", key, group)


async def stream_info(client: Client, key: str, dead: str) -> StreamInfo:
    """Inspect a stream; one round trip."""
    length, letters = client.call("XLEN", key), client.call("XLEN", dead)
    known = client.call("XINFO", "GROUPS", key)
    try:
        groups = await known
    except ServerError as error:
        if "no such key" not in error.message:
            raise
        groups = []
    return StreamInfo(key, await length, await letters, tuple(map(_group_info, groups)))


def _group_info(found: dict[bytes, Any]) -> GroupInfo:
    name = found[b"name"].decode("utf-8", "backslashreplace")
    return GroupInfo(name, found[b"consumers"], found[b"pending"], found.get(b"lag"))


def consumer_name() -> str:
    """A name that no other consumer has: host, process and a token."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """One consumer of one group, and the commands and scripts that it runs on its stream."""

    client: Client
    policy: DeliveryPolicy
    letter_codec: RecordCodec[DeadLetterEntry]
    key: str
    dead: str
    """The key of the dead letters."""
    group: str
    name: str

    async def read(self, count: int, *, block: bool) -> list[tuple[bytes, list[bytes]]]:
        """New entries for this consumer; none after blocking for five seconds, or at once."""
        waiting = ("BLOCK", BLOCK) if block else ()
        read = await self.client.call(
            "XREADGROUP", "GROUP", self.group, self.name, "COUNT", count, *waiting, "STREAMS", self.key, ">"
        )
        return next(iter(read.values())) if read else []

    def ack(self, ids: Iterable[bytes]) -> Awaitable[int]:
        """Acknowledge entries."""
        return self.client.call("XACK", self.key, self.group, *ids)

    async def claim(self, cursor: bytes, count: int) -> tuple[bytes, list[tuple[bytes, list[bytes], int]]]:
        """Claim entries that have been idle for a lease."""
        arguments = (self.group, self.name, self.policy.lease_milliseconds, cursor, count)
        following, entries = await self.client.run(CLAIM, (self.key,), arguments)
        return following, entries

    async def set_idle(self, states: Sequence[PendingState]) -> None:
        """Set the idle times of entries, if they are still pending for this consumer."""
        for start in range(0, len(states), _BATCH):
            flat = [part for each in states[start : start + _BATCH] for part in each]
            await self.client.run(SET_IDLE, (self.key,), (self.group, self.name, *flat))

    async def dead_letter(
        self, entry_id: bytes, flat: Sequence[bytes], error: str, attempt: int, origin: str
    ) -> bool:
        """Move an entry to the dead letters; False if it is no longer pending."""
        letter = DeadLetterEntry(payload(flat), error[:_MAX_ERROR], attempt, origin, self.key, self.group)
        fields = self.letter_codec.encode(letter)
        arguments: list[Any] = [self.group, entry_id, self.policy.max_dead_letters, *fields]
        return bool(await self.client.run(DEAD_LETTER, (self.key, self.dead), arguments))

    async def trim(self) -> int:
        """Remove the events that every group has handled."""
        return int(await self.client.run(TRIM, (self.key,)))

    async def leave(self) -> bool:
        """Remove this consumer from its group, unless events are pending for it."""
        return bool(await self._remove_consumers(self.name))

    async def remove_idle_consumers(self) -> None:
        """Remove consumers that are idle for long and have nothing pending."""
        await self._remove_consumers("")

    async def lost_deliveries(self, after: bytes) -> list[PendingState]:
        """Entries delivered to this consumer after an id, in replies that never arrived."""
        pending = await self.client.call(
            "XPENDING", self.key, self.group, b"(" + after, "+", _BATCH, self.name
        )
        lease = self.policy.lease_milliseconds
        return [(entry_id, lease, max(0, times - 1)) for entry_id, _, _, times in pending]

    def _remove_consumers(self, name: str) -> Awaitable[int]:
        idle = max(_CONSUMER_IDLE, 2 * self.policy.lease_milliseconds)
        return self.client.run(REMOVE_CONSUMERS, (self.key,), (self.group, name, idle))
