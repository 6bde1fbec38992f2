"""Holding a lock: exclusion, fencing tokens, renewals, and the keys it leaves behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from ephemera import Catalogue, Store, connect
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, LockAlreadyHeld, ServerError, UndeclaredKeyspace
from ephemera.patterns.locks import Locks
from ephemera.patterns.locks._held_lock import RENEWER
from ephemera.wire import key_slot
from tests.patterns.lease_expiry import outlive_the_lease, renew_often
from tests.patterns.lock_fixtures import ALONE, CATALOGUE, LOCKS, PAIRS, free, queued, until
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


async def test_fences_grow_and_only_the_counter_remains(locked: Store, key: str) -> None:
    """Each holder has a larger fence, and a released lock leaves only its fence counter."""
    fences = []
    for _ in range(3):
        async with locked[LOCKS].hold(name=key) as held:
            fences.append(held.fence)
            assert held.remaining > 25
            holder = await locked[LOCKS].holder(name=key)
            assert holder is not None
            assert holder.fence == held.fence
    assert fences == sorted(set(fences))
    assert await locked[LOCKS].holder(name=key) is None
    assert await locked[LOCKS.fences].get(name=key) == fences[-1]


async def test_fences_grow_by_the_counter_and_by_the_clock(locked: Store, key: str) -> None:
    """Fences grow by the counter when the clock was set back, and by the clock when the counter was lost."""
    first = await _fence(locked, LOCKS, name=key)
    assert await locked[LOCKS.fences].delete(name=key)
    second = await _fence(locked, LOCKS, name=key)
    assert second > first
    ahead = second + 10**12  # eleven days: the server's clock is behind what it was
    await locked.client("queue").call("SET", LOCKS.fences.key(name=key), ahead)
    assert await _fence(locked, LOCKS, name=key) == ahead + 1
    assert await _fence(locked, LOCKS, name=key) == ahead + 2


@pytest.mark.parametrize(("locks", "fields"), [(ALONE, {}), (PAIRS, {"org": "a{b", "doc": "c:d"})])
async def test_patterns_of_any_number_of_fields(locked: Store, locks: Locks, fields: dict[str, Any]) -> None:
    """Locks without fields and with several can be held and waited for, including on a cluster."""
    async with locked[locks].hold(**fields) as held:
        next_one = asyncio.create_task(_fence(locked, locks, **fields))
        await queued(locked, locks, 1, **locks._keys(fields).fields)
    assert await next_one > held.fence


async def _fence(store: Store, locks: Locks, **fields: Any) -> int:
    async with store[locks].hold(**fields) as held:
        return held.fence


async def test_a_lock_has_one_holder(locked: Store, key: str) -> None:
    """While one task holds a lock, the block of `try_hold` runs with None."""
    async with locked[LOCKS].hold(name=key):
        other = asyncio.create_task(_try(locked, key))
        assert await other is None
    assert await _try(locked, key) is not None
    await free(locked, LOCKS, name=key)


async def _try(store: Store, name: str) -> int | None:
    async with store[LOCKS].try_hold(name=name) as held:
        return None if held is None else held.fence


async def test_a_lock_is_renewed_while_it_is_held(locked: Store, key: str) -> None:
    """A block that takes longer than a lease keeps its lock throughout."""
    renew_often(locked)
    async with locked[LOCKS].hold(name=key) as held:
        other = asyncio.create_task(_fence(locked, LOCKS, name=key))
        await queued(locked, LOCKS, 1, name=key)
        await outlive_the_lease(locked, held)
        holder = await locked[LOCKS].holder(name=key)
        assert holder is not None
        assert holder.fence == held.fence
        assert not other.done()
    assert await other > held.fence


async def test_a_renewal_is_one_plain_command_where_the_server_has_it(locked: Store, key: str) -> None:
    """`SET ... IFEQ` or the script of older servers: both renew what is held, and leave what is another's."""
    async with locked[LOCKS].hold(name=key) as held:
        leases = held._leases
        assert await leases.renew(held)
        assert leases._has_ifeq == await _has_ifeq(locked, f"{held.key}-free")
        stored = await locked.call("GET", held.key)
        await locked.call("PEXPIRE", held.key, 20_000)
        assert await leases.renew(held)
        assert await locked.call("GET", held.key) == stored
        assert await locked.call("PTTL", held.key) > 20_000
        await locked.call("SET", held.key, "another holder", "PX", 20_000)
        assert not await leases.renew(held)
        assert await locked.call("GET", held.key) == b"another holder"
        await locked.call("DEL", held.key)
        assert not await leases.renew(held)
        assert await locked.call("EXISTS", held.key) == 0
        await locked.call("SET", held.key, stored, "PX", 20_000)


