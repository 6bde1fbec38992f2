"""Semaphores: at most this many holders, in order of arrival, each permit fenced."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from datetime import timedelta
from typing import Any

import pytest

from ephemera import Catalogue, Semaphores, Store, connect
from ephemera.embedded import Valkey, valkey
from ephemera.errors import InvalidDeclaration, LockAlreadyHeld, StaleFencingToken
from ephemera.patterns.locks import FenceGuard, HeldLock, lock_keys
from ephemera.wire import key_slot
from tests.patterns.lease_expiry import renew_often
from tests.patterns.lock_fixtures import BRIEF_POOL, CATALOGUE, GATE, POOL, WIDE_POOL, free, queued, until
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


class Crowd:
    """Holders of one semaphore; it fails when they are too many or share a permit."""

    def __init__(self) -> None:
        self.inside: dict[int, HeldLock] = {}
        self.order: list[int] = []
        self.fences: dict[int, list[int]] = {0: [], 1: [], 2: []}

    async def visit(self, store: Store, name: str, number: int = 0) -> None:
        """Hold a permit for a moment."""
        async with store[POOL].hold(name=name) as held:
            assert held.permit is not None
            assert held.permit not in self.inside
            self.inside[held.permit] = held
            try:
                self.order.append(number)
                self.fences[held.permit].append(held.fence)
                await asyncio.sleep(0)
            finally:  # also when a holder is cancelled
                del self.inside[held.permit]


async def _hold_all(store: Store, name: str, until_set: asyncio.Event) -> list[asyncio.Task[int]]:
    """Hold every permit, each by a task of its own, until an event is set."""
    tasks = []
    for number in range(POOL.permits):
        entered = asyncio.Event()
        tasks.append(asyncio.create_task(_hold(store, name, entered, until_set)))
        await entered.wait()
        assert len(await store[POOL].holders(name=name)) == number + 1
    return tasks


async def _hold(store: Store, name: str, entered: asyncio.Event, leave: asyncio.Event) -> int:
    async with store[POOL].hold(name=name) as held:
        entered.set()
        await leave.wait()
        assert held.permit is not None
        return held.permit


async def test_permits_are_numbered_and_listed(locked: Store, key: str) -> None:
    """Holders have different permits below the limit; who asks for one more does not get it."""
    leave = asyncio.Event()
    tasks = await _hold_all(locked, key, leave)
    async with locked[POOL].try_hold(name=key) as none:
        assert none is None
    holders = await locked[POOL].holders(name=key)
    assert sorted(each.permit for each in holders if each.permit is not None) == [0, 1, 2]
    assert all(each.mode == "permit" and each.name and each.since and each.fence for each in holders)
    assert locked[POOL].held == 3
    leave.set()
    assert sorted(await asyncio.gather(*tasks)) == [0, 1, 2]
    await free(locked, POOL, name=key)
    assert await locked[POOL].holders(name=key) == []


async def test_two_stores_share_the_permits(server: Valkey, key: str) -> None:
    """Of 40 tasks on two connections three are inside at a time, and the fences of a permit only grow."""
    crowd = Crowd()

    async def work(store: Store) -> None:
        for _ in range(5):
            await crowd.visit(store, key)

    async with connect(server.url, CATALOGUE) as one, connect(server.url, CATALOGUE) as other:
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(work((one, other)[number % 2]))
        await free(one, POOL, name=key)
    assert len(crowd.order) == 200
    assert all(fences == sorted(set(fences)) for fences in crowd.fences.values())
    assert len({fence for fences in crowd.fences.values() for fence in fences}) == 200


async def test_waiters_acquire_in_order_of_arrival(locked: Store, key: str) -> None:
    """Waiters get permits in the order in which they queued, long before a lease would end."""
    crowd, leave = Crowd(), asyncio.Event()
    tasks: list[asyncio.Task[Any]] = list(await _hold_all(locked, key, leave))
    for number in range(6):
        tasks.append(asyncio.create_task(crowd.visit(locked, key, number)))
        await queued(locked, POOL, number + 1, name=key)
    leave.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 15)
    assert crowd.order == list(range(6))
    assert not await locked[POOL.waiters].exists(name=key)


async def test_a_newcomer_does_not_overtake_waiters(locked: Store, key: str) -> None:
    """A permit that its holder's death freed goes to the first waiter, though a newcomer comes upon it."""
    leave, crowd = asyncio.Event(), Crowd()
    tasks = await _hold_all(locked, key, leave)
    waiting = asyncio.create_task(crowd.visit(locked, key, 7))
    await queued(locked, POOL, 1, name=key)
    [first, *_] = await locked[POOL.keyspace].range(0, 0, name=key)
    await locked[POOL.keyspace].add({first[0]: 1}, name=key)  # its lease ended in 1970
    async with locked[POOL].try_hold(name=key) as none:
        assert none is None
    await asyncio.wait_for(waiting, 15)
    leave.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_dead_holders_permit_is_free_when_its_lease_ends(locked: Store, key: str) -> None:
    """A waiter gets the permit of a dead holder when its lease ends; the live holder keeps its own."""
    renew_often(locked, every=0.1, locks=BRIEF_POOL)
    async with locked[BRIEF_POOL].hold(name=key) as live:
        seconds, rest = await locked.client("queue").call("TIME")
        ends = int(seconds) * 1_000_000 + int(rest) + 400_000
        keys = BRIEF_POOL._keys({"name": key}).acquire
        await locked.client("queue").call("ZADD", keys[0], ends, "pdead")
        await locked.client("queue").call("HSET", keys[3], "pdead", "1 1 1 a-dead-host/1")

        async def take() -> int:
            async with locked[BRIEF_POOL].hold(name=key, timeout=30) as held:
                seconds, rest = await locked.client("queue").call("TIME")
                assert int(seconds) * 1_000_000 + int(rest) >= ends
                return held.fence

        assert await asyncio.create_task(take()) > live.fence
        assert live.lost is None


