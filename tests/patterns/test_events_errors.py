"""What becomes of an event by the exception of its handler: retried, dead, dropped, or the group pauses."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from ephemera import Catalogue, Store, keyspace
from ephemera.embedded import valkey
from ephemera.errors import InvalidValue, ServerError
from ephemera.patterns.events import Delivery, DeliveryPolicy, Events, IdleTime, Pause, Redeliver
from tests.patterns.event_fixtures import (
    ACCOUNTS,
    BRIEF,
    CATALOGUE,
    Account,
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


class DependencyDown(Exception):
    """The mail server cannot be reached."""


SOON = Pause(retry_after=timedelta(milliseconds=20))
OWN = Catalogue("test-events-errors")
FRAGILE: Events[Account] = Events(
    OWN,
    "fragile:{name}",
    Account,
    purpose="Events with few deliveries and a long lease",
    delivery=DeliveryPolicy(max_deliveries=3, first_retry=timedelta(milliseconds=50)),
)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for events, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE, OWN) as opened:
        yield opened


async def test_the_most_specific_class_decides(store: Store, key: str) -> None:
    """Each exception has the outcome of its nearest listed class; unlisted ones are retried as declared."""
    raised = {
        "0": KeyError("dead at once"),
        "1": FileNotFoundError("dropped"),
        "2": TimeoutError("five deliveries"),
        "3": RuntimeError("three"),
    }
    seen = Seen(lambda event, _: raised[event.user_id])
    actions: Any = {
        LookupError: "dead_letter",
        OSError: Redeliver(
            first=timedelta(milliseconds=1), longest=timedelta(milliseconds=2), max_deliveries=5
        ),
        FileNotFoundError: "drop",
    }
    async with store[BRIEF].consume("g", seen, on_error=actions, name=key) as consumer:
        await store[BRIEF].publish_many(users(4), name=key)
        await settled(store, BRIEF, name=key)
        letters = await store[BRIEF].dead_letters(name=key)
    assert {letter.event["user_id"]: letter.deliveries for letter in letters} == {"0": 1, "2": 5, "3": 3}
    assert [seen.users.count(user) for user in "0123"] == [1, 1, 5, 3]
    assert (consumer.counts.dropped, consumer.counts.dead) == (1, 3)


async def test_a_dead_letter_keeps_the_beginning_of_a_long_error(store: Store, key: str) -> None:
    """An error of any length takes a thousand characters of memory."""
    seen = Seen(lambda *_: ValueError("x" * 5000))
    async with store[BRIEF].consume("g", seen, on_error={ValueError: "dead_letter"}, name=key):
        await store[BRIEF].publish(Removed("7"), name=key)
        await settled(store, BRIEF, name=key)
    (letter,) = await store[BRIEF].dead_letters(name=key)
    assert len(letter.error) == 1000
    assert letter.error.endswith("xxx")


async def test_a_delay_may_be_longer_than_the_lease(store: Store, key: str) -> None:
    """A retry in an hour is not claimed before, by any consumer, although the lease is less than a second."""
    seen = Seen(lambda *_: TimeoutError("later"))
    hour = Redeliver(first=timedelta(hours=1), longest=timedelta(hours=1))

    async def scheduled() -> bool:
        return [IdleTime.decode(idle).retry_in is not None for *_, idle, _ in await pending()] == [True]

    async def pending() -> list[Any]:
        return await pending_of(store, BRIEF, "g", name=key)

    async with store[BRIEF].consume("g", seen, on_error={TimeoutError: hour}, name=key):
        await store[BRIEF].publish(Removed("7"), name=key)
        await until(scheduled)
    other = Seen()
    async with store[BRIEF].consume("g", other, name=key):
        await store[BRIEF].publish(Removed("8"), name=key)

        async def handled() -> bool:
            return other.users == ["8"]

        await until(handled)
    ((_, _, idle, deliveries),) = await pending()
    assert deliveries == 1
    retry_in = IdleTime.decode(idle).retry_in
    assert retry_in is not None
    assert 3500 < retry_in <= 3600


@pytest.mark.parametrize(
    "actions",
    [
        {ValueError: "ignore"},
        {ValueError: Redeliver(first=timedelta(0))},
        {ValueError: Redeliver(max_deliveries=0)},
        {ValueError: Pause(after=0)},
        {ValueError: Pause(retry_after=timedelta(days=2))},
        {"ValueError": "drop"},
    ],
    ids=str,
)
async def test_wrong_actions_are_refused(store: Store, key: str, actions: Any) -> None:
    """An unknown action, an impossible delay and what is no exception class are refused at once."""
    with pytest.raises(InvalidValue, match="on_error"):
        store[BRIEF].consume("g", Seen(), on_error=actions, name=key)


class Dependency:
    """A handler whose dependency is down until it is up."""

    def __init__(self) -> None:
        self.up = False
        self.deliveries: list[Delivery] = []
        self.failures = 0

    async def __call__(self, _event: Any, delivery: Delivery) -> None:
        """Handle an event."""
        await asyncio.sleep(0)
        if not self.up:
            self.failures += 1
            raise DependencyDown("connection refused")
        self.deliveries.append(delivery)


async def test_a_group_pauses_while_its_dependency_is_down(store: Store, key: str) -> None:
    """All consumers pause, one event is tried at a time, no attempt is used up, and all is handled then."""
    bound, dependency = store[FRAGILE], Dependency()
    actions = {DependencyDown: SOON}

    async def paused() -> bool:
        return one.paused and two.paused

    async def resumed() -> bool:
        return not one.paused and not two.paused

    async def tried() -> bool:
        return dependency.failures >= failures + 2 * FRAGILE.delivery.max_deliveries

    async with (
        bound.consume("g", dependency, on_error=actions, concurrency=2, name=key) as one,
        bound.consume("g", dependency, on_error=actions, concurrency=2, name=key) as two,
    ):
        await bound.publish_many(users(30), name=key)
        await until(paused)
        (group,) = (await bound.info(name=key)).groups
        assert group.paused == "DependencyDown: connection refused"
        failures = dependency.failures
        assert failures < 30
        await until(tried)
        assert (await bound.info(name=key)).dead == 0
        dependency.up = True
        await settled(store, FRAGILE, name=key)
        (group,) = (await bound.info(name=key)).groups
        assert group.paused is None
        await until(resumed)
    assert len({delivery.id for delivery in dependency.deliveries}) == 30
    assert {delivery.attempt for delivery in dependency.deliveries} == {1}
    assert await bound.dead_letters(name=key) == []


async def test_another_failure_of_the_trial_resumes_the_group(store: Store, key: str) -> None:
    """A trial that fails for its own reasons has reached the dependency, so the group resumes."""
    dependency = Dependency()

    async def handle(event: Any, delivery: Delivery) -> None:
        await dependency(event, delivery)
        raise ValueError("its own")

    async def paused() -> bool:
        return consumer.paused

    async with store[BRIEF].consume("g", handle, on_error={DependencyDown: SOON}, name=key) as consumer:
        await store[BRIEF].publish(Registered("7"), name=key)
        await until(paused)
        dependency.up = True
        await settled(store, BRIEF, name=key)
        assert not consumer.paused
    (letter,) = await store[BRIEF].dead_letters(name=key)
    assert (letter.error, letter.deliveries) == ("ValueError: its own", 3)


@pytest.mark.standalone("it changes the rights of the one server's user")
async def test_a_group_resumes_although_the_first_attempt_to_resume_it_failed(key: str) -> None:
    """The trial succeeded, but its consumer could not remove the pause: another event is tried."""
    dependency = Dependency()

    async def paused() -> bool:
        return consumer.paused

    async def tried() -> bool:
        return bool(dependency.deliveries)

    with valkey() as own:
        async with keyspace.connect(own.url, CATALOGUE, OWN) as store:
            actions = {DependencyDown: SOON}
            async with store[FRAGILE].consume("g", dependency, on_error=actions, name=key) as consumer:
                await store[FRAGILE].publish_many(users(5), name=key)
                await until(paused)
                own.ask("ACL", "SETUSER", "default", "-hdel")
                dependency.up = True
                await until(tried)
                await store.call("PING")  # the refusal of HDEL was read
                assert consumer.paused
                own.ask("ACL", "SETUSER", "default", "+hdel")
                await settled(store, FRAGILE, within=20, name=key)
                assert not consumer.paused


async def test_single_failures_do_not_pause_a_group(store: Store, key: str) -> None:
    """With `after=3`, one event that always fails among others that do not is a dead letter in the end."""
    seen = Seen(lambda event, _: DependencyDown("its own host") if event.user_id == "0" else None)
    actions = {DependencyDown: Pause(after=3, retry_after=timedelta(hours=1))}
    async with store[BRIEF].consume("g", seen, on_error=actions, concurrency=1, name=key) as consumer:
        await store[BRIEF].publish(users(1)[0], name=key)
        number = 0
        while not (await store[BRIEF].info(name=key)).dead:
            number += 1
            await store[BRIEF].publish(Removed(f"other-{number}"), name=key)
            await asyncio.sleep(0.005)
        assert not consumer.paused
    (letter,) = await store[BRIEF].dead_letters(name=key)
    assert letter.deliveries == 3


async def test_a_consumer_that_starts_joins_the_pause(store: Store, key: str) -> None:
    """A consumer of a paused group starts no event, and the pause has a TTL on the server."""
    dependency, later = Dependency(), Seen()
    actions = {DependencyDown: Pause(retry_after=timedelta(hours=1))}

    async def paused() -> bool:
        return one.paused and (await store[ACCOUNTS].info(name=key)).groups[0].paused is not None

    async with store[ACCOUNTS].consume("g", dependency, on_error=actions, name=key) as one:
        await store[ACCOUNTS].publish_many(users(2), name=key)
        await until(paused)
    async with store[ACCOUNTS].consume("g", later, on_error=actions, name=key) as two:
        assert two.paused
        await asyncio.sleep(0.05)
    assert later.events == []
    ttl = await store.client("queue").call("PTTL", ACCOUNTS.keys({"name": key}).paused)
    assert 3_600_000 < ttl <= 7_260_000


async def test_a_stream_of_another_type_is_one_error(store: Store, key: str) -> None:
    """Inspecting what another program overwrote raises, and leaves no error that no caller awaits."""
    await store.call("SET", ACCOUNTS.keys({"name": key}).stream, "not a stream")
    with pytest.raises(ServerError, match="wrong kind"):
        await store[ACCOUNTS].info(name=key)
    gc.collect()
    await asyncio.sleep(0)