async def _has_ifeq(store: Store, key: str) -> bool:
    try:
        return await store.call("SET", key, "x", "IFEQ", "x") is None
    except ServerError:
        return False


async def test_locks_acquired_at_different_moments_are_renewed_together(locked: Store, key: str) -> None:
    """After their first renewal, all locks of a store are renewed at the same moment."""
    renewer = locked[RENEWER]
    renew_often(locked, every=1.0)
    async with asyncio.TaskGroup() as group:
        done = asyncio.Event()

        async def hold(number: int) -> None:
            async with locked[LOCKS].hold(name=f"{key}-{number}"):
                await done.wait()

        for number in range(20):
            group.create_task(hold(number))
            await asyncio.sleep(0.01)  # their moments must differ
        first = max(held._due for held in renewer.held.values())

        async def together() -> bool:
            dues = [held._due for held in renewer.held.values()]
            return min(dues) > first and max(dues) - min(dues) < 0.01

        await until(together)
        done.set()


async def test_a_task_cannot_acquire_a_lock_it_holds(locked: Store, key: str) -> None:
    """A task that acquires its own lock gets `LockAlreadyHeld`; other locks and other tasks may wait."""
    async with locked[LOCKS].hold(name=key) as held, locked[LOCKS].hold(name=f"{key}-other"):
        with pytest.raises(LockAlreadyHeld) as caught:
            async with locked[LOCKS].hold(name=key):
                pass
        with pytest.raises(LockAlreadyHeld):
            async with locked[LOCKS].try_hold(name=key):
                pass
        assert (caught.value.key, caught.value.fence) == (held.key, held.fence)
        other = asyncio.create_task(_fence(locked, LOCKS, name=key))
        await queued(locked, LOCKS, 1, name=key)
    assert await other > held.fence


async def test_every_key_is_declared_shares_a_slot_and_has_a_ttl(locked: Store, key: str) -> None:
    """The lock, its fence and its queue belong to the catalogue, have a TTL, and share a slot."""
    async with locked[LOCKS].hold(name=key):
        waiting = asyncio.create_task(_fence(locked, LOCKS, name=key))
        await queued(locked, LOCKS, 1, name=key)
        place = LOCKS._keys({"name": key})
        names = (*place.acquire, LOCKS._wake_channel(place, "token"))
        assert len({key_slot(name) for name in names}) == 1
        for name in place.acquire:
            assert CATALOGUE.classify(name.encode()) is not None
            assert await locked.client("queue").call("PTTL", name) > 0
    await waiting


async def test_invalid_declarations_are_refused(server: Valkey) -> None:
    """A lease too short to renew, a field that hides an option and a store without the catalogue fail."""
    catalogue = Catalogue("refused")
    with pytest.raises(InvalidDeclaration, match="a lease of"):
        Locks(catalogue, "x:{a}", lease=timedelta(milliseconds=50), purpose="Too short")
    with pytest.raises(InvalidDeclaration, match="'timeout' cannot name"):
        Locks(catalogue, "y:{timeout}", lease=timedelta(seconds=5), purpose="Hides an option")
    async with connect(server.url, catalogue) as store:
        with pytest.raises(UndeclaredKeyspace):
            store[LOCKS]
