"""Distributed locks with leases, fair waiting and fencing tokens.

    INGEST = Locks(catalogue, "gl:lock:ingest:{schema}", lease=timedelta(seconds=120), purpose="One ingest")
    async with store[INGEST].hold(schema="bible", timeout=10) as held:
        held.fence  # the fencing token, a number that only grows: give it to SQL (`FenceGuard`)

*Keys.* The lock itself, a string that names its holder and lives for one lease. `:fence`, the last fencing
token, kept for a day after its last use. `:waiters`, a sorted set of waiters in order of arrival, kept for
two leases. `:wake:{waiter}`, a shard channel for each waiter. All keys of a lock share one cluster slot.

*Atomicity.* Acquiring a lock together with its fencing token, renewing it, and releasing it to the first
waiter that still listens are one script each, by the server's clock. Only the holder's token renews or
releases. Held locks are renewed every third of a lease, all locks of a store in one round trip. Waiters are
woken one at a time; a lock whose holder died becomes free when its lease ends.

*Losing a lock.* The block is cancelled and ends with `LockLost` when the server no longer has the lock (seen
by a renewal, within a third of a lease), or when no renewal was confirmed in time: always before the lease
can end on the server. Code that never awaits cannot be cancelled; that is what the fencing token is for.

*Fencing tokens* grow with every holder: by the counter, and where the counter was lost by the server's clock,
in microseconds. If both are lost, the data and the time (a clock set back), SQL refuses new holders until the
clock has caught up; it never admits an older holder after a newer one.

*When Redis is down.* Acquiring raises `Unavailable` at once, a waiter within seconds; if the server hangs,
after the timeout of the connection. A release that fails is retried until the lease is over, and so is the
release of a lock whose acquisition ended in `OutcomeUnknown` or was cancelled. After an eviction, a flush or
a failover a second holder may acquire the lock before the first notices; hence role `queue`, and the fencing
token. A task that asks for a lock it already holds gets `LockAlreadyHeld`; other tasks wait.
"""

from ephemera.patterns.locks._acquire import BoundLocks
from ephemera.patterns.locks._declaration import FenceGuard, Locks
from ephemera.patterns.locks._held_lock import HeldLock, Holder, LockKeys

__all__ = ["BoundLocks", "FenceGuard", "HeldLock", "Holder", "LockKeys", "Locks"]
