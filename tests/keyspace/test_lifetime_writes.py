"""What `lifetime` promises, for every kind of key, by the server's own account."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from ephemera.errors import InvalidLifetime
from ephemera.keyspace import Catalogue, Keyspace, Store, connect, until
from tests.keyspace.every_kind import KEYSPACES, KINDS, LIFETIMES, OPERATIONS, TTL, Session

EXPIRING = ("fixed", "sliding", "windowed")
WITH_PUT = [kind for kind in KINDS if OPERATIONS[kind].put]
WITH_CHANGE = [kind for kind in KINDS if OPERATIONS[kind].change]
SHORT = 5_000  # milliseconds; what a test gives a key to see whether it is renewed


async def _left(store: Store, space: Keyspace[Any], key: str) -> int:
    return int(await store.call("PTTL", space.key(id=key)))


def _until(lifetime: str, seconds: float = 60) -> dict[str, float]:
    return {"until": time.time() + seconds} if lifetime == "until" else {}


@pytest.mark.parametrize("lifetime", LIFETIMES)
@pytest.mark.parametrize("kind", KINDS)
async def test_the_first_write_sets_the_ttl(store: Store, key: str, kind: str, lifetime: str) -> None:
    """Value and TTL are set by one operation."""
    space = KEYSPACES[kind, lifetime]
    assert await OPERATIONS[kind].write(store[space], id=key, **_until(lifetime))
    assert await OPERATIONS[kind].read(store[space], id=key)
    left = await _left(store, space, key)
    expected = {"until": 60_000, "permanent": -1}.get(lifetime, TTL)
    assert expected - 30_000 < left <= expected
    assert (await store.call("TYPE", space.key(id=key))).decode() == space.redis_type


@pytest.mark.parametrize(("lifetime", "renewed"), [("fixed", True), ("sliding", True), ("windowed", False)])
@pytest.mark.parametrize("kind", WITH_PUT)
async def test_a_full_write(store: Store, key: str, kind: str, lifetime: str, renewed: bool) -> None:
    """A put restarts the TTL of a fixed or sliding lifetime, and does not extend a window."""
    space, operations = KEYSPACES[kind, lifetime], OPERATIONS[kind]
    await operations.write(store[space], id=key)
    await store.call("PEXPIRE", space.key(id=key), SHORT)
    assert operations.put
    await operations.put(store[space], id=key)
    assert (await _left(store, space, key) > SHORT) is renewed


@pytest.mark.parametrize(("lifetime", "renewed"), [("fixed", False), ("sliding", True), ("windowed", False)])
@pytest.mark.parametrize("kind", WITH_CHANGE)
async def test_a_partial_write(store: Store, key: str, kind: str, lifetime: str, renewed: bool) -> None:
    """A change keeps the TTL of a fixed or windowed lifetime, and restarts a sliding one."""
    space, operations = KEYSPACES[kind, lifetime], OPERATIONS[kind]
    await operations.write(store[space], id=key)
    await store.call("PEXPIRE", space.key(id=key), SHORT)
    assert operations.change
    assert await operations.change(store[space], id=key)
    assert (await _left(store, space, key) > SHORT) is renewed


@pytest.mark.parametrize("lifetime", LIFETIMES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_read(store: Store, key: str, kind: str, lifetime: str) -> None:
    """A read restarts a sliding TTL and no other, and never creates a key."""
    space, operations = KEYSPACES[kind, lifetime], OPERATIONS[kind]
    assert not await operations.read(store[space], id=key)
    assert await _left(store, space, key) == -2
    await operations.write(store[space], id=key, **_until(lifetime))
    await store.call("PEXPIRE", space.key(id=key), SHORT)
    assert await operations.read(store[space], id=key)
    assert (await _left(store, space, key) > SHORT) is (lifetime == "sliding")


@pytest.mark.parametrize("lifetime", EXPIRING)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_missing_ttl_is_restored(store: Store, key: str, kind: str, lifetime: str) -> None:
    """A key that lost its TTL, or never had one, gets one with the next write of any sort."""
    space, operations = KEYSPACES[kind, lifetime], OPERATIONS[kind]
    for write in filter(None, (operations.write, operations.put, operations.change)):
        await operations.write(store[space], id=key)
        await store.call("PERSIST", space.key(id=key))
        await write(store[space], id=key)
        assert TTL - 60_000 < await _left(store, space, key) <= TTL


@pytest.mark.parametrize("seconds", [-1, -1_000_000_000, -100_000_000_000])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_instant_that_has_passed_writes_nothing(
    store: Store, key: str, kind: str, seconds: float
) -> None:
    """It is a result and not an error, and an existing key stays as it was."""
    space, operations = KEYSPACES[kind, "until"], OPERATIONS[kind]
    assert not await operations.write(store[space], id=key, **_until("until", seconds))
    assert await _left(store, space, key) == -2
    await operations.write(store[space], id=key, **_until("until"))
    before = await operations.read(store[space], id=key)
    for write in filter(None, (operations.put, operations.change)):
        assert not await write(store[space], id=key, **_until("until", seconds))
    assert await operations.read(store[space], id=key) == before
    assert await _left(store, space, key) > SHORT


@pytest.mark.parametrize("kind", KINDS)
async def test_an_instant_is_given_where_it_belongs(store: Store, key: str, kind: str) -> None:
    """An until lifetime needs an instant, others refuse one, and both errors name the pattern."""
    write = OPERATIONS[kind].write
    with pytest.raises(InvalidLifetime, match=f"test:{kind}:until:.*give until="):
        await write(store[KEYSPACES[kind, "until"]], id=key)
    with pytest.raises(InvalidLifetime, match=f"test:{kind}:fixed:.*its lifetime is 1 h"):
        await write(store[KEYSPACES[kind, "fixed"]], id=key, until=time.time() + 60)


@pytest.mark.parametrize("here", [0, -86_400])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_servers_clock_decides_on_a_bound(
    url: str, key: str, kind: str, here: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instant within `at_most` by the server's clock is written, whatever this clock says."""
    bounded = Catalogue("bounded")
    held: dict[str, list[type]] = {"hash": [Session], "stream": [Session], "value": [Session]}
    held |= {"mapping": [int], "counter": [], "flag": []}
    types = held.get(kind, [str])
    bound = until(at_most=timedelta(hours=1))
    space = getattr(bounded, kind)(f"test:{kind}:bounded:{{id}}", *types, lifetime=bound, purpose="a test")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + here)
    async with connect(url, bounded) as store:
        assert await OPERATIONS[kind].write(store[space], id=key, until=now + 3000)
        assert SHORT < await _left(store, space, key) <= 3_000_000
        with pytest.raises(InvalidLifetime, match=f"test:{kind}:bounded:.*at most 1 h; .*further ahead"):
            await OPERATIONS[kind].write(store[space], id=key, until=now + 7200)


