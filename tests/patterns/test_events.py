"""Publishing events and handling them: typed, concurrent, acknowledged, trimmed, and left in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ephemera import Catalogue, Store, connect, keyspace
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, InvalidValue, UndeclaredKeyspace
from ephemera.patterns.events import Delivery, DeliveryPolicy, Events
from ephemera.wire import key_slot
from tests.patterns.delayed_events import CATALOGUE as LATER
from tests.patterns.delayed_events import WAITING
from tests.patterns.event_fixtures import (
    ACCOUNTS,
    ALONE,
    BRIEF,
    CATALOGUE,
    Registered,
    Removed,
    Seen,
    pending_of,
    settled,
    until,
    users,
)
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for events, on Valkey, on Redis 7 and then on a cluster."""
    async with keyspace.connect(url, CATALOGUE, LATER) as opened:
        yield opened


async def test_events_of_several_types_reach_their_handler(store: Store, key: str) -> None:
    """What is published arrives as it was, in its own type, once, with its id, and is acknowledged."""
    seen = Seen()
    async with store[ACCOUNTS].consume("mailer", seen, name=key) as consumer:
        first = await store[ACCOUNTS].publish(Registered("1", "ann@example.org"), name=key)
        second = await store[ACCOUNTS].publish(Removed("1"), name=key)
        await settled(store, ACCOUNTS, name=key)
    assert seen.events == [Registered("1", "ann@example.org"), Removed("1")]
    stream = ACCOUNTS.keyspace.key(name=key)
    assert seen.deliveries == [Delivery(each, 1, stream, "mailer", origin=each) for each in (first, second)]
    assert (consumer.counts.handled, consumer.counts.acked, consumer.counts.failed) == (2, 2, 0)


async def test_many_are_published_in_order(store: Store, key: str) -> None:
    """A batch of any size keeps its order, and each of its events has an id of its own."""
    ids = await store[ACCOUNTS].publish_many(users(1201), name=key)
    assert len(set(ids)) == 1201
    assert await store[ACCOUNTS].publish_many([], name=key) == []
    seen = Seen()
    async with store[ACCOUNTS].consume("g", seen, concurrency=1, name=key):
        await settled(store, ACCOUNTS, name=key)
    assert seen.users == [str(number) for number in range(1201)]
    assert [delivery.id for delivery in seen.deliveries] == ids


async def test_every_group_gets_every_event_and_members_share_them(store: Store, key: str) -> None:
    """Two consumers of a group divide its events; another group has all of them, also the earlier ones."""
    await store[ACCOUNTS].publish_many(users(100), name=key)
    one, two, other = Seen(), Seen(), Seen()
    live = store[ACCOUNTS]
    async with (
        live.consume("shared", one, name=key),
        live.consume("shared", two, name=key),
        live.consume("other", other, name=key),
    ):
        await live.publish_many(users(100), name=key)
        await settled(store, ACCOUNTS, name=key)
    assert sorted(one.users + two.users) == sorted(other.users)
    assert len(other.users) == 200


