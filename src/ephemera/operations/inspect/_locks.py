"""The locks held on a server: holder, since when, remaining lease, and number of waiters.

Locks are found by SCAN, so each was held at some moment of the scan. A lock that was released meanwhile is
left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from ephemera.keyspace import Catalogue
from ephemera.operations.inspect._key_finder import KeyFinder
from ephemera.patterns.locks import Holder, Locks
from ephemera.wire import Client, open_client

_BATCH = 1000  # locks read in one round trip


class LockState(msgspec.Struct, frozen=True):
    """One held lock; holder, fence and since are None while it is passed to the next waiter."""

    key: str
    pattern: str
    holder: str | None
    fence: int | None
    since: datetime | None
    lease_left: float
    """Seconds until the lease expires, unless it is renewed."""
    waiters: int


async def held_locks(url: str, catalogue: Catalogue) -> list[LockState]:
    """The held locks of a catalogue on a server or a cluster, sorted by key."""
    async with open_client(url) as client:
        found = [
            held
            for locks in catalogue.patterns
            if isinstance(locks, Locks)
            for held in await read_locks(
                client, locks, await KeyFinder(client, locks.keyspace, limit=None).find_all()
            )
        ]
    return sorted(found, key=lambda held: held.key)


async def read_locks(client: Client, locks: Locks, keys: Sequence[str]) -> list[LockState]:
    """The held ones among these locks; one round trip per thousand."""
    found: list[LockState] = []
    for start in range(0, len(keys), _BATCH):
        reads = (_read_lock(client, locks, key) for key in keys[start : start + _BATCH])
        found += [held for held in await asyncio.gather(*reads) if held is not None]
    return found


async def _read_lock(client: Client, locks: Locks, key: str) -> LockState | None:
    fields: Any = locks.keyspace.parse(key)
    _, fences, queue = locks.keys(fields).acquire
    (text, fence), left, waiters = await asyncio.gather(
        client.call("MGET", key, fences), client.call("PTTL", key), client.call("ZCARD", queue)
    )
    if text is None:
        return None
    holder = Holder.decode(text, fence)
    return LockState(
        key,
        locks.keyspace.pattern,
        holder.name or None,
        holder.fence or None,
        holder.since,
        max(0, left) / 1000,
        waiters,
    )
