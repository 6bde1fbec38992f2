"""Permits and read-write locks are lost, cancelled and waited for as locks are: nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.errors import LockLost, LockTimeout
from ephemera.operations.configuration import access_rules
from ephemera.patterns.locks import HeldLock, LockDeclaration
from tests.chaos.conftest import victim
from tests.patterns.lease_expiry import renew_often
from tests.patterns.lock_fixtures import CATALOGUE, GATE, POOL, SHELF, free, queued
from tests.wire.conditions import eventually
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors", "victim"]

WAYS = ["permit", "read", "write"]


def _declared(way: str) -> LockDeclaration:
    return POOL if way == "permit" else SHELF


def _hold(store: Store, way: str, name: str, **options: Any) -> AbstractAsyncContextManager[HeldLock]:
    bound: Any = store[POOL] if way == "permit" else store[SHELF]
    block: AbstractAsyncContextManager[HeldLock] = getattr(bound, {"permit": "hold"}.get(way, way))(
        name=name, **options
    )
    return block


async def _forever() -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def opened(server: Valkey) -> AsyncIterator[Store]:
    """A store on the shared server."""
    async with connect(server.url, CATALOGUE) as store:
        yield store


@pytest.mark.parametrize("way", WAYS)
async def test_losing_it_ends_the_block_with_lock_lost(opened: Store, key: str, way: str) -> None:
    """When the server no longer has it, the block is cancelled, and its task is not left cancelled."""
    renew_often(opened, locks=_declared(way))

    async def work() -> None:
        async with _hold(opened, way, key):
            await opened[_declared(way).keyspace].delete(name=key)
            await _forever()

    with pytest.raises(LockLost, match="the server no longer had it"):
        await work()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    async with _hold(opened, way, key, timeout=5):
        pass


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_acquisition_leaves_nothing(opened: Store, key: str, way: str, steps: int) -> None:
    """At whatever moment an acquisition is cancelled, everything is free soon after."""

    async def work() -> None:
        async with _hold(opened, way, key):
            pass

    task = asyncio.create_task(work())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await free(opened, _declared(way), name=key)


@pytest.mark.parametrize("steps", range(3))
@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_release_still_releases(opened: Store, key: str, way: str, steps: int) -> None:
    """At whatever moment the end of a block is cancelled, it is released."""
    entered, leave = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with _hold(opened, way, key):
            entered.set()
            await leave.wait()

    task = asyncio.create_task(work())
    await entered.wait()
    leave.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await free(opened, _declared(way), name=key)


@pytest.mark.parametrize("way", WAYS)
async def test_closing_the_store_cancels_holders(server: Valkey, key: str, way: str) -> None:
    """A block that outlives its store ends with `LockLost`."""
    entered = asyncio.Event()

    async def work(store: Store) -> None:
        async with _hold(store, way, key):
            entered.set()
            await _forever()

    async with connect(server.url, CATALOGUE) as store:
        task = asyncio.create_task(work(store))
        await entered.wait()
    with pytest.raises(LockLost, match="closed"):
        await task


async def test_a_holder_that_was_replaced_leaves_its_successor(opened: Store, key: str) -> None:
    """A writer whose lease was given to another ends with `LockLost`, and the other keeps the lock."""

    async def work() -> None:
        async with opened[SHELF].write(name=key) as held:
            await opened[SHELF.keyspace].delete(name=key)
            entered.set_result(held)
            await released.wait()

    entered: asyncio.Future[HeldLock] = asyncio.get_running_loop().create_future()
    released = asyncio.Event()
    task = asyncio.create_task(work())
    earlier = await entered
    async with opened[SHELF].write(name=key, timeout=5) as later:
        assert later.fence > earlier.fence
        released.set()
        with pytest.raises(LockLost):
            await task
        [holder] = await opened[SHELF].holders(name=key)
        assert holder.fence == later.fence


async def test_waiting_ends_at_its_timeout(opened: Store, key: str) -> None:
    """`LockTimeout` names the time waited and a holder, and the waiter has left the queue."""

    async def wait() -> None:
        async with opened[SHELF].read(name=key, timeout=0.15):
            pass

    async with opened[SHELF].write(name=key) as held:
        with pytest.raises(LockTimeout) as caught:
            await asyncio.create_task(wait())
        assert (caught.value.key, caught.value.fence) == (held.key, held.fence)
        assert caught.value.holder
        assert 0.15 <= caught.value.waited < 15
        await queued(opened, SHELF, 0, name=key)


async def test_a_waiter_survives_a_lost_connection(opened: Store, server: Valkey, key: str) -> None:
    """A waiter whose pub/sub connection was cut gets its permit soon after the release."""

    async def wait() -> None:
        async with opened[GATE].hold(timeout=25):  # the lease that it saw would have lasted for 30 s
            pass

    async with opened[GATE].hold():
        waiting = asyncio.create_task(wait())
        await queued(opened, GATE, 1, **GATE._keys({}).fields)
        server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    await waiting


async def test_the_access_rules_of_the_catalogue_suffice(victim: Valkey) -> None:
    """Under the access rules of the catalogue, both are acquired, waited for, renewed and released."""
    victim.ask("ACL", "SETUSER", "service", *access_rules(CATALOGUE, "service").rules(), ">secret")
    url = f"redis://service:secret@127.0.0.1:{victim.port}"
    async with connect(url, CATALOGUE) as one, connect(url, CATALOGUE) as other:
        for locks in (POOL, SHELF):
            renew_often(one, locks=locks)
        async with one[POOL].hold(name="allowed") as permit, one[SHELF].write(name="allowed") as written:
            await _renewed(permit)
            await _renewed(written)
            waiting = asyncio.create_task(_read(other))
            await queued(one, SHELF, 1, name="allowed")
        await asyncio.wait_for(waiting, 60)


async def _renewed(held: HeldLock) -> None:
    first = held._deadline  # a renewal that was refused would leave it there
    await eventually(lambda: held._deadline > first)


async def _read(store: Store) -> None:
    async with store[SHELF].read(name="allowed"):
        assert await store[SHELF].holders(name="allowed")
