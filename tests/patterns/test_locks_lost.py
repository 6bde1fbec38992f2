"""Losing a lock, and cancellation while holding one: what is raised, and what is left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.errors import LockLost
from ephemera.patterns.locks import HeldLock, Locks
from tests.patterns.lock_fixtures import CATALOGUE, KEPT, LOCKS, free
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


async def _forever() -> None:
    await asyncio.Event().wait()


async def _fence(store: Store, locks: Locks, **fields: Any) -> int:
    async with store[locks].hold(**fields) as held:
        return held.fence


async def test_losing_it_ends_the_block_with_lock_lost(locked: Store, key: str) -> None:
    """When the server no longer has the lock, the block is cancelled, and its task is not left cancelled."""
    fences = []

    async def work() -> None:
        async with locked[KEPT].hold(name=key) as held:
            fences.append(held.fence)
            await locked[KEPT.keyspace].delete(name=key)
            await _forever()

    with pytest.raises(LockLost, match="the server no longer had it") as caught:
        await work()
    assert (caught.value.key, [caught.value.fence]) == (KEPT.keyspace.key(name=key), fences)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # a pending cancellation would be raised here


async def test_a_holder_that_lost_its_lock_leaves_the_next_holders_lock(locked: Store, key: str) -> None:
    """A holder whose lock went to another ends with `LockLost`, and the other's lock stays."""

    async def work() -> None:
        async with locked[LOCKS].hold(name=key):
            await locked.client("queue").call(
                "SET", LOCKS.keyspace.key(name=key), "another holder", "PX", 30_000
            )

    with pytest.raises(LockLost):
        await work()
    assert await locked[LOCKS.keyspace].exists(name=key)
    await locked[LOCKS.keyspace].delete(name=key)


async def test_a_cancellation_from_outside_stays_a_cancellation(locked: Store, key: str) -> None:
    """A block that is cancelled from outside ends as cancelled, and releases the lock."""
    entered = asyncio.Event()

    async def work() -> None:
        async with locked[LOCKS].hold(name=key):
            entered.set()
            await _forever()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await free(locked, LOCKS, name=key)


async def test_a_cancellation_during_the_loss_stays_a_cancellation(locked: Store, key: str) -> None:
    """A task that is cancelled just after it lost its lock ends as cancelled."""
    began: asyncio.Future[HeldLock] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        async with locked[LOCKS].hold(name=key) as held:
            began.set_result(held)
            await _forever()

    task = asyncio.create_task(work())
    held = await began
    held._lose("the test says so")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_block_is_raised_unchanged(locked: Store, key: str) -> None:
    """An error raised by the block is raised as it is, with a note that the lock was lost."""

    async def work() -> None:
        async with locked[LOCKS].hold(name=key) as held:
            try:
                held._lose("the test says so")
                await _forever()
            finally:
                raise ValueError("its own")

    with pytest.raises(ValueError, match="its own") as caught:
        await work()
    assert "the test says so" in caught.value.__notes__[0]


async def test_a_block_that_swallows_its_cancellation_ends_with_lock_lost(locked: Store, key: str) -> None:
    """A block that ends normally after its lock was lost still raises `LockLost`."""

    async def work() -> None:
        async with locked[LOCKS].hold(name=key) as held:
            held._lose("the test says so")
            try:
                await _forever()
            except asyncio.CancelledError:
                assert held.lost

    with pytest.raises(LockLost, match="the test says so"):
        await work()


async def test_losing_two_locks_at_once(locked: Store, key: str) -> None:
    """A task that loses two locks ends with one LockLost, and is not left cancelled."""

    async def work() -> None:
        async with locked[LOCKS].hold(name=f"{key}-1") as one, locked[LOCKS].hold(name=f"{key}-2") as two:
            one._lose("the test says so")
            two._lose("the test says so")
            await _forever()

    with pytest.raises(LockLost):
        await work()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_losing_a_lock_within_a_task_group(locked: Store, key: str) -> None:
    """The tasks of a task group inside the block are cancelled with it."""
    ended = asyncio.Event()

    async def part() -> None:
        try:
            await _forever()
        finally:
            ended.set()

    async def work() -> None:
        async with locked[KEPT].hold(name=key), asyncio.TaskGroup() as group:
            group.create_task(part())
            await locked[KEPT.keyspace].delete(name=key)

    with pytest.raises(LockLost):
        await work()
    assert ended.is_set()


async def test_an_older_holder_in_the_same_process_is_cancelled_by_its_successor(
    locked: Store, key: str
) -> None:
    """When the server lost the lock and another task acquires it, the first one is cancelled at once."""

    async def work() -> None:
        async with locked[LOCKS].hold(name=key):
            await locked[LOCKS.keyspace].delete(name=key)
            await asyncio.create_task(_fence(locked, LOCKS, name=key))
            await _forever()

    with pytest.raises(LockLost, match="another task of this process"):
        await work()


@pytest.mark.parametrize("steps", range(8))
async def test_a_cancelled_acquisition_leaves_nothing(locked: Store, key: str, steps: int) -> None:
    """At whatever moment an acquisition is cancelled, the lock is free soon after."""
    task = asyncio.create_task(_fence(locked, LOCKS, name=key))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await free(locked, LOCKS, name=key)
    assert await _fence(locked, LOCKS, name=key)


@pytest.mark.parametrize("steps", range(4))
async def test_a_cancelled_release_still_releases(locked: Store, key: str, steps: int) -> None:
    """At whatever moment the end of a block is cancelled, the lock is released."""
    entered, leave = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with locked[LOCKS].hold(name=key):
            entered.set()
            await leave.wait()

    task = asyncio.create_task(work())
    await entered.wait()
    leave.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await free(locked, LOCKS, name=key)


async def test_closing_the_store_cancels_holders(server: Valkey, key: str) -> None:
    """A block that outlives its store ends with `LockLost`."""
    entered = asyncio.Event()

    async def work(store: Store) -> None:
        async with store[LOCKS].hold(name=key):
            entered.set()
            await _forever()

    async with connect(server.url, CATALOGUE) as store:
        task = asyncio.create_task(work(store))
        await entered.wait()
    with pytest.raises(LockLost, match="closed"):
        await task
