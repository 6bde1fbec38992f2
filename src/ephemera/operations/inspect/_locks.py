"""Which locks are held on a server: by whom, since when, until when, and how many wait for them.

Found by SCAN, so it is what was there at some moment of the scan, and never more than a page's work for the
server at a time. A lock that was given up meanwhile is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from ephemera.keyspace import Catalogue
from ephemera.operations.inspect._finder import Finder
from ephemera.patterns.locks import Holder, Locks
from ephemera.wire import Client, open_client

_AT_ONCE = 1000  # locks that are looked at in one trip


class LockState(msgspec.Struct, frozen=True):
    """One lock that is held; holder, fence and since are empty while it is handed over."""

    key: str
    pattern: str
    holder: str | None
    fence: int | None
    since: datetime | None
    lease_left: float
    """Seconds, unless it is renewed."""
    waiters: int


async def held_locks(url: str, catalogue: Catalogue) -> list[LockState]:
    """The held locks of a catalogue on a server or a cluster, by their keys."""
    async with open_client(url) as client:
        found = [
            held
            for locks in catalogue.patterns
            if isinstance(locks, Locks)
            for held in await looked_at(client, locks, await Finder(client, locks.keyspace, most=None).all())
        ]
    return sorted(found, key=lambda held: held.key)


async def looked_at(client: Client, locks: Locks, keys: Sequence[str]) -> list[LockState]:
    """Those of these locks that are held; one trip for every thousand of them."""
    found: list[LockState] = []
    for start in range(0, len(keys), _AT_ONCE):
        looks = (_looked_at(client, locks, key) for key in keys[start : start + _AT_ONCE])
        found += [held for held in await asyncio.gather(*looks) if held is not None]
    return found


async def _looked_at(client: Client, locks: Locks, key: str) -> LockState | None:
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
