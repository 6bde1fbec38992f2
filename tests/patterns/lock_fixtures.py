"""Locks for tests: with long and short leases, without fields and with two; and conditions to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from ephemera import Catalogue, Store
from ephemera.patterns.locks import Locks

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


async def until(condition: Callable[[], Awaitable[Any]], within: float = 60.0) -> float:
    """Wait until a condition holds and return the seconds it took; fail after `within`."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not await condition():
        assert loop.time() - begun < within, f"not within {within} s"
        await asyncio.sleep(0.002)
    return loop.time() - begun


async def queued(store: Store, locks: Locks, count: int, **fields: Any) -> None:
    """Wait until a lock has so many waiters."""

    async def there() -> bool:
        return await store[locks.waiters].size(**fields) == count

    await until(there)


async def free(store: Store, locks: Locks, **fields: Any) -> None:
    """Wait until a lock is free."""

    async def gone() -> bool:
        return not await store[locks.keyspace].exists(**fields)

    await until(gone)
