"""The keys of a lock, and its holders as the server names them.

A lock has one holder, a string `token name`. A semaphore or a read-write lock has several: a sorted set of
their tokens by the end of their leases, and a hash of what was granted to each.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from ephemera._stored_numbers import stored_int, stored_time
from ephemera.keyspace import FieldValue
from ephemera.wire import Client, as_text

Kind: TypeAlias = Literal["", "p", "r", "w"]
"""What a token is for, its first letter: a permit, reading or writing; none for a lock."""

Mode: TypeAlias = Literal["lock", "permit", "read", "write"]
_MODES: dict[str, Mode] = {"p": "permit", "r": "read", "w": "write"}
_HOLDERS_READ = 1000
_GRANT = re.compile(rb"(\d{1,4}) (\d{1,17}) (\d{1,17}) (.{0,500})", re.DOTALL)


class LockKeys(NamedTuple):
    """The keys of one lock, grouped as its scripts take them."""

    acquire: tuple[str, ...]  # the lock or its holders, its fence counter, its waiters, its grants if shared
    renew: tuple[str, ...]
    release: tuple[str, ...]
    fields: dict[str, FieldValue]

    @property
    def lock(self) -> str:
        """The key of the lock itself."""
        return self.acquire[0]


class Holder(NamedTuple):
    """A holder; without a name and with fence 0 while the lock is offered to a waiter."""

    name: str
    fence: int
    mode: Mode = "lock"
    permit: int | None = None
    """The number of the permit, from 0, of a semaphore."""
    acquired: int = 0
    """When it was acquired, in microseconds since 1970 by the server's clock."""

    @classmethod
    def decode(cls, stored: bytes, fence: bytes | None) -> Holder:
        """Decode the values of a lock and of its fence counter."""
        name = stored.decode("utf-8", "replace").partition(" ")[2]
        known = (stored_int(fence) or 0) if name else 0
        return cls(name, known, acquired=known)

    @classmethod
    def decode_grant(cls, token: str, grant: bytes) -> Holder:
        """Decode a grant of a semaphore or a read-write lock; one of another program has no name."""
        mode = _MODES.get(token[:1], "lock")
        found = _GRANT.fullmatch(grant)
        if found is None:
            return cls("", 0, mode)
        permit, fence, acquired = (int(each) for each in found.groups()[:3])
        name = found[4].decode("utf-8", "replace")
        number = permit if mode == "permit" else None
        return cls(name, fence if name else 0, mode, number, acquired if name else 0)

    @property
    def since(self) -> datetime | None:
        """When the lock was acquired, by the server's clock; None while it is offered to a waiter."""
        return stored_time(self.acquired / 1_000_000) if self.acquired else None


async def read_holders(client: Client, keys: LockKeys) -> list[tuple[Holder, float]]:
    """Up to a thousand holders of a semaphore or a read-write lock, and the seconds left of their leases."""
    holders, _, _, grants = keys.acquire
    (seconds, rest), ends, granted = await asyncio.gather(
        client.call("TIME"),
        client.call("ZRANDMEMBER", holders, _HOLDERS_READ, "WITHSCORES"),
        client.call("HGETALL", grants),
    )
    now = int(seconds) * 1_000_000 + int(rest)
    found = [
        (Holder.decode_grant(as_text(member), granted[member]), (float(end) - now) / 1_000_000)
        for member, end in ends
        if now < float(end) < inf and member in granted
    ]
    return sorted(found, key=lambda each: each[0].acquired)
