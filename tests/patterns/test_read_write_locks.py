"""Read-write locks: readers together, writers alone, in order of arrival."""

from __future__ import annotations

import asyncio
import random
import sqlite3

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.errors import LockAlreadyHeld, LockTimeout, StaleFencingToken
from ephemera.patterns.locks import FenceGuard, HeldLock
from tests.patterns.lock_fixtures import CATALOGUE, SHELF, free, queued
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


class Visit:
    """A holder in a task of its own, that leaves when it is asked to."""

    def __init__(self, store: Store, name: str, how: str, timeout: float | None = None) -> None:
        self._block = getattr(store[SHELF], how)(name=name, timeout=timeout)
        self._leave = asyncio.Event()
        self.entered = asyncio.Event()
        self.held: HeldLock | None = None
        self.task = asyncio.create_task(self._visit())

    async def _visit(self) -> None:
        async with self._block as self.held:
            self.entered.set()
            await self._leave.wait()

    async def inside(self) -> HeldLock:
        """Wait until it holds the lock."""
        await asyncio.wait_for(self.entered.wait(), 15)
        assert self.held is not None
        return self.held

    async def leave(self) -> None:
        """Release the lock."""
        self._leave.set()
        await self.task


async def test_readers_hold_it_together_and_writers_alone(locked: Store, key: str) -> None:
    """Readers share the lock and a fence; neither a writer nor, beside a writer, a reader gets in."""
    readers = [Visit(locked, key, "read") for _ in range(3)]
    fences = {(await each.inside()).fence for each in readers}
    assert len(fences) == 1
    assert [each.mode for each in await locked[SHELF].holders(name=key)] == ["read"] * 3
    async with locked[SHELF].try_write(name=key) as none:
        assert none is None
    for each in readers:
        await each.leave()
    async with locked[SHELF].write(name=key) as held:
        assert held.fence > max(fences)
        assert held.permit is None
        assert [each.mode for each in await locked[SHELF].holders(name=key)] == ["write"]
        assert await asyncio.create_task(_tries(locked, key)) == (False, False)
    await free(locked, SHELF, name=key)


async def _tries(store: Store, name: str) -> tuple[bool, bool]:
    """Whether reading and writing succeed without waiting."""
    async with store[SHELF].try_read(name=name) as read:
        pass
    async with store[SHELF].try_write(name=name) as written:
        pass
    return read is not None, written is not None


async def test_readers_do_not_starve_a_writer(locked: Store, key: str) -> None:
    """A reader that comes after a waiting writer waits for it; readers behind it are woken together."""
    first = Visit(locked, key, "read")
    await first.inside()
    writer = Visit(locked, key, "write")
    await queued(locked, SHELF, 1, name=key)
    assert await asyncio.create_task(_tries(locked, key)) == (False, False)
    late = [Visit(locked, key, "read")]
    await queued(locked, SHELF, 2, name=key)
    late.append(Visit(locked, key, "read"))
    await queued(locked, SHELF, 3, name=key)
    last = Visit(locked, key, "write")
    await queued(locked, SHELF, 4, name=key)
    await first.leave()
    written = await writer.inside()
    assert not any(each.entered.is_set() for each in (*late, last))
    await writer.leave()
    fences = {(await each.inside()).fence for each in late}
    assert len(fences) == 1
    assert not last.entered.is_set()
    for each in late:
        await each.leave()
    assert written.fence < fences.pop() < (await last.inside()).fence
    await last.leave()


async def test_a_writer_that_gives_up_lets_readers_in(locked: Store, key: str) -> None:
    """When a waiting writer times out, the readers behind it join those that read, at once."""
    first = Visit(locked, key, "read")
    await first.inside()
    writer = Visit(locked, key, "write", timeout=1.0)
    await queued(locked, SHELF, 1, name=key)
    late = Visit(locked, key, "read")
    with pytest.raises(LockTimeout, match="not free within"):
        await writer.task
    assert (await late.inside()).fence == (await first.inside()).fence
    await late.leave()
    await first.leave()


async def test_a_writer_that_hangs_costs_a_second(locked: Store, key: str) -> None:
    """A writer that ignores its wake-up delays the reader behind it by a second, not by a lease."""
    channel = SHELF._wake_channel(SHELF._keys({"name": key}), "whangs")
    async with locked.client("queue").subscribe(channel, kind="shard"):
        first = Visit(locked, key, "read")
        await first.inside()
        await locked[SHELF.waiters].add({channel: 1}, name=key)
        reader = Visit(locked, key, "read")
        await queued(locked, SHELF, 2, name=key)
        began = asyncio.get_running_loop().time()
        await first.leave()
        await reader.inside()
        assert asyncio.get_running_loop().time() - began > 0.9
        await reader.leave()


