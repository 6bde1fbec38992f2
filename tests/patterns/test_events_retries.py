"""Failing events: retries with backoff, claims from dead consumers, dead letters, and replays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from ephemera import Catalogue, Store, keyspace
from ephemera.embedded import Valkey, valkey
from ephemera.patterns.events import Delivery, DeliveryPolicy, Events
from tests.patterns.delayed_events import CATALOGUE as LATER
from tests.patterns.delayed_events import WAITING
from tests.patterns.event_fixtures import (
    ACCOUNTS,
    BRIEF,
    CATALOGUE,
    KEPT,
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


def _now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_failed_event_is_retried_with_increasing_delays(store: Store, key: str) -> None:
    """The second attempt comes after `first_retry`, the third after twice that."""
    times: list[float] = []

    def fails(_event: Any, delivery: Delivery) -> Exception | None:
        times.append(_now())
        return ValueError("not yet") if delivery.attempt < 3 else None

    seen = Seen(fails)
    async with store[BRIEF].consume("g", seen, name=key) as consumer:
        await store[BRIEF].publish(Removed("7"), name=key)
        await settled(store, BRIEF, name=key)
    assert [delivery.attempt for delivery in seen.deliveries] == [1, 2, 3]
    assert len({delivery.id for delivery in seen.deliveries}) == 1
    assert times[1] - times[0] >= 0.05
    assert times[2] - times[1] >= 0.1
    assert (consumer.counts.failed, consumer.counts.handled, consumer.counts.dead) == (2, 1, 0)


async def test_a_retry_happens_when_it_is_due(server: Valkey, key: str) -> None:
    """An idle consumer retries an event within ten milliseconds of its due time."""
    catalogue = Catalogue("test-events-due")
    soon = Events(
        catalogue,
        "soon:{name}",
        Removed,
        purpose="Retried soon",
        delivery=DeliveryPolicy(max_deliveries=20, first_retry=timedelta(milliseconds=10)),
    )
    times: list[float] = []

    def fails(_event: Any, delivery: Delivery) -> Exception | None:
        times.append(_now())
        return ValueError("not yet") if delivery.attempt < 6 else None

    seen = Seen(fails)
    async with keyspace.connect(server.url, catalogue) as store:
        async with store[soon].consume("g", seen, name=key):
            await store[soon].publish(Removed("7"), name=key)
            await settled(store, soon, name=key)
    pauses = sorted(later - earlier for earlier, later in pairwise(times))
    assert pauses[2] < 0.5  # most of the five; all but the first would be a second if it slept
    assert [delivery.attempt for delivery in seen.deliveries] == [1, 2, 3, 4, 5, 6]


async def test_others_are_handled_while_one_waits_for_its_retry(store: Store, key: str) -> None:
    """A failing event delays neither later events nor occupies a handler."""
    seen = Seen(lambda event, _: ValueError("bad") if event.user_id == "0" else None)
    async with store[WAITING].consume("g", seen, concurrency=1, name=key) as consumer:
        await store[WAITING].publish_many(users(20), name=key)

        async def rest_done() -> bool:
            return consumer.counts.handled == 19

        await until(rest_done)
    assert seen.users.count("0") == 1
    assert [entry[3] for entry in await pending_of(store, WAITING, "g", name=key)] == [1]


async def test_the_last_failed_delivery_makes_a_dead_letter(store: Store, key: str) -> None:
    """A dead letter has the event, the last error, the number of deliveries and its origin."""
    seen = Seen(lambda event, _: KeyError("no such user") if event.user_id == "bad" else None)
    async with store[BRIEF].consume("g", seen, name=key) as consumer:
        origin = await store[BRIEF].publish(Registered("bad", "b@example.org"), name=key)
        await store[BRIEF].publish(Removed("good"), name=key)
        await settled(store, BRIEF, name=key)
        assert consumer.counts.dead == 1
    (letter,) = await store[BRIEF].dead_letters(name=key)
    assert letter.event == {"type": "Registered", "user_id": "bad", "email": "b@example.org"}
    assert letter.error == "KeyError: 'no such user'"
    assert (letter.deliveries, letter.origin, letter.group) == (3, origin, "g")
    assert letter.stream == BRIEF.keyspace.key(name=key)
    assert (await store[BRIEF].info(name=key)).dead == 1


async def test_an_undecodable_event_is_a_dead_letter_at_once(store: Store, key: str) -> None:
    """Undecodable events become dead letters with the reason; the events around them are handled."""
    stream, call = BRIEF.keyspace.key(name=key), store.client("queue").call
    await store[BRIEF].publish(Removed("before"), name=key)
    await call("XADD", stream, "*", "event", '{"type":"Removed","user_id":7}')
    await call("XADD", stream, "*", "event", '{"type":"Renamed","user_id":"7"}')
    await call("XADD", stream, "*", "event", b"\xff\xfe")
    await call("XADD", stream, "*", "temperature", "21")
    await call("XADD", stream, "*", "event", '{"type":"Removed","user_id":"after","later":true}')
    seen = Seen()
    async with store[BRIEF].consume("g", seen, name=key):
        await settled(store, BRIEF, name=key)
        letters = await store[BRIEF].dead_letters(name=key)
    assert sorted(seen.users) == ["after", "before"]
    errors = sorted(letter.error for letter in letters)
    assert len(errors) == 4
    assert sum("it cannot be decoded" in error for error in errors) == 3
    assert any("$.user_id" in error for error in errors)
    assert any("Renamed" in error for error in errors)
    assert any("no field 'event'" in error for error in errors)
    assert {"temperature": "21"} in [letter.event for letter in letters]


async def test_a_replayed_event_is_for_its_group_only(store: Store, key: str) -> None:
    """A replayed event is delivered to the group that failed, with its origin, and to no other group."""
    broken = True
    failing = Seen(lambda *_: ValueError("broken") if broken else None)
    other = Seen()
    bound = store[BRIEF]
    async with bound.consume("fragile", failing, name=key), bound.consume("sound", other, name=key):
        origin = await bound.publish(Removed("7"), name=key)
        await settled(store, BRIEF, name=key)
        (letter,) = await bound.dead_letters(name=key)
        broken = False
        assert await bound.replay([letter.id], name=key) == 1
        assert await bound.replay([letter.id], name=key) == 0
        await settled(store, BRIEF, name=key)
    assert [delivery.attempt for delivery in failing.deliveries] == [1, 2, 3, 1]
    assert {delivery.origin for delivery in failing.deliveries} == {origin}
    assert failing.deliveries[-1].id != origin
    assert other.users == ["7"]
    assert await bound.dead_letters(name=key) == []


async def test_all_dead_letters_are_replayed_once(store: Store, key: str) -> None:
    """Replaying all dead letters replays each once, even while some of them fail again."""
    failing = Seen(lambda event, _: ValueError("broken") if event.user_id != "1" or not fixed_now else None)
    fixed_now = False
    bound = store[BRIEF]
    async with bound.consume("g", failing, name=key):
        await bound.publish_many(users(5), name=key)
        await settled(store, BRIEF, name=key)
        fixed_now = True
        assert await bound.replay(name=key) == 5
        await settled(store, BRIEF, name=key)
    letters = await bound.dead_letters(name=key)
    assert sorted(letter.event["user_id"] for letter in letters) == ["0", "2", "3", "4"]
    assert [
        letter.id for letter in await bound.dead_letters(first=f"({letters[0].id}", count=2, name=key)
    ] == [letter.id for letter in letters[1:3]]


async def test_the_newest_dead_letters_are_kept(store: Store, key: str) -> None:
    """There are never more dead letters than declared."""
    async with store[BRIEF].consume("g", Seen(lambda *_: ValueError("bad")), name=key):
        await store[BRIEF].publish_many(users(60), name=key)
        await settled(store, BRIEF, within=30, name=key)
    assert (await store[BRIEF].info(name=key)).dead == 50


async def test_a_long_handler_keeps_its_event(store: Store, key: str) -> None:
    """A handler that takes longer than a lease keeps its event, although other consumers are idle."""
    running = most = 0

    async def slow(_event: Any, _delivery: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(3.2)
        running -= 1

    bound = store[KEPT]
    async with bound.consume("g", slow, name=key) as one, bound.consume("g", slow, name=key) as two:
        await bound.publish(Removed("7"), name=key)
        await settled(store, KEPT, name=key)
    assert most == 1
    assert one.counts.handled + two.counts.handled == 1


async def test_pending_events_of_a_silent_consumer_are_claimed(store: Store, key: str) -> None:
    """All pending entries of a consumer that is silent for a lease are claimed by another."""
    stream, call = BRIEF.keyspace.key(name=key), store.client("queue").call
    await store[BRIEF].publish_many(users(250), name=key)
    await call("XGROUP", "CREATE", stream, "g", "0")
    await call("XREADGROUP", "GROUP", "g", "dead", "COUNT", 250, "STREAMS", stream, ">")
    seen = Seen()
    began = _now()
    async with store[BRIEF].consume("g", seen, name=key):
        await settled(store, BRIEF, name=key)
    assert _now() - began < 60
    assert sorted(seen.users, key=int) == [str(number) for number in range(250)]
    assert {delivery.attempt for delivery in seen.deliveries} == {2}


async def test_an_event_that_kills_its_consumers_is_a_dead_letter(store: Store, key: str) -> None:
    """An event that was delivered too often without an outcome is not delivered again."""
    stream, call = BRIEF.keyspace.key(name=key), store.client("queue").call
    entry = await store[BRIEF].publish(Removed("deadly"), name=key)
    await call("XGROUP", "CREATE", stream, "g", "0")
    await call("XREADGROUP", "GROUP", "g", "dead", "STREAMS", stream, ">")
    await call("XCLAIM", stream, "g", "dead", 0, entry, "RETRYCOUNT", 3)
    seen = Seen()
    async with store[BRIEF].consume("g", seen, name=key):
        await settled(store, BRIEF, name=key)
    (letter,) = await store[BRIEF].dead_letters(name=key)
    assert seen.events == []
    assert letter.deliveries == 3
    assert "without an outcome" in letter.error


async def test_a_handler_that_raises_a_cancellation_has_failed(store: Store, key: str) -> None:
    """A cancellation raised by a handler is a failure like any other, and the consumer continues."""
    seen = Seen(lambda _, delivery: asyncio.CancelledError() if delivery.attempt == 1 else None)
    async with store[BRIEF].consume("g", seen, concurrency=1, name=key):
        await store[BRIEF].publish(Removed("7"), name=key)
        await settled(store, BRIEF, name=key)
    assert [delivery.attempt for delivery in seen.deliveries] == [1, 2]


@pytest.mark.parametrize("how", ["the group", "the stream"])
async def test_a_deleted_group_is_created_again(store: Store, key: str, how: str) -> None:
    """When its group or stream is deleted, a consumer creates it again and misses no later event."""
    stream, call = ACCOUNTS.keyspace.key(name=key), store.client("queue").call
    seen = Seen()
    async with store[ACCOUNTS].consume("g", seen, name=key):
        await store[ACCOUNTS].publish(Removed("before"), name=key)
        await settled(store, ACCOUNTS, name=key)
        if how == "the group":
            await call("XGROUP", "DESTROY", stream, "g")
        else:
            await call("DEL", stream)
        await store[ACCOUNTS].publish(Removed("after"), name=key)

        async def was_received() -> bool:
            return "after" in seen.users

        await until(was_received)
        await settled(store, ACCOUNTS, name=key)
    assert set(seen.users) == {"before", "after"}


async def test_a_consumer_starts_on_a_server_whose_memory_is_full() -> None:
    """It creates its group once it can, and misses no published event."""
    with valkey(config={"maxmemory-policy": "noeviction"}) as server:
        async with keyspace.connect(server.url, CATALOGUE) as store:
            seen = Seen()
            server.ask("CONFIG", "SET", "maxmemory", 1)
            async with store[BRIEF].consume("g", seen, name="full") as consumer:
                server.ask("CONFIG", "SET", "maxmemory", 0)
                await store[BRIEF].publish(Removed("7"), name="full")
                await settled(store, BRIEF, name="full")
                assert (consumer.counts.handled, seen.users) == (1, ["7"])
