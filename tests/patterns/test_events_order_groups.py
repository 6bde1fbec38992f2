"""Groups of an ordered stream: one that is stuck, or was deleted, holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ephemera import Catalogue, Store, keyspace
from ephemera.patterns.events import Delivery, DeliveryPolicy, Events
from tests.patterns.event_fixtures import until
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]

_LIMIT = 10_000  # events of a group that may wait in its lanes
_SOME = 200  # events of the hot key that show that a group goes on; all would be 10,000 round trips


class Moved(msgspec.Struct, frozen=True):
    """A user is at a place."""

    user_id: int
    place: int


CATALOGUE = Catalogue("test-ordered-groups")
MOVES = Events(
    CATALOGUE,
    "moves-of-groups:{name}",
    Moved,
    purpose="Moves, in order for each user",
    order_by="user_id",
    delivery=DeliveryPolicy(lease=timedelta(seconds=4)),
)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for events, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        yield opened


class Handled:
    """A handler that remembers its events in order; it waits while it is stuck."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.events: list[Moved] = []
        self.go = asyncio.Event()
        if not stuck:
            self.go.set()

    async def __call__(self, event: Moved, _delivery: Delivery) -> None:
        """Handle a move."""
        await self.go.wait()
        self.events.append(event)

    @property
    def goes_on(self) -> bool:
        """Whether it has handled some events of the hot key, in order."""
        places = [each.place for each in self.events if each.user_id == 1]
        return len(places) >= _SOME and places == list(range(len(places)))


async def _lanes(store: Store, key: str) -> int:
    return int(await store.client("queue").call("ZCARD", MOVES.lanes_key({"name": key}) or ""))


async def _pending(store: Store, key: str, group: str) -> int:
    (found,) = (each for each in (await store[MOVES].info(name=key)).groups if each.name == group)
    return found.pending


def _one_hot_key() -> list[Moved]:
    return [Moved(1, place) for place in range(_LIMIT + 1)]


async def _fill(store: Store, key: str) -> None:
    """Have the group `stuck` reach the limit with events of one key, and its consumer stop."""
    await store[MOVES].publish_many(_one_hot_key(), name=key)

    async def full() -> bool:
        return await _pending(store, key, "stuck") >= _LIMIT

    consumer = store[MOVES].consume("stuck", Handled(stuck=True), grace=timedelta(milliseconds=1), name=key)
    async with consumer:
        await until(full)


async def test_a_stuck_group_does_not_hold_up_another(store: Store, key: str) -> None:
    """A group with 10,000 events behind a stuck one reads no more; another one handles them, in order."""
    stuck, seen = Handled(stuck=True), Handled()

    async def full() -> bool:
        return await _pending(store, key, "stuck") >= _LIMIT

    async def handled() -> bool:
        return seen.goes_on and Moved(2, 0) in seen.events

    await store[MOVES].publish_many(_one_hot_key(), name=key)
    bound = store[MOVES]
    async with bound.consume("stuck", stuck, grace=timedelta(milliseconds=1), name=key):
        await until(full)
        await bound.publish(Moved(2, 0), name=key)
        async with bound.consume("other", seen, name=key):
            await until(handled)
        assert await _pending(store, key, "stuck") < _LIMIT + 10
    assert stuck.events == []


async def test_the_lanes_of_a_deleted_group_are_dropped(store: Store, key: str) -> None:
    """When a group is deleted, the maintenance of another one removes its events from the lanes."""
    await _fill(store, key)
    assert await _lanes(store, key) >= _LIMIT
    await store.client("queue").call("XGROUP", "DESTROY", MOVES.keys({"name": key}).stream, "stuck")
    seen = Handled()

    async def dropped() -> bool:
        left = await _lanes(store, key) - await _pending(store, key, "other")
        return seen.goes_on and left < _LIMIT / 2

    async with store[MOVES].consume("other", seen, name=key):
        await until(dropped)


async def test_a_deleted_group_starts_again(store: Store, key: str) -> None:
    """A group that was deleted with its lanes full goes on with empty ones when it is created again."""
    await _fill(store, key)
    await store.client("queue").call("XGROUP", "DESTROY", MOVES.keys({"name": key}).stream, "stuck")
    await store[MOVES].publish(Moved(2, 0), name=key)
    seen = Handled()

    async def handled() -> bool:
        return seen.goes_on and Moved(2, 0) in seen.events

    async with store[MOVES].consume("stuck", seen, name=key):
        await until(handled)
        assert await _lanes(store, key) - await _pending(store, key, "stuck") < _LIMIT / 2


async def test_members_of_others_in_the_lanes_are_dropped(store: Store, key: str) -> None:
    """What another program wrote into the lanes is removed, and ends no script."""
    lanes: Any = MOVES.lanes_key({"name": key})
    members = [b"", b"x", b"\xff\xff", b"abc:\xff", b"~:~", b"0" * 40 + b":", b":"]
    await store.client("queue").call("ZADD", lanes, *(part for each in members for part in (0, each)))
    seen = Handled()

    async def handled() -> bool:
        return len(seen.events) == 1 and await _lanes(store, key) == 0

    async with store[MOVES].consume("g", seen, name=key):
        await store[MOVES].publish(Moved(1, 0), name=key)
        await until(handled)