@pytest.mark.parametrize("kind", ["hash", "set", "list", "mapping", "sorted_set"])
async def test_removals_need_no_instant(store: Store, key: str, kind: str) -> None:
    """Removing or updating keeps the expiry of an until key."""
    space = KEYSPACES[kind, "until"]
    access = store[space]
    await OPERATIONS[kind].write(access, id=key, **_until("until"))
    await store.call("PEXPIRE", space.key(id=key), SHORT)
    if kind == "hash":
        assert await access.update({"visits": 5}, id=key)
        assert 0 < await _left(store, space, key) <= SHORT
    elif kind == "list":
        assert await access.pop(id=key) == "x"
    else:
        assert await access.remove("x", id=key) == 1


@pytest.mark.parametrize("kind", WITH_PUT)
async def test_a_full_write_may_have_a_shorter_lifetime(store: Store, key: str, kind: str) -> None:
    """The TTL of that write is the given one; the next write without it has the declared one again."""
    space, put = KEYSPACES[kind, "fixed"], OPERATIONS[kind].put
    assert put
    assert await put(store[space], id=key, lifetime=timedelta(milliseconds=SHORT))
    assert 0 < await _left(store, space, key) <= SHORT
    assert await put(store[space], id=key)
    assert await _left(store, space, key) > SHORT
    assert await put(store[space], id=key, lifetime=timedelta(milliseconds=TTL))
    assert await _left(store, space, key) > SHORT


@pytest.mark.parametrize("kind", WITH_PUT)
@pytest.mark.parametrize(
    ("lifetime", "given", "problem"),
    [
        ("fixed", timedelta(milliseconds=TTL + 1), "is longer than the declared"),
        ("fixed", timedelta(0), "is not positive"),
        ("fixed", 60, r"lifetime=60 is not a duration; use timedelta\(seconds=60\)"),
        ("sliding", timedelta(seconds=1), "is for fixed"),
        ("windowed", timedelta(seconds=1), "is for fixed"),
        ("until", timedelta(seconds=1), "give until= for an instant"),
        ("permanent", timedelta(seconds=1), "is for fixed"),
    ],
)
async def test_lifetimes_beyond_the_declared_one_are_refused(
    store: Store, key: str, kind: str, lifetime: str, given: Any, problem: str
) -> None:
    """The error names the pattern and what to do, and nothing is written."""
    space, put = KEYSPACES[kind, lifetime], OPERATIONS[kind].put
    assert put
    with pytest.raises(InvalidLifetime, match=f"{space.pattern.split('{')[0]}.*{problem}"):
        await put(store[space], id=key, lifetime=given)
    assert await store.call("EXISTS", space.key(id=key)) == 0


async def test_batches_and_conditional_writes_may_have_a_shorter_lifetime(store: Store, key: str) -> None:
    """`put_many`, `put_if_absent` and `set_if_absent` set it in the same step, too."""
    value, flag = KEYSPACES["value", "fixed"], KEYSPACES["flag", "fixed"]
    brief = timedelta(milliseconds=SHORT)
    items = [({"id": f"{key}-{number}"}, Session("ann")) for number in range(2)]
    assert await store[value].put_many(items, lifetime=brief) == 2
    assert await store[value].put_if_absent(Session("ann"), id=f"{key}-2", lifetime=brief)
    assert not await store[value].put_if_absent(Session("ann"), id=f"{key}-2")
    for number in range(3):
        assert 0 < await _left(store, value, f"{key}-{number}") <= SHORT
    assert await store[flag].set_if_absent(id=key, lifetime=brief)
    assert 0 < await _left(store, flag, key) <= SHORT
