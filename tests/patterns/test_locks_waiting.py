"""Waiting for a lock: wake-ups instead of polling, in order of arrival, undisturbed by dead waiters."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.errors import LockTimeout
from ephemera.operations.configuration import access_rules
from ephemera.patterns.locks import Locks
from tests.chaos.conftest import victim
from tests.patterns.lease_expiry import renew_often
from tests.patterns.lock_fixtures import BRIEF, CATALOGUE, KEPT, LOCKS, free, queued
from tests.wire.conditions import eventually
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors", "victim"]


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _turn(store: Store, name: str, order: list[Any] | None = None, who: object = None) -> float:
    """Hold a lock for a moment, and return when."""
    async with store[LOCKS].hold(name=name):
        if order is not None:
            order.append(who)
        return _now()


async def test_a_waiter_is_woken_by_the_release(locked: Store, key: str) -> None:
    """A waiter acquires the lock as soon as it is released, long before the lease would end."""
    async with locked[LOCKS].hold(name=key):
        waiting = asyncio.create_task(_turn(locked, key))
        await queued(locked, LOCKS, 1, name=key)
        released = _now()
    assert await waiting - released < 5


async def test_waiters_acquire_in_order_of_arrival(locked: Store, key: str) -> None:
    """Waiters acquire the lock in the order in which they queued."""
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
    """However long it waits, a waiter runs the script twice: before it queues and when it does."""
    async with connect(victim.url, CATALOGUE) as store, store[LOCKS].hold(name="long"):
        waiting = [asyncio.create_task(_turn(store, "long")) for _ in range(20)]
        await queued(store, LOCKS, 20, name="long")
        assert _calls(victim) <= 1 + 2 * 20
        await asyncio.sleep(1)  # time for a poll that must not happen
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
    """`LockTimeout` names the time waited and the holder, and the waiter has left the queue."""
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


async def test_a_timeout_of_zero_is_one_attempt(locked: Store, key: str) -> None:
    """With a timeout of zero a free lock is acquired, and a held one raises at once."""
    await _patient(locked, key, 0)
    async with locked[LOCKS].hold(name=key):
        with pytest.raises(LockTimeout):
            await asyncio.create_task(_patient(locked, key, 0))


async def test_a_dead_waiter_is_skipped(locked: Store, key: str) -> None:
    """Waiters whose connection is gone do not delay the others, however many they are."""
    async with locked[LOCKS].hold(name=key):
        gone = LOCKS._keys({"name": key})
        for number in range(50):
            await locked[LOCKS.waiters].add({LOCKS._wake_channel(gone, f"gone-{number}"): number}, name=key)
        waiting = asyncio.create_task(_turn(locked, key))
        await queued(locked, LOCKS, 51, name=key)
        released = _now()
    assert await waiting - released < 5


async def test_a_waiter_that_hangs_costs_a_second(locked: Store, key: str) -> None:
    """A waiter that ignores its wake-up delays the next one by a second, not by a lease."""
    channel = LOCKS._wake_channel(LOCKS._keys({"name": key}), "hangs")
    async with locked.client("queue").subscribe(channel, kind="shard"):
        async with locked[LOCKS].hold(name=key):
            await locked[LOCKS.waiters].add({channel: 1}, name=key)
            waiting = asyncio.create_task(_turn(locked, key))
            await queued(locked, LOCKS, 2, name=key)
            released = _now()
        assert 0.9 < await waiting - released < 8


async def test_a_waiter_survives_a_lost_connection(server: Valkey, key: str) -> None:
    """A waiter whose pub/sub connection was cut acquires the lock soon after its release."""
    async with connect(server.url, CATALOGUE) as store:
        async with store[LOCKS].hold(name=key):
            waiting = asyncio.create_task(_turn(store, key))
            await queued(store, LOCKS, 1, name=key)
            server.ask("CLIENT", "KILL", "TYPE", "pubsub")
            released = _now()
        assert await waiting - released < 20  # the lease that it saw would have lasted for 30 s


async def test_a_dead_holders_lock_is_acquired_when_its_lease_ends(locked: Store, key: str) -> None:
    """A waiter waits for a dead holder until its lease ends, and no longer."""
    name = BRIEF.keyspace.key(name=key)
    await locked.client("queue").call("SET", name, "vanished holder", "PX", 300)
    began = _now()
    async with locked[BRIEF].hold(name=key, timeout=5):
        assert 0.2 < _now() - began < 5


async def test_cancelled_waiters_leave_the_queue(locked: Store, key: str) -> None:
    """Whenever waiters are cancelled, even while they are woken up, the others still acquire the lock."""
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
            finally:  # also when a holder is cancelled
                inside -= 1

    tasks = [asyncio.create_task(work(number)) for number in range(200)]
    doomed = chance.sample(tasks, 80)
    for task in doomed:
        await asyncio.sleep(chance.uniform(0, 0.003))  # at random moments, while the lock changes hands
        task.cancel()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert [each for each in results if each and not isinstance(each, asyncio.CancelledError)] == []
    assert len(held) >= 120
    await free(locked, LOCKS, name=key)
    await queued(locked, LOCKS, 0, name=key)


@pytest.mark.on_both_loops
@pytest.mark.parametrize("locks", [LOCKS, KEPT])
async def test_two_stores_exclude_each_other(server: Valkey, key: str, locks: Locks) -> None:
    """Of forty tasks on two connections only one is in the block at a time, and their fences grow."""
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


async def test_the_access_rules_of_the_catalogue_suffice(victim: Valkey) -> None:
    """Under the access rules of the catalogue, locks are acquired, waited for, renewed and released."""
    victim.ask("ACL", "SETUSER", "service", *access_rules(CATALOGUE, "service").rules(), ">secret")
    url = f"redis://service:secret@127.0.0.1:{victim.port}"
    async with connect(url, CATALOGUE) as one, connect(url, CATALOGUE) as other:
        async with one[LOCKS].hold(name="allowed"):
            waiting = asyncio.create_task(_turn(other, "allowed"))
            await queued(one, LOCKS, 1, name="allowed")
        await asyncio.wait_for(waiting, 60)
        renew_often(one)
        async with one[LOCKS].hold(name="renewed") as held:
            first = held._deadline  # a renewal that was refused would leave it there
            await eventually(lambda: held._deadline > first)
