"""A consumer as the server knows it: one member of a group, and the scripts that it runs on its stream."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ephemera.keyspace import FieldValue
from ephemera.patterns.events._entries import Letter, payload
from ephemera.wire import Client, Script

if TYPE_CHECKING:
    from ephemera.patterns.events._declaration import Events

CLAIM = Script.load("ephemera.patterns.events", "claim")
KEEP = Script.load("ephemera.patterns.events", "keep")
BURY = Script.load("ephemera.patterns.events", "bury")
TRIM = Script.load("ephemera.patterns.events", "trim")
LEAVE = Script.load("ephemera.patterns.events", "leave")

BLOCK = 5000
"""Milliseconds that a read waits for an event."""
_FORGOTTEN = 60_000  # milliseconds that an idle consumer without pending events is kept at least
_KEPT_TOGETHER = 100
_MOST_OF_AN_ERROR = 1000  # characters

Held = tuple[bytes, int, int]
"""An entry's id, its idle time in milliseconds, and how often it was delivered."""


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer of one group, under a name that no other has."""

    client: Client
    declared: Events[Any]
    key: str
    dead: str
    group: str
    name: str

    @classmethod
    def join(
        cls, client: Client, declared: Events[Any], fields: Mapping[str, FieldValue], group: str
    ) -> Member:
        """A new member; the server hears of it when it first reads."""
        name = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        return cls(client, declared, *declared.keys(fields), group, name)

    @property
    def lease(self) -> int:
        """Milliseconds of silence after which an entry is taken over."""
        return round(self.declared.lease.total_seconds() * 1000)

    def delay(self, attempt: int) -> int:
        """Milliseconds from a failed attempt to the next."""
        first = self.declared.first_retry.total_seconds() * 1000
        return int(min(self.lease, first * (1 << min(attempt - 1, 32))))

    async def read(self, count: int, *, block: bool) -> list[tuple[bytes, list[bytes]]]:
        """New entries for this member; none after a block of five seconds, or at once."""
        waiting = ("BLOCK", BLOCK) if block else ()
        read = await self.client.call(
            "XREADGROUP", "GROUP", self.group, self.name, "COUNT", count, *waiting, "STREAMS", self.key, ">"
        )
        return next(iter(read.values())) if read else []

    def ack(self, ids: Iterable[bytes]) -> Awaitable[int]:
        """Say that these are handled."""
        return self.client.call("XACK", self.key, self.group, *ids)

    async def claim(self, cursor: bytes, count: int) -> tuple[bytes, list[tuple[bytes, list[bytes], int]]]:
        """Take over what nobody has spoken of for a lease."""
        words = (self.group, self.name, self.lease, cursor, count)
        following, entries = await self.client.run(CLAIM, (self.key,), words)
        return following, entries

    async def keep(self, held: Sequence[Held]) -> None:
        """Set the idle times of entries that are this member's."""
        for start in range(0, len(held), _KEPT_TOGETHER):
            words = [word for each in held[start : start + _KEPT_TOGETHER] for word in each]
            await self.client.run(KEEP, (self.key,), (self.group, self.name, *words))

    async def bury(
        self, entry_id: bytes, flat: Sequence[bytes], error: str, attempt: int, origin: str
    ) -> bool:
        """Make an entry a dead letter; False when the group has it no more."""
        letter = Letter(payload(flat), error[:_MOST_OF_AN_ERROR], attempt, origin, self.key, self.group)
        fields = self.declared.dead.codec.encode(letter)  # type: ignore[union-attr]
        words = (self.group, entry_id, self.declared.dead_letters, *fields)
        return bool(await self.client.run(BURY, (self.key, self.dead), words))

    async def trim(self) -> int:
        """Remove what every group has handled."""
        return int(await self.client.run(TRIM, (self.key,)))

    async def leave(self) -> bool:
        """Be forgotten, if nothing is pending."""
        return bool(await self._forget(self.name))

    async def forget_the_gone(self) -> None:
        """Remove the names of consumers that are gone, and left nothing behind."""
        await self._forget("")

    async def unseen(self, after: bytes) -> list[Held]:
        """What was delivered to this member after an id, and whose delivery it did not hear of."""
        pending = await self.client.call(
            "XPENDING", self.key, self.group, b"(" + after, "+", _KEPT_TOGETHER, self.name
        )
        return [(entry_id, self.lease, max(0, times - 1)) for entry_id, _, _, times in pending]

    def _forget(self, name: str) -> Awaitable[int]:
        return self.client.run(LEAVE, (self.key,), (self.group, name, max(_FORGOTTEN, 2 * self.lease)))
