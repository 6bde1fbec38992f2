"""The locks held on a server: holders, since when, remaining leases, and number of waiters.

Locks are found by SCAN, so each was held at some moment of the scan. A lock that was released since is
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
from ephemera.patterns.locks import Holder, LockDeclaration, LockKeys, Locks, lock_keys, read_holders
from ephemera.wire import Client, open_client

_BATCH = 1000  # locks read in one round trip


class LockState(msgspec.Struct, frozen=True):
    """One holder of a lock; holder, fence and since are None while it is passed to the next waiter."""

    key: str
    pattern: str
    mode: str
    """`lock`, `read` or `write`, or the permit of a semaphore: `permit 0`."""
    holder: str | None
    fence: int | None
    since: datetime | None
    lease_left: float
    """Seconds until the lease expires, unless it is renewed."""
    waiters: int


async def held_locks(url: str, catalogue: Catalogue) -> list[LockState]:
    """The held locks of a catalogue on a server or a cluster, sorted by key; one for each holder."""
    async with open_client(url) as client:
        found = [
            held
            for locks in catalogue.patterns
            if isinstance(locks, LockDeclaration)
            for held in await read_locks(
                client, locks, await KeyFinder(client, locks.keyspace, limit=None).find_all()
            )
        ]
    return sorted(found, key=lambda held: held.key)


async def read_locks(client: Client, locks: LockDeclaration, keys: Sequence[str]) -> list[LockState]:
    """The held ones among these locks; one round trip per thousand."""
    found: list[LockState] = []
    for start in range(0, len(keys), _BATCH):
        reads = (_read_lock(client, locks, key) for key in keys[start : start + _BATCH])
        found += [held for each in await asyncio.gather(*reads) for held in each]
    return found


async def _read_lock(client: Client, locks: LockDeclaration, key: str) -> list[LockState]:
    fields: Any = locks.keyspace.template.parse_text(key)
    keys = lock_keys(locks, fields)
    read = _read_holder if isinstance(locks, Locks) else read_holders
    holders, waiters = await asyncio.gather(read(client, keys), client.call("ZCARD", keys.acquire[2]))
    return [
        LockState(
            key,
            str(locks.keyspace.pattern),
            holder.mode if holder.permit is None else f"permit {holder.permit}",
            holder.name or None,
            holder.fence or None,
            holder.since,
            left,
            waiters,
        )
        for holder, left in holders
    ]


async def _read_holder(client: Client, keys: LockKeys) -> list[tuple[Holder, float]]:
    """The holder of a lock, if it has one, and the seconds left of its lease."""
    (text, fence), left = await asyncio.gather(
        client.call("MGET", *keys.acquire[:2]), client.call("PTTL", keys.lock)
    )
    return [] if text is None else [(Holder.decode(text, fence), max(0, left) / 1000)]
