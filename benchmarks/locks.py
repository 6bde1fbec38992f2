"""The locks' rows: acquiring and releasing an uncontended lock, renewing, handing over, reading under one.

redis-py's asyncio `Lock` is the peer: a token, a lease and a release by script, as ours; it has no fence, no
queue, and it renews when a program says so. Its waiters poll every 100 ms, their default. redis-py-kit's
`AsyncLock` acquires by SET and releases by a script, without a fence or a queue; it tries once, so it hands
nothing over. Its read-write locks count readers, without a lease for each. Neither has semaphores.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from importlib import import_module
from itertools import count
from statistics import median
from typing import Any

from benchmarks import peers
from benchmarks.load import Tasks
from benchmarks.rows import Absolute, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, Store, connect
from ephemera.patterns.locks import Locks, ReadWriteLocks

CATALOGUE = Catalogue("bench-locks")
LOCKS = Locks(CATALOGUE, "bench:lock:{name}", lease=timedelta(seconds=30), purpose="Measured here")
SHELF = ReadWriteLocks(CATALOGUE, "bench:shelf:{name}", lease=timedelta(seconds=30), purpose="Measured here")
_TASKS = 50
_HELD = (0.005, 0.105)
"""Seconds that a lock is held before it is handed over: a poller's phase must not matter."""

LockOf = Callable[[str], AbstractAsyncContextManager[Any]]
"""Gives a block that holds the lock of this name."""


class HandOver:
    """A round that hands one lock to and fro between two who wait for it in turn."""

    def __init__(self, one: LockOf, other: LockOf) -> None:
        self._sides = (one, other)
        self._released = 0.0

    async def __call__(self, seconds: float) -> float:
        """The median of milliseconds from before the release to being held by the other."""
        took: list[float] = []
        ends = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as group:
            entered = asyncio.Event()
            group.create_task(self._hold(0, entered, took))
            await entered.wait()
            for turn in count(1):
                entered = asyncio.Event()
                group.create_task(self._hold(turn % 2, entered, took))
                await entered.wait()
                if time.perf_counter() >= ends:
                    break
        return median(took[1:]) * 1000

    async def _hold(self, side: int, entered: asyncio.Event, took: list[float]) -> None:
        async with self._sides[side]("handed"):
            took.append(time.perf_counter() - self._released)
            entered.set()
            await asyncio.sleep(random.uniform(*_HELD))
            self._released = time.perf_counter()


def taking(lock_of: LockOf) -> Callable[[int], Coroutine[Any, Any, None]]:
    """The work of a task that takes and gives up a lock of its own, this many times."""
    numbers = count()

    async def work(times: int) -> None:
        name = f"task-{next(numbers)}"
        for _ in range(times):
            async with lock_of(name):
                pass

    return work


def _ours(store: Store) -> LockOf:
    locks = store[LOCKS]
    return lambda name: locks.hold(name=name)


def _redis_py(client: Any) -> LockOf:
    return lambda name: client.lock(f"peer:{name}", timeout=30)


@asynccontextmanager
async def our_locks(servers: Servers) -> AsyncIterator[Round]:
    """Our locks, on one store."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        yield Tasks(_TASKS, taking(_ours(store)))


@asynccontextmanager
async def redis_py_locks(servers: Servers) -> AsyncIterator[Round]:
    """redis-py's locks, on one client."""
    async with peers.redis_py_untimed(servers.valkey) as client:
        yield Tasks(_TASKS, taking(_redis_py(client)))


@asynccontextmanager
async def kit_locks(servers: Servers) -> AsyncIterator[Round]:
    """redis-py-kit's locks, on one client of redis-py."""
    async with peers.redis_py_untimed(servers.valkey) as client:
        lock = import_module("redis_kit").AsyncLock(client)
        yield Tasks(_TASKS, taking(lambda name: lock(name, timeout=30)))


@asynccontextmanager
async def our_renewals(servers: Servers) -> AsyncIterator[Round]:
    """Renewals of our locks, one held by each task."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        numbers = count()

        async def work(times: int) -> None:
            async with store[LOCKS].hold(name=f"task-{next(numbers)}") as held:
                for _ in range(times):
                    await held._leases.renew(held)

        yield Tasks(_TASKS, work)


@asynccontextmanager
async def redis_py_renewals(servers: Servers) -> AsyncIterator[Round]:
    """Renewals of redis-py's locks, one held by each task."""
    async with peers.redis_py_untimed(servers.valkey) as client:
        numbers = count()

        async def work(times: int) -> None:
            async with client.lock(f"peer:task-{next(numbers)}", timeout=30) as lock:
                for _ in range(times):
                    await lock.reacquire()

        yield Tasks(_TASKS, work)


@asynccontextmanager
async def our_hand_over(servers: Servers) -> AsyncIterator[Round]:
    """Two of our stores, each on a connection of its own."""
    url = servers.valkey.url
    async with connect(url, CATALOGUE) as one, connect(url, CATALOGUE) as other:
        yield HandOver(*map(_ours, (one, other)))


@asynccontextmanager
async def redis_py_hand_over(servers: Servers) -> AsyncIterator[Round]:
    """Two of redis-py's clients."""
    async with peers.redis_py(servers.valkey) as one, peers.redis_py(servers.valkey) as other:
        yield HandOver(*map(_redis_py, (one, other)))


@asynccontextmanager
async def our_readers(servers: Servers) -> AsyncIterator[Round]:
    """Our read-write locks, on one store."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        shelf = store[SHELF]
        yield Tasks(_TASKS, taking(lambda _: shelf.read(name="shared")))


@asynccontextmanager
async def redis_py_kit_readers(servers: Servers) -> AsyncIterator[Round]:
    """redis-py-kit's read locks, on one client of redis-py."""
    async with peers.redis_py_untimed(servers.valkey) as client:
        lock = import_module("redis_kit").AsyncLock(client)
        yield Tasks(_TASKS, taking(lambda _: lock.read("shared", timeout=30)))


ROWS = (
    Row(
        "locks: 50 tasks, take and release",
        our_locks,
        {"redis-py": redis_py_locks, "redis-py-kit": kit_locks},
        (Times(12, "redis-py"),),
        unit="locks/s",
    ),
    Row(
        "locks: 50 tasks, renewal",
        our_renewals,
        {"redis-py": redis_py_renewals},
        (Times(12, "redis-py"),),
        unit="renewals/s",
    ),
    Row(
        "locks: hand-over, p50",
        our_hand_over,
        {"redis-py": redis_py_hand_over},
        (Absolute(2, "ms", at_most=True),),
        unit="ms",
        higher_is_better=False,
    ),
    Row(
        "locks: 50 tasks, read and release one read-write lock",
        our_readers,
        {"redis-py-kit": redis_py_kit_readers},
        (Times(3, "redis-py-kit"),),
        unit="locks/s",
    ),
)