async def test_waiters_that_are_gone_are_skipped(locked: Store, key: str) -> None:
    """Waiting writers whose connection is gone do not keep readers out, however many they are."""
    first = Visit(locked, key, "read")
    await first.inside()
    keys = SHELF._keys({"name": key})
    for number in range(50):
        await locked[SHELF.waiters].add({SHELF._wake_channel(keys, f"wgone-{number}"): number}, name=key)
    writer = Visit(locked, key, "write")
    await queued(locked, SHELF, 51, name=key)
    await first.leave()
    await writer.inside()
    await writer.leave()


async def test_a_dead_writer_does_not_keep_readers_out(locked: Store, key: str) -> None:
    """A reader passes a writer that died while it waited for other readers, and no living one."""
    first = Visit(locked, key, "read")
    await first.inside()
    channel = SHELF._wake_channel(SHELF._keys({"name": key}), "wwaits")
    await locked[SHELF.waiters].add({channel: 1}, name=key)
    async with locked.client("queue").subscribe(channel, kind="shard"):
        assert await asyncio.create_task(_tries(locked, key)) == (False, False)
    assert await asyncio.create_task(_tries(locked, key)) == (True, False)
    assert not await locked[SHELF.waiters].exists(name=key)
    await first.leave()


async def test_a_task_cannot_change_how_it_holds_the_lock(locked: Store, key: str) -> None:
    """A reader that asks to write, or to read again, would wait for itself: `LockAlreadyHeld`."""
    for outer, inner in (("read", "write"), ("read", "read"), ("write", "read")):
        async with getattr(locked[SHELF], outer)(name=key):
            with pytest.raises(LockAlreadyHeld):
                async with getattr(locked[SHELF], inner)(name=key):
                    pass


async def test_sql_admits_concurrent_readers_and_refuses_late_holders(locked: Store, key: str) -> None:
    """Readers that hold the lock together do not refuse each other; a reader refuses an earlier writer."""
    guard, sql = FenceGuard(), sqlite3.connect(":memory:")
    sql.execute(guard.table)

    def admit(held: HeldLock) -> None:
        guard.admit(held, sql.execute(guard.named, guard.values(held)).fetchone())

    async with locked[SHELF].write(name=key) as written:
        admit(written)
    readers = [Visit(locked, key, "read") for _ in range(2)]
    one, other = [await each.inside() for each in readers]
    for held in (one, other, one):
        admit(held)
    with pytest.raises(StaleFencingToken):
        admit(written)
    for each in readers:
        await each.leave()
    async with locked[SHELF].write(name=key) as newest:
        admit(newest)
    with pytest.raises(StaleFencingToken):
        admit(one)
    sql.close()


async def test_readers_and_writers_exclude_each_other(server: Valkey, key: str) -> None:
    """Of 60 readers and writers on two connections, some cancelled, no writer ever meets another holder."""
    chance, readers, writers = random.Random(3), 0, 0
    order: list[tuple[bool, int]] = []

    async def read(store: Store) -> None:
        nonlocal readers
        async with store[SHELF].read(name=key) as held:
            readers += 1
            try:
                assert not writers
                order.append((False, held.fence))
                await asyncio.sleep(0.001)
            finally:
                readers -= 1

    async def write(store: Store) -> None:
        nonlocal writers
        async with store[SHELF].write(name=key) as held:
            writers += 1
            try:
                assert (writers, readers) == (1, 0)
                order.append((True, held.fence))
                await asyncio.sleep(0.001)
            finally:
                writers -= 1

    async def work(store: Store, number: int) -> None:
        for _ in range(5):
            await (write if number % 4 == 0 else read)(store)

    async with connect(server.url, CATALOGUE) as one, connect(server.url, CATALOGUE) as other:
        tasks = [asyncio.create_task(work((one, other)[each % 2], each)) for each in range(60)]
        for task in chance.sample(tasks, 20):
            await asyncio.sleep(chance.uniform(0, 0.01))  # at random moments
            task.cancel()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert [each for each in results if each and not isinstance(each, asyncio.CancelledError)] == []
        await free(one, SHELF, name=key)
        await queued(one, SHELF, 0, name=key)
    fences = [fence for _, fence in order]
    assert fences == sorted(fences)
    written = [fence for is_write, fence in order if is_write]
    assert len(written) == len(set(written))
