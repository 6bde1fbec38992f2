"""Hold a lock for longer than its lease, without the wait.

The lease is long, so that no pause of the machine can end it; only the TTL of the key is shortened.
"""

from __future__ import annotations

from typing import Any

from ephemera import Store
from ephemera.patterns.locks import HeldLock
from tests.patterns.lock_fixtures import LOCKS, until


def renew_often(store: Store, every: float = 0.1, locks: Any = LOCKS) -> None:
    """Make a store renew its locks at this interval in seconds, instead of three times in a lease of 30 s."""
    leases = store[locks]._leases
    assert leases.renewal_interval <= leases.seconds / 3
    leases.renewal_interval = every


async def outlive_the_lease(store: Store, held: HeldLock) -> None:
    """Let more than a lease pass for a held lock; fail when a renewal does not restore its TTL."""
    third = round(store[LOCKS]._leases.seconds * 1000 / 3)

    async def renewed() -> bool:
        return int(await store.call("PTTL", held.key)) > 2 * third

    for _ in range(4):
        assert await store.call("PEXPIRE", held.key, 2 * third), "the lock is gone"
        await until(renewed)
