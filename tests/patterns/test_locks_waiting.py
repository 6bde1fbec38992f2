"""Waiting for a lock: woken, not polling, first come first served; who is gone costs the others nothing."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.errors import LockTimeout
from ephemera.operations.configuration._acl import access_rules
from ephemera.patterns.locks import Locks
from tests.chaos.conftest import victim
from tests.patterns.locking import BRIEF, CATALOGUE, KEPT, LOCKS, free, queued
from tests.patterns.outliving import renew_often
from tests.wire.unhandled import no_unhandled_errors
from tests.wire.waiting import eventually

__all__ = ["no_unhandled_errors", "victim"]


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _turn(store: Store, name: str, order: list[Any] | None = None, who: object = None) -> float:
    """Hold a lock for a moment; when it was held."""
    async with store[LOCKS].hold(name=name):
        if order is not None:
            order.append(who)
        return _now()


async def test_a_waiter_is_woken_by_the_release(locked: Store, key: str) -> None:
    """A waiter has the lock at once when it is given up, long before the lease would end."""
    async with locked[LOCKS].hold(name=key):
        waiting = asyncio.create_task(_turn(locked, key))
        await queued(locked, LOCKS, 1, name=key)
        released = _now()
    assert await waiting - released < 5


async def test_waiters_come_in_turn(locked: Store, key: str) -> None:
    """Those who wait get the lock in the order they came."""
    order: list[Any] = []
    async with locked[LOCKS].hold(name=key):
        waiting = []
        for number in range(10):
            waiting.append(asyncio.create_task(_turn(locked, key, order, number)))
            await queued(locked, LOCKS, number + 1, name=key)
    await asyncio.gather(*waiting)
    assert order == list(range(10))
    assert not await locked[LOCKS.waiters].exists(name=key)


async def test_waiters_do_not_poll(victim: Valkey) -> None:
    """However long they wait, those who wait ask twice: before they queue, and when they do."""
    async with connect(victim.url, CATALOGUE) as store, store[LOCKS].hold(name="long"):
        waiting = [asyncio.create_task(_turn(store, "long")) for _ in range(20)]
        await queued(store, LOCKS, 20, name="long")
        assert _calls(victim) <= 1 + 2 * 20
        await asyncio.sleep(1)  # what must not happen has this long to happen
        assert _calls(victim) <= 1 + 2 * 20
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _calls(server: Valkey) -> int:
    """How often a script was run on a server; unknown scripts are sent again, as EVAL."""
    lines = str(server.ask("INFO", "commandstats")).splitlines()
    (line,) = (line for line in lines if line.startswith("cmdstat_evalsha:"))
    facts = dict(fact.split("=") for fact in line.partition(":")[2].split(","))
    return int(facts["calls"])


async def test_waiting_ends_at_its_timeout(locked: Store, key: str) -> None:
    """One who waited long enough is told how long and for whom, and has left the queue."""
    async with locked[LOCKS].hold(name=key) as held:
        waiting = asyncio.create_task(_patient(locked, key, timedelta(milliseconds=150)))
        with pytest.raises(LockTimeout, match="not free within") as caught:
            await waiting
        error = caught.value
        assert isinstance(error, TimeoutError)
        assert (error.key, error.fence) == (held.key, held.fence)
        assert error.holder
        assert 0.15 <= error.waited < 5
        await queued(locked, LOCKS, 0, name=key)


async def _patient(store: Store, name: str, timeout: float | timedelta) -> None:
    async with store[LOCKS].hold(name=name, timeout=timeout):
        pass


async def test_no_time_to_wait_is_one_attempt(locked: Store, key: str) -> None:
    """With a timeout of zero a lock that is free is taken, and one that is not raises at once."""
    await _patient(locked, key, 0)
    async with locked[LOCKS].hold(name=key):
        with pytest.raises(LockTimeout):
            await asyncio.create_task(_patient(locked, key, 0))


async def test_a_waiter_that_is_gone_is_passed_over(locked: Store, key: str) -> None:
    """Those whose connection is gone stand in nobody's way, however many they are."""
    async with locked[LOCKS].hold(name=key):
        gone = LOCKS.place({"name": key})
        for number in range(50):
            await locked[LOCKS.waiters].add({LOCKS.channel_of(gone, f"gone-{number}"): number}, name=key)
        waiting = asyncio.create_task(_turn(locked, key))
        await queued(locked, LOCKS, 51, name=key)
        released = _now()
    assert await waiting - released < 5


