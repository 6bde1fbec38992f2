"""Locks, semaphores and read-write locks for tests, with long and short leases; and conditions to await."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from ephemera import Catalogue, Store
from ephemera.patterns.locks import LockDeclaration, Locks, ReadWriteLocks, Semaphores

CATALOGUE = Catalogue("test-locks")
LOCKS = Locks(
    CATALOGUE, "lock:{name}", lease=timedelta(seconds=30), purpose="A lock whose lease never ends in a test"
)
BRIEF = Locks(
    CATALOGUE, "brief:{name}", lease=timedelta(milliseconds=600), purpose="A lock whose lease ends soon"
)
KEPT = Locks(CATALOGUE, "kept:{name}", lease=timedelta(seconds=3), purpose="A lock to be renewed")
ALONE = Locks(CATALOGUE, "lock-of-all:here", lease=timedelta(seconds=30), purpose="The only one of its kind")
PAIRS = Locks(CATALOGUE, "pair:{org}:{doc}", lease=timedelta(seconds=30), purpose="A lock of two fields")
POOL = Semaphores(
    CATALOGUE, "pool:{name}", permits=3, lease=timedelta(seconds=30), purpose="Permits whose leases never end"
)
BRIEF_POOL = Semaphores(
    CATALOGUE, "brief-pool:{name}", permits=2, lease=timedelta(milliseconds=600), purpose="Short leases"
)
KEPT_POOL = Semaphores(
    CATALOGUE, "kept-pool:{name}", permits=2, lease=timedelta(seconds=3), purpose="Permits to be renewed"
)
WIDE_POOL = Semaphores(
    CATALOGUE, "wide-pool:{name}", permits=50, lease=timedelta(seconds=30), purpose="Many permits"
)
GATE = Semaphores(
    CATALOGUE, "gate:here", permits=1, lease=timedelta(seconds=30), purpose="The only one of its kind"
)
SHELF = ReadWriteLocks(
    CATALOGUE, "shelf:{name}", lease=timedelta(seconds=30), purpose="Read and written; leases never end"
)
BRIEF_SHELF = ReadWriteLocks(
    CATALOGUE, "brief-shelf:{name}", lease=timedelta(milliseconds=600), purpose="Short leases"
)
KEPT_SHELF = ReadWriteLocks(
    CATALOGUE, "kept-shelf:{name}", lease=timedelta(seconds=3), purpose="Read and written, to be renewed"
)


async def until(condition: Callable[[], Awaitable[Any]], within: float = 60.0) -> float:
    """Wait until a condition holds and return the seconds it took; fail after `within`."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not await condition():
        assert loop.time() - begun < within, f"not within {within} s"
        await asyncio.sleep(0.002)
    return loop.time() - begun


async def queued(store: Store, locks: LockDeclaration, count: int, **fields: Any) -> None:
    """Wait until a lock has this many waiters."""

    async def there() -> bool:
        return await store[locks.waiters].size(**fields) == count

    await until(there)


async def free(store: Store, locks: LockDeclaration, **fields: Any) -> None:
    """Wait until a lock is free."""

    async def gone() -> bool:
        return not await store[locks.keyspace].exists(**fields)

    await until(gone)