async def test_handlers_run_side_by_side_within_the_bound(store: Store, key: str) -> None:
    """As many handlers run at a time as were asked for, ten unless said, and never more."""
    running = most = 0
    release = asyncio.Event()

    async def slow(_event: Any, _delivery: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1

    async def busy() -> bool:
        return running == 10

    await store[ACCOUNTS].publish_many(users(35), name=key)
    async with store[ACCOUNTS].consume("g", slow, name=key) as consumer:
        await until(busy)
        assert consumer.pending == 10
        assert (await store[ACCOUNTS].info(name=key)).groups[0].pending == 10
        release.set()
        await settled(store, ACCOUNTS, name=key)
    assert most == 10


async def test_what_was_handled_by_all_is_trimmed(store: Store, key: str) -> None:
    """Of what every group has handled only the last event stays; nothing that is pending or unread goes."""
    await store[ACCOUNTS].publish_many(users(50), name=key)
    async with store[ACCOUNTS].consume("g", Seen(), name=key):
        await settled(store, ACCOUNTS, name=key)
    assert (await store[ACCOUNTS].info(name=key)).length == 1


async def test_a_stream_without_groups_is_left_alone(store: Store, key: str) -> None:
    """What nobody has read may still be wanted by a group to come."""
    await store[ACCOUNTS].publish_many(users(5), name=key)
    assert await store[ACCOUNTS].trim(name=key) == 0
    assert await store[ACCOUNTS].trim(name=f"{key}-none") == 0
    assert (await store[ACCOUNTS].info(name=key)).length == 5


async def test_stopping_finishes_acknowledges_and_leaves(store: Store, key: str) -> None:
    """What has begun is finished, what has not is given back at once and uncounted, and the name is gone."""
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(_event: Any, _delivery: Delivery) -> None:
        begun.set()
        await release.wait()

    await store[BRIEF].publish_many(users(5), name=key)
    async with store[BRIEF].consume("g", slow, concurrency=1, name=key) as consumer:
        await begun.wait()
        release.set()
    assert consumer.counts.handled == consumer.counts.acked >= 1
    seen = Seen()
    async with store[BRIEF].consume("g", seen, name=key):
        await settled(store, BRIEF, name=key)
    assert len(seen.users) + consumer.counts.handled == 5
    assert all(delivery.attempt == 1 for delivery in seen.deliveries)
    assert (await store[BRIEF].info(name=key)).groups[0].consumers == 0


async def test_a_handler_that_outlasts_the_grace_is_cancelled_and_its_event_goes_on(
    store: Store, key: str
) -> None:
    """A handler that does not end is cancelled, and another consumer gets its event at once."""
    cancelled = asyncio.Event()
    begun = asyncio.Event()

    async def endless(_event: Any, _delivery: Delivery) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await store[ACCOUNTS].publish(Removed("7"), name=key)
    async with store[ACCOUNTS].consume("g", endless, grace=timedelta(milliseconds=50), name=key):
        await begun.wait()
    assert cancelled.is_set()
    seen = Seen()
    async with store[ACCOUNTS].consume("g", seen, name=key):
        await settled(store, ACCOUNTS, name=key)
    assert [delivery.attempt for delivery in seen.deliveries] == [2]


async def test_a_name_with_pending_events_is_not_removed(store: Store, key: str) -> None:
    """A consumer that stops while an event waits for its retry keeps its name, and the event its place."""

    async def failed() -> bool:
        return len(seen.events) == 1

    seen = Seen(lambda *_: ValueError("not today"))
    await store[WAITING].publish(Removed("7"), name=key)
    async with store[WAITING].consume("g", seen, name=key):
        await until(failed)
    (group,) = (await store[WAITING].info(name=key)).groups
    assert (group.consumers, group.pending) == (1, 1)
    ((_, _, idle, deliveries),) = await pending_of(store, WAITING, "g", name=key)
    assert deliveries == 1
    assert 30_000 <= idle < 60_000  # due 30 s after the failure, when it is a lease of 60 s old


async def test_the_reading_tells_length_lag_pending_and_dead(store: Store, key: str) -> None:
    """Before anything is published all is 0, without a group; later each group has its lag."""
    reading = await store[ACCOUNTS].info(name=key)
    assert (reading.length, reading.dead, reading.groups) == (0, 0, ())
    async with store[ACCOUNTS].consume("g", Seen(), name=key):
        pass
    await store[ACCOUNTS].publish_many(users(7), name=key)
    reading = await store[ACCOUNTS].info(name=key)
    assert reading.length == 7
    assert [(group.name, group.lag, group.pending) for group in reading.groups] == [("g", 7, 0)]


async def test_a_stream_without_fields(store: Store) -> None:
    """A pattern without fields is one stream, whose dead letters share its slot."""
    await store.client("queue").call("UNLINK", ALONE.keys({})[0])
    seen = Seen()
    async with store[ALONE].consume("g", seen):
        await store[ALONE].publish(Removed("9"))
        await settled(store, ALONE)
    assert seen.events == [Removed("9")]
    assert len({key_slot(name) for name in ALONE.keys({})}) == 1
    assert all(CATALOGUE.classify(name.encode()) for name in ALONE.keys({}))


async def test_what_is_no_event_of_the_stream_is_refused(store: Store, key: str) -> None:
    """Another type, or an event that could not be read again, never reaches the stream."""
    with pytest.raises(InvalidValue, match=r"Registered \| .*Removed"):
        await store[ACCOUNTS].publish("text", name=key)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="user_id"):
        await store[ACCOUNTS].publish(Removed(None), name=key)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        await store[ACCOUNTS].publish_many([Removed("1"), 7], name=key)  # type: ignore[list-item]
    assert (await store[ACCOUNTS].info(name=key)).length == 0


async def test_what_cannot_be_declared_is_refused(server: Valkey) -> None:
    """Types that cannot be distinguished, times that cannot work and hidden options fail when declared."""

    class Untagged(msgspec.Struct):
        name: str

    catalogue = Catalogue("refused")
    with pytest.raises(InvalidDeclaration, match="tag=True"):
        Events(catalogue, "a:b", Untagged | Removed, purpose="Cannot be distinguished")
    with pytest.raises(InvalidDeclaration, match="is not an event type"):
        Events(catalogue, "a:b", str, purpose="Not a Struct")
    with pytest.raises(InvalidDeclaration, match="a first retry"):
        Events(
            catalogue, "a:b", Removed, purpose="Late", delivery=DeliveryPolicy(first_retry=timedelta(hours=1))
        )
    with pytest.raises(InvalidDeclaration, match="deliveries"):
        Events(catalogue, "a:b", Removed, purpose="Never", delivery=DeliveryPolicy(max_deliveries=0))
    with pytest.raises(InvalidDeclaration, match="'grace' cannot name"):
        Events(catalogue, "x:{grace}", Removed, purpose="Hides an option")
    with pytest.raises(TypeError, match="retries"):
        Events(catalogue, "y:z", Removed, purpose="Unknown", retries=3)  # type: ignore[call-overload]
    async with connect(server.url, catalogue) as store:
        with pytest.raises(UndeclaredKeyspace):
            store[ACCOUNTS]
    async with connect(server.url, CATALOGUE) as store:
        with pytest.raises(InvalidValue, match="at least 1"):
            store[ALONE].consume("g", Seen(), concurrency=0)
