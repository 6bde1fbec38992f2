"""A lock that is held for longer than its lease, without the wait.

Its lease is long, so that no pause of the machine can end it, and time goes by for its key alone.
"""

from __future__ import annotations

from ephemera import Store
from ephemera.patterns.locks import Held
from tests.patterns.locking import LOCKS, until


def renew_often(store: Store, every: float = 0.1) -> None:
    """Have a store renew its locks after so many seconds, not three times in a lease of 30 s."""
    live = store[LOCKS]
    assert live.interval <= live.lease / 3
    live.interval = every


async def outlive_the_lease(store: Store, held: Held) -> None:
    """Let more than a lease go by for a lock that is kept; fail when a renewal does not put it back."""
    third = round(store[LOCKS].lease * 1000 / 3)

    async def renewed() -> bool:
        return int(await store.call("PTTL", held.key)) > 2 * third

    for _ in range(4):
        assert await store.call("PEXPIRE", held.key, 2 * third), "nobody has it"
        await until(renewed)
