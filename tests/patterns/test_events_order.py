"""Streams ordered by a field: events of one key one after another, different keys concurrently."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ephemera import Catalogue, Store, keyspace
from ephemera.errors import InvalidDeclaration
from ephemera.patterns.events import Delivery, DeliveryPolicy, Events, _group_member
from tests.patterns.event_fixtures import Removed, pending_of, settled, until
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


class Moved(msgspec.Struct, frozen=True):
    """A user is at a place."""

    user_id: int
    place: int


CATALOGUE = Catalogue("test-ordered-events")
MOVES = Events(
    CATALOGUE,
    "moves:{name}",
    Moved,
    purpose="Moves, in order for each user",
    order_by="user_id",
    delivery=DeliveryPolicy(
        max_deliveries=3, first_retry=timedelta(milliseconds=20), lease=timedelta(milliseconds=800)
    ),
)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for events, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        yield opened


class Places:
    """A handler that remembers the places of each user, and how many handlers ran at once."""

    def __init__(self) -> None:
        self.places: dict[int, list[int]] = defaultdict(list)
        self.running: set[int] = set()
        self.most = 0
        self.overlaps = 0
        self.fails: set[tuple[int, int]] = set()

    async def __call__(self, event: Moved, delivery: Delivery) -> None:
        """Handle a move."""
        self.overlaps += event.user_id in self.running
        self.running.add(event.user_id)
        self.most = max(self.most, len(self.running))
        try:
            await asyncio.sleep(0.001)
            if (event.user_id, event.place) in self.fails and delivery.attempt == 1:
                raise ValueError("once")
        finally:
            self.running.discard(event.user_id)
        self.places[event.user_id].append(event.place)


async def _lanes(store: Store, key: str) -> int:
    return int(await store.client("queue").call("ZCARD", MOVES.lanes_key({"name": key}) or ""))


async def test_events_of_a_key_are_in_order_across_consumers(store: Store, key: str) -> None:
    """Two consumers of a group handle ten keys concurrently and each key in order, even after failures."""
    seen = Places()
    seen.fails = {(3, 0), (3, 7), (5, 19)}
    bound = store[MOVES]
    async with (
        bound.consume("g", seen, concurrency=5, name=key) as one,
        bound.consume("g", seen, concurrency=5, name=key) as two,
    ):
        moves = [Moved(user, place) for place in range(10) for user in range(10)]
        await bound.publish_many(moves, name=key)
        for place in range(10, 20):
            await asyncio.gather(*(bound.publish(Moved(user, place), name=key) for user in range(10)))
        await settled(store, MOVES, name=key)
        assert await _lanes(store, key) == 0
    assert {user: places == list(range(20)) for user, places in seen.places.items()} == dict.fromkeys(
        range(10), True
    )
    assert seen.overlaps == 0
    assert seen.most > 1
    assert one.counts.handled + two.counts.handled == 200


async def test_groups_are_ordered_independently(store: Store, key: str) -> None:
    """A group in which an event of a key is stuck does not delay another group."""
    stuck, release, seen = asyncio.Event(), asyncio.Event(), Places()

    async def wait(_event: Any, _delivery: Delivery) -> None:
        stuck.set()
        await release.wait()

    async def handled() -> bool:
        return seen.places[1] == [0, 1, 2]

    bound = store[MOVES]
    async with bound.consume("slow", wait, name=key) as slow, bound.consume("quick", seen, name=key):
        await bound.publish_many([Moved(1, place) for place in range(3)], name=key)
        await stuck.wait()
        await until(handled)
        assert slow.pending == 1
        release.set()
        await settled(store, MOVES, name=key)


async def test_a_takeover_keeps_the_order(store: Store, key: str) -> None:
    """What a dead consumer had comes first; later events of its key wait for the end of its lease."""
    stream = MOVES.keys({"name": key}).stream
    call = store.client("queue").call
    await store[MOVES].publish_many([Moved(1, 0), Moved(1, 1), Moved(2, 0)], name=key)
    begun = asyncio.Event()

    async def hang(_event: Any, _delivery: Delivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    dead = await store[MOVES].consume("g", hang, name=key).__aenter__()
    await begun.wait()
    tasks = [*dead._tasks, *dead._handlers._tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    seen = Places()
    async with store[MOVES].consume("g", seen, name=key):
        await store[MOVES].publish_many([Moved(1, 2), Moved(3, 0)], name=key)
        await settled(store, MOVES, name=key)
    assert seen.places == {1: [0, 1, 2], 2: [0], 3: [0]}
    assert await _lanes(store, key) == 0
    assert await call("XLEN", stream) == 1


async def test_a_late_acknowledgement_releases_nothing(store: Store, key: str) -> None:
    """A consumer that lost an event to another one cannot acknowledge it, nor start the next of its key."""
    stream, call = MOVES.keys({"name": key}).stream, store.client("queue").call
    await store[MOVES].publish_many([Moved(1, 0), Moved(1, 1)], name=key)
    release, seen = asyncio.Event(), Places()

    async def slow(event: Any, delivery: Delivery) -> None:
        await release.wait()
        await seen(event, delivery)

    async with store[MOVES].consume("g", slow, name=key) as consumer:

        async def started() -> bool:
            return consumer.pending == 1

        await until(started)
        (first, *_), _ = await pending_of(store, MOVES, "g", name=key)
        await call("XCLAIM", stream, "g", "prompt", 0, first, "JUSTID")
        release.set()

        async def handled() -> bool:
            return seen.places[1] == [0]

        await until(handled)
    assert seen.places[1] == [0]
    owners = [owner for _, owner, _, _ in await pending_of(store, MOVES, "g", name=key)]
    assert owners[0] == b"prompt"


async def test_a_dead_letter_releases_the_next_of_its_key(store: Store, key: str) -> None:
    """When an event becomes a dead letter, the next of its key is handled; so is its replay."""
    seen = Places()
    broken = True

    async def handle(event: Moved, delivery: Delivery) -> None:
        if event.place == 0 and broken:
            raise ValueError("always")
        await seen(event, delivery)

    async with store[MOVES].consume("g", handle, name=key):
        await store[MOVES].publish_many([Moved(1, 0), Moved(1, 1), Moved(1, 2)], name=key)
        await store.client("queue").call("XADD", MOVES.keys({"name": key}).stream, "*", "event", "junk")
        await settled(store, MOVES, name=key)
        assert seen.places[1] == [1, 2]
        broken = False
        assert await store[MOVES].replay(name=key) == 2
        await settled(store, MOVES, name=key)
    assert seen.places[1] == [1, 2, 0]
    assert (await store[MOVES].info(name=key)).dead == 1


async def test_stopping_releases_the_keys(store: Store, key: str) -> None:
    """A consumer that stops takes no next events, and another one handles them in order at once."""
    begun, release, seen = asyncio.Event(), asyncio.Event(), Places()

    async def slow(event: Any, delivery: Delivery) -> None:
        begun.set()
        await release.wait()
        await seen(event, delivery)

    await store[MOVES].publish_many([Moved(1, place) for place in range(5)], name=key)
    async with store[MOVES].consume("g", slow, name=key):
        await begun.wait()
        asyncio.get_running_loop().call_later(0.02, release.set)
    async with store[MOVES].consume("g", seen, name=key):
        await settled(store, MOVES, name=key)
    assert seen.places[1] == list(range(5))


@pytest.mark.parametrize("how", ["the group", "the stream", "the lanes"])
async def test_what_was_lost_is_created_again(store: Store, key: str, how: str) -> None:
    """When the group, the stream or the lanes are deleted, later events are handled, in order."""
    stream, call, seen = MOVES.keys({"name": key}).stream, store.client("queue").call, Places()
    async with store[MOVES].consume("g", seen, name=key):
        await store[MOVES].publish_many([Moved(1, 0), Moved(1, 1)], name=key)
        await settled(store, MOVES, name=key)
        if how == "the group":
            await call("XGROUP", "DESTROY", stream, "g")
        else:
            await call("DEL", stream if how == "the stream" else MOVES.lanes_key({"name": key}) or "")
        await store[MOVES].publish_many([Moved(1, 2), Moved(1, 3)], name=key)

        async def handled() -> bool:
            return seen.places[1][-2:] == [2, 3]

        await until(handled)
        await settled(store, MOVES, name=key)


async def test_a_busy_key_is_not_read_without_bound(
    store: Store, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When too many events wait for one of their key, no more are read until it is done, and then all are."""
    monkeypatch.setattr(_group_member, "_MAX_UNFINISHED", 20)
    release, seen = asyncio.Event(), Places()

    async def slow(event: Moved, delivery: Delivery) -> None:
        await release.wait()
        await seen(event, delivery)

    async def full() -> bool:
        return await _lanes(store, key) >= 20

    await store[MOVES].publish_many([Moved(1, place) for place in range(200)], name=key)
    async with store[MOVES].consume("g", slow, name=key) as consumer:
        await until(full)
        await asyncio.sleep(0.1)
        assert await _lanes(store, key) < 40
        assert consumer.pending == 1
        release.set()
        await settled(store, MOVES, name=key)
    assert seen.places[1] == list(range(200))


def test_an_order_by_an_unknown_field_is_refused() -> None:
    """Every type of the stream's events must have the field."""
    with pytest.raises(InvalidDeclaration, match="'place' to order by"):
        Events(Catalogue("refused-order"), "a:b", Removed, purpose="No place", order_by="place")
