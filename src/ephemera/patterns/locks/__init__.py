"""Locks: one holder at a time, who is told when it no longer is, and whom SQL can tell from its successor.

    INGEST = Locks(catalogue, "gl:lock:ingest:{schema}", lease=timedelta(seconds=120), purpose="One ingest")
    async with store[INGEST].hold(schema="bible", timeout=10) as held:
        held.fence  # a number that only grows: give it to SQL (`FenceGuard`)

Keys: the lock, a text of who holds it, for its lease; `:fence`, the last fencing number, for a day after its
last use; `:waiters`, a sorted set of who waits, first come first served, for two leases; `:wake:{waiter}`, a
shard channel for each waiter. They share a cluster slot by a hash tag.
Atomic: taking a lock with its fence, renewing it, and giving it up to the first waiter who still listens are
one script each, by the server's clock, and only the holder's token renews or releases. Held locks are renewed
every third of a lease, all of a store in one trip. Waiters are woken, one at a time; a lock whose holder died
is taken at its lease's end.
Lost: the block is cancelled, and ends with `LockLost`, when the server has the lock no more (seen by a
renewal, within a third of a lease), or when no renewal was confirmed in time, always before the lease can end
on the server. Code that does not await is not stopped: this is what the fence is for.
The fence grows with every holder: by the counter, and where the counter is lost by the server's clock, in
microseconds. If both are lost, the data and the time (a clock set back), SQL refuses new holders until the
clock has caught up; it never admits an older one after a newer.
Down: taking a lock raises `Unavailable` at once; one who waits, within seconds. Hung: the same after the
wire's timeout. A release that fails is repeated until the lease is over, so is that of a lock whose taking
ended in `OutcomeUnknown` or in a cancellation. Evicted, emptied or failed over: a second holder may come
before the first is told; hence role `queue`, and the fence. A task that asks for a lock it holds gets
`AlreadyHeld`; other tasks wait, whatever thread they are on.
"""

from ephemera.patterns.locks._acquire import BoundLocks
from ephemera.patterns.locks._declaration import Locks
from ephemera.patterns.locks._fences import FenceGuard
from ephemera.patterns.locks._held_lock import Held
from ephemera.patterns.locks._lock_keys import Holder

__all__ = ["BoundLocks", "FenceGuard", "Held", "Holder", "Locks"]
