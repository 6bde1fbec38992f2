"""Publishing and handling events: types, concurrency, acknowledgement, trimming, and stopping."""

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
from ephemera.patterns.events import Delivery, DeliveryPolicy, Events, IdleTime
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
    """A store for events, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE, LATER) as opened:
        yield opened


async def test_events_of_several_types_are_delivered(store: Store, key: str) -> None:
    """A published event is delivered once, with its type and its id, and acknowledged."""
    seen = Seen()
    async with store[ACCOUNTS].consume("mailer", seen, name=key) as consumer:
        first = await store[ACCOUNTS].publish(Registered("1", "ann@example.org"), name=key)
        second = await store[ACCOUNTS].publish(Removed("1"), name=key)
        await settled(store, ACCOUNTS, name=key)
    assert seen.events == [Registered("1", "ann@example.org"), Removed("1")]
    stream = ACCOUNTS.keyspace.key(name=key)
    assert seen.deliveries == [Delivery(each, 1, stream, "mailer", origin=each) for each in (first, second)]
    assert (consumer.counts.handled, consumer.counts.acked, consumer.counts.failed) == (2, 2, 0)


async def test_a_stream_of_another_type_ends_no_consumer(store: Store, key: str) -> None:
    """A consumer starts although its key holds another type, and works once that is removed."""
    stream, seen = ACCOUNTS.keyspace.key(name=key), Seen()
    await store.call("SET", stream, "of another program")
    async with store[ACCOUNTS].consume("mailer", seen, name=key):
        await store.call("UNLINK", stream)
        await store[ACCOUNTS].publish(Removed("1"), name=key)
        await settled(store, ACCOUNTS, name=key)
    assert seen.events == [Removed("1")]


async def test_a_batch_is_published_in_order(store: Store, key: str) -> None:
    """A batch of any size keeps its order, and each of its events has its own id."""
    ids = await store[ACCOUNTS].publish_many(users(1201), name=key)
    assert len(set(ids)) == 1201
    assert await store[ACCOUNTS].publish_many([], name=key) == []
    seen = Seen()
    async with store[ACCOUNTS].consume("g", seen, concurrency=1, name=key):
        await settled(store, ACCOUNTS, name=key)
    assert seen.users == [str(number) for number in range(1201)]
    assert [delivery.id for delivery in seen.deliveries] == ids


async def test_every_group_gets_every_event_and_its_consumers_share_them(store: Store, key: str) -> None:
    """Two consumers of a group share its events; another group gets all of them, even earlier ones."""
    await store[ACCOUNTS].publish_many(users(100), name=key)
    one, two, other = Seen(), Seen(), Seen()
    bound = store[ACCOUNTS]
    async with (
        bound.consume("shared", one, name=key),
        bound.consume("shared", two, name=key),
        bound.consume("other", other, name=key),
    ):
        await bound.publish_many(users(100), name=key)
        await settled(store, ACCOUNTS, name=key)
    assert sorted(one.users + two.users) == sorted(other.users)
    assert len(other.users) == 200


async def test_handlers_run_concurrently_within_the_limit(store: Store, key: str) -> None:
    """At most `concurrency` handlers run at a time, ten by default."""
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


async def test_events_handled_by_every_group_are_trimmed(store: Store, key: str) -> None:
    """Only the last of the events that every group has handled stays; pending and unread events are kept."""
    await store[ACCOUNTS].publish_many(users(50), name=key)
    async with store[ACCOUNTS].consume("g", Seen(), name=key):
        await settled(store, ACCOUNTS, name=key)
    assert (await store[ACCOUNTS].info(name=key)).length == 1


async def test_a_stream_without_groups_is_not_trimmed(store: Store, key: str) -> None:
    """A group that is created later may need its events."""
    await store[ACCOUNTS].publish_many(users(5), name=key)
    assert await store[ACCOUNTS].trim(name=key) == 0
    assert await store[ACCOUNTS].trim(name=f"{key}-none") == 0
    assert (await store[ACCOUNTS].info(name=key)).length == 5


async def test_stopping_finishes_acknowledges_and_leaves(store: Store, key: str) -> None:
    """Running handlers finish, other events are returned uncounted, and the consumer is removed."""
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


async def test_a_handler_that_exceeds_the_grace_is_cancelled_and_its_event_is_claimed(
    store: Store, key: str
) -> None:
    """A handler that exceeds the grace is cancelled, and another consumer gets its event at once."""
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


async def test_a_consumer_with_pending_events_is_not_removed(store: Store, key: str) -> None:
    """A consumer that stops while an event waits for its retry is kept, and the event stays pending."""

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
    retry_in = IdleTime.decode(idle).retry_in
    assert retry_in is not None
    assert 0 <= retry_in <= 30


async def test_info_has_length_lag_pending_and_dead_letters(store: Store, key: str) -> None:
    """An empty stream has no groups and zero counts; later each group has its lag."""
    reading = await store[ACCOUNTS].info(name=key)
    assert (reading.length, reading.dead, reading.groups) == (0, 0, ())
    async with store[ACCOUNTS].consume("g", Seen(), name=key):
        pass
    await store[ACCOUNTS].publish_many(users(7), name=key)
    reading = await store[ACCOUNTS].info(name=key)
    assert reading.length == 7
    assert [(group.name, group.lag, group.pending) for group in reading.groups] == [("g", 7, 0)]


async def test_a_stream_without_fields(store: Store) -> None:
    """A pattern without fields is one stream, and its dead letters share its slot."""
    await store.client("queue").call("UNLINK", ALONE.keys({})[0])
    seen = Seen()
    async with store[ALONE].consume("g", seen):
        await store[ALONE].publish(Removed("9"))
        await settled(store, ALONE)
    assert seen.events == [Removed("9")]
    assert len({key_slot(name) for name in ALONE.keys({})}) == 1
    assert all(CATALOGUE.classify(name.encode()) for name in ALONE.keys({}))


async def test_an_event_of_another_type_is_refused(store: Store, key: str) -> None:
    """An event of another type, or one that could not be decoded again, is not published."""
    accounts: Any = store[ACCOUNTS]
    nameless: Any = None
    with pytest.raises(InvalidValue, match=r"Registered \| .*Removed"):
        await accounts.publish("text", name=key)
    with pytest.raises(InvalidValue, match="user_id"):
        await accounts.publish(Removed(nameless), name=key)
    with pytest.raises(InvalidValue):
        await accounts.publish_many([Removed("1"), 7], name=key)
    assert (await store[ACCOUNTS].info(name=key)).length == 0


async def test_wrong_declarations_of_events_are_refused(server: Valkey) -> None:
    """Ambiguous types, impossible times and unknown options are refused."""

    class Untagged(msgspec.Struct):
        name: str

    catalogue = Catalogue("refused")
    declare: Any = Events
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
        declare(catalogue, "y:z", Removed, purpose="Unknown", retries=3)
    async with connect(server.url, catalogue) as store:
        with pytest.raises(UndeclaredKeyspace):
            store[ACCOUNTS]
    async with connect(server.url, CATALOGUE) as store:
        with pytest.raises(InvalidValue, match="at least 1"):
            store[ALONE].consume("g", Seen(), concurrency=0)