async def test_the_permits_of_dead_holders_are_offered_at_once() -> None:
    """Waiters get 50 permits whose leases have ended, all different, and the grants are read once for all."""
    with valkey() as server:
        async with connect(f"{server.url}?timeout=2", CATALOGUE) as store:
            call, keys = store.client("queue").call, lock_keys(WIDE_POOL, {"name": "x"}).acquire
            for permit in range(WIDE_POOL.permits):
                await call("ZADD", keys[0], 2**53, f"pdead{permit}")
                await call("HSET", keys[3], f"pdead{permit}", f"{permit} 1 1 a-dead-host/1")
            permits: list[int | None] = []

            async def take() -> None:
                async with store[WIDE_POOL].hold(name="x", timeout=30) as held:
                    permits.append(held.permit)
                    await call("PING")

            takers = [asyncio.create_task(take()) for _ in range(WIDE_POOL.permits)]
            await queued(store, WIDE_POOL, WIDE_POOL.permits, name="x")
            await call("CONFIG", "RESETSTAT")
            await call(
                "ZADD", keys[0], *(part for n in range(WIDE_POOL.permits) for part in (1, f"pdead{n}"))
            )
            async with store[WIDE_POOL].try_hold(name="x"):
                pass
            await asyncio.gather(*takers)
            stats = (await call("INFO", "commandstats")).decode()
    assert len(permits) == WIDE_POOL.permits
    assert set(permits) == set(range(WIDE_POOL.permits))
    assert int(stats.partition("cmdstat_hvals:calls=")[2].partition(",")[0]) < 5


async def test_losing_a_permit_leaves_the_others(locked: Store, key: str) -> None:
    """A holder whose permit is gone from the server is cancelled; another continues."""
    renew_often(locked, locks=POOL)
    leave, entered = asyncio.Event(), asyncio.Event()
    doomed = asyncio.create_task(_hold(locked, key, entered, asyncio.Event()))
    await entered.wait()
    [(token, _)] = await locked[POOL.keyspace].range(0, 0, name=key)
    entered.clear()
    other = asyncio.create_task(_hold(locked, key, entered, leave))
    await entered.wait()
    await locked[POOL.keyspace].remove(token, name=key)
    await asyncio.wait([doomed], timeout=60)
    assert "the server no longer had it" in str(doomed.exception())
    leave.set()
    assert await other == 1
    assert (locked[POOL].lost, locked[POOL].held) == (1, 0)


async def test_permits_are_renewed(locked: Store, key: str) -> None:
    """A permit is renewed while it is held, and so are the TTLs of its keys."""
    renew_often(locked, locks=POOL)
    async with locked[POOL].hold(name=key):
        names = POOL._keys({"name": key}).acquire
        [(token, ends)] = await locked[POOL.keyspace].range(0, 0, name=key)

        async def renewed() -> bool:
            score = await locked[POOL.keyspace].score(token, name=key)
            left = [int(await locked.call("PTTL", names[place])) for place in (0, 3)]
            return score is not None and score > ends and min(left) > 15_000

        for place in (0, 3):
            await locked.call("PEXPIRE", names[place], 10_000)
        await until(renewed)