async def test_a_waiter_that_hangs_costs_a_second(locked: Store, key: str) -> None:
    """One who listens but does not take the lock when called delays the next by a second, not by a lease."""
    channel = LOCKS.channel_of(LOCKS.place({"name": key}), "hangs")
    async with locked.client("queue").subscribe(channel, kind="shard"):
        async with locked[LOCKS].hold(name=key):
            await locked[LOCKS.waiters].add({channel: 1}, name=key)
            waiting = asyncio.create_task(_turn(locked, key))
            await queued(locked, LOCKS, 2, name=key)
            released = _now()
        assert 0.9 < await waiting - released < 8


async def test_a_lost_connection_does_not_lose_the_turn(server: Valkey, key: str) -> None:
    """A waiter whose connection for messages was cut has the lock soon after it is given up."""
    async with connect(server.url, CATALOGUE) as store:
        async with store[LOCKS].hold(name=key):
            waiting = asyncio.create_task(_turn(store, key))
            await queued(store, LOCKS, 1, name=key)
            server.ask("CLIENT", "KILL", "TYPE", "pubsub")
            released = _now()
        assert await waiting - released < 20  # the lease that it saw would have lasted for 30 s


async def test_a_dead_holders_lock_is_taken_when_its_lease_ends(locked: Store, key: str) -> None:
    """A holder that vanished is waited for as long as its lease lasts, no longer."""
    name = BRIEF.space.key(name=key)
    await locked.client("queue").call("SET", name, "vanished holder", "PX", 300)
    began = _now()
    async with locked[BRIEF].hold(name=key, timeout=5):
        assert 0.2 < _now() - began < 5


async def test_cancelled_waiters_leave_the_queue(locked: Store, key: str) -> None:
    """Whenever waiters give up, also when they are just being called, the others get their turns."""
    chance = random.Random(6)
    held: list[int] = []
    inside = 0

    async def work(number: int) -> None:
        nonlocal inside
        async with locked[LOCKS].hold(name=key):
            inside += 1
            try:
                assert inside == 1
                held.append(number)
                await asyncio.sleep(0)
            finally:  # also of one who is cancelled as its holder
                inside -= 1

    tasks = [asyncio.create_task(work(number)) for number in range(200)]
    doomed = chance.sample(tasks, 80)
    for task in doomed:
        await asyncio.sleep(chance.uniform(0, 0.003))  # at random moments, while the lock goes round
        task.cancel()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert [each for each in results if each and not isinstance(each, asyncio.CancelledError)] == []
    assert len(held) >= 120
    await free(locked, LOCKS, name=key)
    await queued(locked, LOCKS, 0, name=key)


@pytest.mark.on_both_loops
@pytest.mark.parametrize("locks", [LOCKS, KEPT])
async def test_two_stores_exclude_each_other(server: Valkey, key: str, locks: Locks) -> None:
    """Forty tasks on two connections are never two in the block, and their fences only grow."""
    fences: list[int] = []
    inside = 0

    async def work(store: Store) -> None:
        nonlocal inside
        for _ in range(10):
            async with store[locks].hold(name=key) as held:
                inside += 1
                assert inside == 1
                fences.append(held.fence)
                await asyncio.sleep(0)
                inside -= 1

    async with connect(server.url, CATALOGUE) as one, connect(server.url, CATALOGUE) as other:
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(work((one, other)[number % 2]))
    assert fences == sorted(set(fences))
    assert len(fences) == 400


async def test_the_catalogues_own_user_may_do_it_all(victim: Valkey) -> None:
    """Under the access rules of the catalogue, locks are taken, waited for, renewed and handed over."""
    victim.ask("ACL", "SETUSER", "service", *access_rules(CATALOGUE, "service").words(), ">secret")
    url = victim.url.replace("redis://", "redis://service:secret@")
    async with connect(url, CATALOGUE) as one, connect(url, CATALOGUE) as other:
        async with one[LOCKS].hold(name="allowed"):
            waiting = asyncio.create_task(_turn(other, "allowed"))
            await queued(one, LOCKS, 1, name="allowed")
        await asyncio.wait_for(waiting, 60)
        renew_often(one)
        async with one[LOCKS].hold(name="renewed") as held:
            taken = held.deadline  # what was refused would leave it there
            await eventually(lambda: held.deadline > taken)
