"""Events that fail: tried again with backoff, taken over from who died, dead after N, and replayed."""

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
    """A store for events, on Valkey, on Redis 7 and then on a cluster."""
    async with keyspace.connect(url, CATALOGUE, LATER) as opened:
        yield opened


def _now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_failed_event_is_tried_again_after_longer_and_longer(store: Store, key: str) -> None:
    """A second attempt comes after the first retry's time, a third after twice that, and then it is done."""
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


async def test_a_retry_is_made_when_it_is_due(server: Valkey, key: str) -> None:
    """A consumer that has nothing else to do for a second is there for a retry in a hundredth of one."""
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
    """An event that fails holds up neither those after it nor its own place among the handlers."""
    seen = Seen(lambda event, _: ValueError("bad") if event.user_id == "0" else None)
    async with store[WAITING].consume("g", seen, concurrency=1, name=key) as consumer:
        await store[WAITING].publish_many(users(20), name=key)

        async def rest_done() -> bool:
            return consumer.counts.handled == 19

        await until(rest_done)
    assert seen.users.count("0") == 1
    assert [entry[3] for entry in await pending_of(store, WAITING, "g", name=key)] == [1]


async def test_after_so_many_deliveries_it_is_a_dead_letter(store: Store, key: str) -> None:
    """A dead letter has the event, the last error, the number of deliveries and where it came from."""
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


async def test_what_cannot_be_read_is_a_dead_letter_at_once(store: Store, key: str) -> None:
    """Undecodable events go with the reason, whatever they hold, and those around them are handled."""
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


async def test_a_replayed_event_is_for_its_group_alone(store: Store, key: str) -> None:
    """Put back, an event reaches the group that failed, as the same one, and no group that had it."""
    broken = True
    failing = Seen(lambda *_: ValueError("broken") if broken else None)
    other = Seen()
    live = store[BRIEF]
    async with live.consume("fragile", failing, name=key), live.consume("sound", other, name=key):
        origin = await live.publish(Removed("7"), name=key)
        await settled(store, BRIEF, name=key)
        (letter,) = await live.dead_letters(name=key)
        broken = False
        assert await live.replay([letter.id], name=key) == 1
        assert await live.replay([letter.id], name=key) == 0
        await settled(store, BRIEF, name=key)
    assert [delivery.attempt for delivery in failing.deliveries] == [1, 2, 3, 1]
    assert {delivery.origin for delivery in failing.deliveries} == {origin}
    assert failing.deliveries[-1].id != origin
    assert other.users == ["7"]
    assert await live.dead_letters(name=key) == []


async def test_all_dead_letters_are_replayed_once(store: Store, key: str) -> None:
    """A replay of all puts back those there were, also while some of them fail again."""
    failing = Seen(lambda event, _: ValueError("broken") if event.user_id != "1" or not mended else None)
    mended = False
    live = store[BRIEF]
    async with live.consume("g", failing, name=key):
        await live.publish_many(users(5), name=key)
        await settled(store, BRIEF, name=key)
        mended = True
        assert await live.replay(name=key) == 5
        await settled(store, BRIEF, name=key)
    letters = await live.dead_letters(name=key)
    assert sorted(letter.event["user_id"] for letter in letters) == ["0", "2", "3", "4"]
    assert [
        letter.id for letter in await live.dead_letters(first=f"({letters[0].id}", count=2, name=key)
    ] == [letter.id for letter in letters[1:3]]


async def test_the_newest_dead_letters_are_kept(store: Store, key: str) -> None:
    """There are never more dead letters than declared."""
    async with store[BRIEF].consume("g", Seen(lambda *_: ValueError("bad")), name=key):
        await store[BRIEF].publish_many(users(60), name=key)
        await settled(store, BRIEF, within=30, name=key)
    assert (await store[BRIEF].info(name=key)).dead == 50


async def test_a_long_handler_keeps_its_event(store: Store, key: str) -> None:
    """A handler that takes more than a lease is alone with its event, also beside idle members."""
    running = most = 0

    async def slow(_event: Any, _delivery: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(3.2)
        running -= 1

    live = store[KEPT]
    async with live.consume("g", slow, name=key) as one, live.consume("g", slow, name=key) as two:
        await live.publish(Removed("7"), name=key)
        await settled(store, KEPT, name=key)
    assert most == 1
    assert one.counts.handled + two.counts.handled == 1


async def test_what_a_silent_consumer_has_is_taken_over(store: Store, key: str) -> None:
    """Entries of a consumer that says nothing for a lease are delivered to another, however many."""
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


async def test_what_kills_its_consumers_is_a_dead_letter(store: Store, key: str) -> None:
    """An event that was delivered too often, with no outcome ever, is not tried once more."""
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
    """A cancellation that nobody asked for is a failure like others, and the consumer works on."""
    seen = Seen(lambda _, delivery: asyncio.CancelledError() if delivery.attempt == 1 else None)
    async with store[BRIEF].consume("g", seen, concurrency=1, name=key):
        await store[BRIEF].publish(Removed("7"), name=key)
        await settled(store, BRIEF, name=key)
    assert [delivery.attempt for delivery in seen.deliveries] == [1, 2]


@pytest.mark.parametrize("how", ["the group", "the stream"])
async def test_a_group_that_vanished_is_made_again(store: Store, key: str, how: str) -> None:
    """When its group or its stream is deleted, a consumer goes on with what is there, and misses nothing."""
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

        async def heard() -> bool:
            return "after" in seen.users

        await until(heard)
        await settled(store, ACCOUNTS, name=key)
    assert set(seen.users) == {"before", "after"}


async def test_a_consumer_starts_on_a_server_whose_memory_is_full() -> None:
    """It cannot make its group then; it is there once it can, and misses nothing that was published."""
    with valkey(config={"maxmemory-policy": "noeviction"}) as server:
        async with keyspace.connect(server.url, CATALOGUE) as store:
            seen = Seen()
            server.ask("CONFIG", "SET", "maxmemory", 1)
            async with store[BRIEF].consume("g", seen, name="full") as consumer:
                server.ask("CONFIG", "SET", "maxmemory", 0)
                await store[BRIEF].publish(Removed("7"), name="full")
                await settled(store, BRIEF, name="full")
                assert (consumer.counts.handled, seen.users) == (1, ["7"])