async def test_fences_grow_by_the_counter_and_by_the_clock(locked: Store, key: str) -> None:
    """Fences grow by the counter when the clock was set back, and by the clock when the counter was lost."""
    first = await _fence(locked, key)
    assert await locked[POOL.fences].delete(name=key)
    second = await _fence(locked, key)
    assert second > first
    ahead = second + 10**12  # eleven days: the server's clock is behind what it was
    await locked.client("queue").call("SET", POOL.fences.key(name=key), ahead)
    assert [await _fence(locked, key) for _ in range(2)] == [ahead + 1, ahead + 2]


async def _fence(store: Store, name: str) -> int:
    async with store[POOL].hold(name=name) as held:
        return held.fence


async def test_sql_refuses_the_earlier_holder_of_a_permit(locked: Store, key: str) -> None:
    """An earlier holder of a permit is refused after a later one, holders of other permits are not."""
    guard, sql = FenceGuard(), sqlite3.connect(":memory:")
    sql.execute(guard.table)

    def admit(held: HeldLock) -> None:
        guard.admit(held, sql.execute(guard.named, guard.values(held)).fetchone())

    async with locked[POOL].hold(name=key) as earlier:
        pass
    async with locked[POOL].hold(name=key) as later:
        entered, leave = asyncio.Event(), asyncio.Event()
        other = asyncio.create_task(_hold(locked, key, entered, leave))
        await entered.wait()
        admit(earlier)
        admit(later)
        with pytest.raises(StaleFencingToken, match="#0"):
            admit(earlier)
        leave.set()
        assert await other == 1
    assert (earlier.fenced, later.fenced) == (f"{earlier.key}#0", f"{earlier.key}#0")
    sql.close()


async def test_a_task_holds_one_permit(locked: Store, key: str) -> None:
    """A task that asks for a second permit might wait for itself, and gets `LockAlreadyHeld`."""
    async with locked[POOL].hold(name=key), locked[POOL].hold(name=f"{key}-other"):
        with pytest.raises(LockAlreadyHeld):
            async with locked[POOL].try_hold(name=key):
                pass


async def test_cancelled_waiters_leave_the_queue(locked: Store, key: str) -> None:
    """Whenever waiters are cancelled, even while they are woken up, the others still get their permits."""
    chance, crowd = random.Random(6), Crowd()
    tasks = [asyncio.create_task(crowd.visit(locked, key, number)) for number in range(120)]
    doomed = chance.sample(tasks, 50)
    for task in doomed:
        await asyncio.sleep(chance.uniform(0, 0.003))  # at random moments, while permits change hands
        task.cancel()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert [each for each in results if each and not isinstance(each, asyncio.CancelledError)] == []
    assert len(crowd.order) >= 70
    await free(locked, POOL, name=key)
    await queued(locked, POOL, 0, name=key)


async def test_a_semaphore_without_fields(locked: Store) -> None:
    """A semaphore without fields can be held and waited for, even on a cluster; its keys share a slot."""
    async with locked[GATE].hold() as held:
        waiting = asyncio.create_task(_gate(locked))
        keys = GATE._keys({})
        await queued(locked, GATE, 1, **keys.fields)
        names = (*keys.acquire, GATE._wake_channel(keys, "token"))
        assert len({key_slot(name) for name in names}) == 1
        for name in keys.acquire:
            assert CATALOGUE.classify(name.encode()) is not None
            assert await locked.client("queue").call("PTTL", name) > 0
    assert await waiting > held.fence


async def _gate(store: Store) -> int:
    async with store[GATE].hold() as held:
        return held.fence


@pytest.mark.parametrize("permits", [0, -1, 1001, 2.0, True])
def test_invalid_permits_are_refused(permits: Any) -> None:
    """A number of permits must be whole, positive and at most a thousand."""
    with pytest.raises(InvalidDeclaration, match="a whole number from 1 to 1000"):
        Semaphores(
            Catalogue("refused"), "x:{a}", permits=permits, lease=timedelta(seconds=5), purpose="Wrong"
        )
