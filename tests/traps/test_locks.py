"""Traps C4, F3 and L3: a lock that expires under its holder, never expires, or is deleted by another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import psycopg
import pytest

from ephemera import Store, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import LockLost, StaleFencingToken
from ephemera.patterns.locks import FenceGuard, HeldLock
from tests.patterns.lease_expiry import outlive_the_lease, renew_often
from tests.patterns.lock_fixtures import BRIEF, CATALOGUE, LOCKS, free, queued

GUARD = FenceGuard("trap_fences")


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store for locks."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


class Ingest:
    """Work that must not run twice at once, and that notices when it does."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.two = asyncio.Event()
        """Set when it ran twice at once."""

    async def run(self, work: Awaitable[object]) -> None:
        """Run until `work` is done."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == 2:
            self.two.set()
        try:
            await work
        finally:
            self.inside -= 1


async def _naively(store: Store, key: str, ingest: Ingest, work: Awaitable[object]) -> None:
    """The naive lock: SET NX with a lease, DEL at the end."""
    while not await store.call("SET", key, "1", "NX", "PX", 600):
        await asyncio.sleep(0.02)
    await ingest.run(work)
    await store.call("DEL", key)


async def test_c4_a_slow_ingest_outlives_a_naive_lease(store: Store, key: str) -> None:
    """SET NX with a lease admits a second ingest beside a slow one; ours is renewed, and stays exclusive."""
    naive, ours = Ingest(), Ingest()
    async with asyncio.timeout(60):  # each works until the other one does, too
        await asyncio.gather(*(_naively(store, f"naive:{key}", naive, naive.two.wait()) for _ in range(2)))
    assert naive.most == 2

    async def quick() -> None:
        async with store[LOCKS].hold(name=key):
            await ours.run(asyncio.sleep(0))

    renew_often(store)
    async with store[LOCKS].hold(name=key) as held:
        second = asyncio.create_task(quick())
        await queued(store, LOCKS, 1, name=key)
        await ours.run(outlive_the_lease(store, held))
    await second
    assert ours.most == 1


async def test_c4_a_holder_that_loses_the_lock_is_cancelled(store: Store, key: str) -> None:
    """A naive holder keeps working beside its successor; ours is cancelled in the middle of its work."""
    naive, ours = Ingest(), Ingest()
    first = asyncio.create_task(_naively(store, f"naive:{key}", naive, asyncio.sleep(0.5)))
    while not naive.inside:
        await asyncio.sleep(0.001)
    await store.call("DEL", f"naive:{key}")  # as an eviction, a restart or an operator would
    await first
    assert naive.inside == 0  # it ran to its end without noticing

    async def ingest() -> None:
        async with store[BRIEF].hold(name=key):
            await store[BRIEF.keyspace].delete(name=key)
            await ours.run(asyncio.sleep(60))

    with pytest.raises(LockLost):
        await asyncio.wait_for(ingest(), 60)
    assert ours.inside == 0


async def test_c4_sql_refuses_an_older_holder(store: Store, postgres: Postgres, key: str) -> None:
    """Without a fence the late write of an old holder wins; with it SQL refuses the older holder."""
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as sql:
        await sql.execute("CREATE TABLE IF NOT EXISTS trap_rows (name text PRIMARY KEY, content text)")
        await sql.execute(GUARD.table)
        async with store[LOCKS].hold(name=key) as old:
            pass
        async with store[LOCKS].hold(name=key) as new:
            pass
        for content in ("of the new holder", "of the old holder, late"):
            await _write(sql, f"naive:{key}", content)
        assert await _content(sql, f"naive:{key}") == "of the old holder, late"

        for held, content in ((new, "of the new holder"), (old, "of the old holder, late")):
            try:
                async with sql.transaction():
                    cursor = await sql.execute(GUARD.pyformat, GUARD.values(held))
                    GUARD.admit(held, await cursor.fetchone())
                    await _write(sql, key, content)
            except StaleFencingToken:
                assert held is old
        assert await _content(sql, key) == "of the new holder"


async def _write(sql: psycopg.AsyncConnection[Any], name: str, content: str) -> None:
    await sql.execute(
        "INSERT INTO trap_rows VALUES (%(name)s, %(content)s) "
        "ON CONFLICT (name) DO UPDATE SET content = excluded.content",
        {"name": name, "content": content},
    )


async def _content(sql: psycopg.AsyncConnection[Any], name: str) -> str:
    row = await (await sql.execute("SELECT content FROM trap_rows WHERE name = %s", (name,))).fetchone()
    assert row is not None
    return str(row[0])


async def test_f3_a_lock_whose_holder_died_is_free_again(server: Valkey, store: Store, key: str) -> None:
    """SETNX without a lease is held forever by a dead worker; ours is free when its lease has ended."""
    await store.call("SETNX", f"naive:{key}", "1")
    assert await store.call("PTTL", f"naive:{key}") == -1

    async with connect(server.url, CATALOGUE) as dying:
        # Acquired and neither renewed nor released, as by a worker that dies once it has the lock.
        got = await dying[BRIEF]._try_acquire(BRIEF._keys({"name": key}))
        dying[BRIEF]._renewer.held.clear()
        async with store[BRIEF].hold(name=key, timeout=5) as held:
            assert isinstance(got, HeldLock)
            assert held.fence > got.fence
    await store.call("DEL", f"naive:{key}")


async def test_f3_only_the_holder_can_release_it(store: Store, key: str) -> None:
    """Any DEL frees a lock that has no token; ours is released by its holder's token alone."""
    await store.call("SETNX", f"naive:{key}", "1")
    assert await store.call("DEL", f"naive:{key}") == 1

    async with store[LOCKS].hold(name=key):
        assert not await store[LOCKS]._leases.release(LOCKS._keys({"name": key}), "another token")
        assert await store[LOCKS].holder(name=key) is not None


async def test_l3_a_slow_holder_does_not_delete_the_next_holders_lock(store: Store, key: str) -> None:
    """A slow naive holder deletes its successor's lock; ours leaves it, and raises `LockLost`."""
    naive = f"naive:{key}"
    await store.call("SET", naive, "slow", "NX", "PX", 1)
    while not await store.call("SET", naive, "next", "NX", "PX", 60_000):
        await asyncio.sleep(0.001)
    assert await store.call("DEL", naive) == 1
    assert await store.call("EXISTS", naive) == 0  # the next holder works without its lock

    async def slow() -> None:
        async with store[BRIEF].hold(name=key):
            await store[BRIEF.keyspace].delete(name=key)  # as if its lease had ended
            await asyncio.create_task(_acquire(store, key, acquired))
            await asyncio.Event().wait()

    acquired: asyncio.Future[HeldLock] = asyncio.get_running_loop().create_future()
    with pytest.raises(LockLost):
        await slow()
    holder = await store[BRIEF].holder(name=key)
    assert holder is not None
    assert holder.fence == acquired.result().fence
    await acquired.result()._end(None)
    await free(store, BRIEF, name=key)


async def _acquire(store: Store, name: str, acquired: asyncio.Future[HeldLock]) -> None:
    got = await store[BRIEF]._try_acquire(BRIEF._keys({"name": name}))
    assert isinstance(got, HeldLock)
    acquired.set_result(got)
