"""Distributed locks, semaphores and read-write locks with leases, fair waiting and fencing tokens.

    INGEST = Locks(catalogue, "gl:lock:ingest:{schema}", lease=timedelta(seconds=120), purpose="One ingest")
    async with store[INGEST].hold(schema="bible", timeout=10) as held:
        held.fence  # the fencing token, a number that only grows: give it to SQL (`FenceGuard`)

    POOL = Semaphores(catalogue, "pool:{name}", permits=5, lease=timedelta(seconds=30), purpose="Renderers")
    async with store[POOL].hold(name="pdf") as held:
        held.permit  # from 0 to 4, and no other holder has the same

    SHELF = ReadWriteLocks(catalogue, "shelf:{id}", lease=timedelta(seconds=30), purpose="One shelf's index")
    async with store[SHELF].read(id=7): ...     # together with other readers
    async with store[SHELF].write(id=7): ...    # alone

*Keys.* The lock itself, a string that names its holder and lives for one lease. `:fence`, the last fencing
token, kept for a day after its last use. `:waiters`, a sorted set of waiters in order of arrival, kept for
two leases. `:wake:{waiter}`, a shard channel for each waiter. Where several may hold it, the key itself is a
sorted set of the holders' tokens by the end of their leases, and `:grants` a hash of what each has; both live
for one lease. All keys of a lock share one cluster slot.

*Atomicity.* Acquiring a lock together with its fencing token, renewing it, and releasing it to the first
waiter that still listens are one script each, by the server's clock; where the server has `SET ... IFEQ`,
that renews. Only the holder's token renews or releases. Held locks are renewed every third of a lease, all
locks of a store in one round trip. Waiters are woken one at a time; a lock whose holder died becomes free
when its lease ends.

*Several holders.* A semaphore has at most `permits` holders, each with a number of its own. A read-write lock
has readers, or one writer. A newcomer waits behind those who wait already, so neither writers nor readers
starve; readers next to each other in the queue are woken together. When a holder or a waiter leaves, dies or
gives up, what is free then is offered in the order of the queue.

*Losing a lock.* The block is cancelled and ends with `LockLost` when the server no longer has the lock (seen
by a renewal, within a third of a lease), or when no renewal was confirmed in time: always before the lease
can end on the server. Code that never awaits cannot be cancelled; that is what the fencing token is for.

*Fencing tokens* grow with every holder: by the counter, and where the counter was lost by the server's clock,
in microseconds. If both are lost, the data and the time (a clock set back), SQL refuses new holders until the
clock has caught up; it never admits an older holder after a newer one. The fences of a semaphore are compared
permit by permit: a later holder of the same number has the larger fence. Readers that hold a lock together
have the same fence, so SQL admits them all, and refuses them after the next writer.

*When Redis is down.* Acquiring raises `Unavailable` at once, a waiter within seconds; if the server hangs,
after the timeout of the connection. A release that fails is retried until the lease is over, and so is the
release of a lock whose acquisition ended in `OutcomeUnknown` or was cancelled. After an eviction, a flush or
a failover a second holder may acquire the lock before the first notices; hence role `queue`, and the fencing
token. A task that asks for a lock it already holds gets `LockAlreadyHeld`; other tasks wait.
"""

from ephemera.patterns.locks._declaration import (
    FenceGuard,
    LockDeclaration,
    Locks,
    ReadWriteLocks,
    Semaphores,
    lock_keys,
)
from ephemera.patterns.locks._held_lock import HeldLock, Holder, LockKeys, read_holders
from ephemera.patterns.locks._runtime import BoundLocks, BoundReadWriteLocks, BoundSemaphores, LockRuntime

__all__ = [
    "BoundLocks",
    "BoundReadWriteLocks",
    "BoundSemaphores",
    "FenceGuard",
    "HeldLock",
    "Holder",
    "LockDeclaration",
    "LockKeys",
    "LockRuntime",
    "Locks",
    "ReadWriteLocks",
    "Semaphores",
    "lock_keys",
    "read_holders",
]
