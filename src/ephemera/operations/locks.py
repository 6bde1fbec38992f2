"""Which locks are held on a server: by whom, since when, until when, and how many wait for them.

Found by SCAN, so it is what was there at some moment of the scan, and never more than a page's work for the
server at a time. A lock that was given up meanwhile is left out.
"""

from __future__ import annotations

import asyncio
from datetime import datetime  # noqa: TC003 - msgspec reads the annotation
from typing import TYPE_CHECKING, Any

import msgspec

from ephemera.patterns.locks.declared import locks_of
from ephemera.patterns.locks.places import Holder
from ephemera.wire import open_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ephemera.keyspace import Catalogue
    from ephemera.patterns.locks import Locks
    from ephemera.wire import Client

_PAGE = 1000  # names that one SCAN asks for
_END = b"0"


class HeldLock(msgspec.Struct, frozen=True):
    """One lock that is held; holder, fence and since are empty while it is handed over."""

    key: str
    pattern: str
    holder: str | None
    fence: int | None
    since: datetime | None
    lease_left: float
    """Seconds, unless it is renewed."""
    waiters: int


async def held_locks(url: str, catalogue: Catalogue) -> list[HeldLock]:
    """The held locks of a catalogue on a server or a cluster, by their keys."""
    async with open_client(url) as client:
        found = [
            held
            for locks in locks_of(catalogue)
            async for page in _pages(client, locks)
            for held in await asyncio.gather(*(_looked_at(client, locks, key) for key in page))
            if held is not None
        ]
    return sorted(set(found), key=lambda held: held.key)


async def _pages(client: Client, locks: Locks) -> AsyncIterator[list[str]]:
    """The keys of locks, a page at a time; SCAN may show one twice."""
    words = ("MATCH", locks.space.template.glob, "TYPE", "string", "COUNT", _PAGE)
    for node in client.nodes():
        cursor = b""
        while cursor != _END:
            cursor, page = await node.call("SCAN", cursor or _END, *words)
            yield [name.decode() for name in page if locks.space.parse(name) is not None]


async def _looked_at(client: Client, locks: Locks, key: str) -> HeldLock | None:
    fields: Any = locks.space.parse(key)
    _, fences, queue = locks.place(fields).taken
    (text, fence), left, waiters = await asyncio.gather(
        client.call("MGET", key, fences), client.call("PTTL", key), client.call("ZCARD", queue)
    )
    if text is None:
        return None
    holder = Holder.read(text, fence)
    return HeldLock(
        key,
        locks.space.pattern,
        holder.name or None,
        holder.fence or None,
        holder.since,
        max(0, left) / 1000,
        waiters,
    )
