"""Events while consumers are killed, and servers die, hang, lose their data and restart.

The campaign handles 5,000 events; EPHEMERA_EVENTS=100000 makes it longer.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ephemera import Store, connect, embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import ConnectionFailed, OutcomeUnknown, Unavailable
from ephemera.patterns.events import Delivery
from ephemera.wire import key_slot
from tests.chaos.event_worker import CATALOGUE, EFFECTS, EVENTS, GROUP, ONCE, Happened, work
from tests.chaos.replication import caught_up
from tests.chaos.slot_moves import owner
from tests.patterns.event_fixtures import settled, until
from tests.wire.conditions import answered

_EVENTS = int(os.environ.get("EPHEMERA_EVENTS", "5000"))
_WORKERS = 3
_POISONED_EVERY = 500


class Workers:
    """Consumer processes; some are killed, and all end with the test."""

    def __init__(self, *words: str) -> None:
        # Forked from a process that has imported everything: they are killed faster than Python starts.
        self._processes = get_context("forkserver")
        self._processes.set_forkserver_preload(["tests.chaos.event_worker"])
        self._words = words
        self._all: list[Any] = []
        self.living: list[tuple[Any, Connection]] = []
        self.killed = 0

    async def start(self) -> None:
        """Start a worker, and wait until it consumes."""
        here, there = self._processes.Pipe()
        process = self._processes.Process(target=work, args=(*self._words, there))
        process.start()
        there.close()
        self._all.append(process)
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(here.recv) == "ready"
        self.living.append((process, here))

    def kill_one(self) -> None:
        """SIGKILL a random worker."""
        process, line = self.living.pop(random.randrange(len(self.living)))
        process.kill()
        process.join()
        line.close()
        self.killed += 1

    async def stop(self) -> None:
        """Stop the remaining workers cleanly."""
        for process, line in self.living:
            line.close()
            await asyncio.to_thread(process.join, 60)
            assert process.exitcode == 0

    def close(self) -> None:
        """End all workers."""
        for process in self._all:
            process.kill()
            process.join()
            process.close()


async def _killing(workers: Workers, done: asyncio.Event) -> None:
    """Kill a worker now and then, and start another, until all events are handled."""
    while not done.is_set():
        try:
            async with asyncio.timeout(random.uniform(0.05, 0.5)):
                await done.wait()
        except TimeoutError:
            workers.kill_one()
            await workers.start()


async def _campaign(store: Store, workers: Workers, events: list[Happened], within: float) -> None:
    """Publish events while their consumers are killed at random, and wait until all are handled."""
    done = asyncio.Event()
    for _ in range(_WORKERS):
        await workers.start()
    killing = asyncio.create_task(_killing(workers, done))
    try:
        for start in range(0, len(events), 500):
            await store[EVENTS].publish_many(events[start : start + 500])
            await asyncio.sleep(0.05)  # so that they are killed while they handle events
        await settled(store, EVENTS, within)
    finally:
        done.set()
        await killing
    await workers.stop()


@pytest.mark.timeout(60 + _EVENTS / 50)
async def test_consumers_killed_at_random_lose_nothing(victim: Valkey, tmp_path: Path) -> None:
    """Every event is handled at least once, none is stuck, and only poisoned ones are dead letters."""
    events = [Happened(number, number % _POISONED_EVERY == 3) for number in range(_EVENTS)]
    poisoned = sorted(event.number for event in events if event.poisoned)
    place = tmp_path / "handled"
    workers = Workers("file", victim.url, str(place))
    try:
        async with connect(victim.url, CATALOGUE) as store:
            await _campaign(store, workers, events, within=60 + _EVENTS / 50)
            letters = await store[EVENTS].dead_letters(count=_EVENTS)
            reading = await store[EVENTS].info()
    finally:
        workers.close()
    handled = Counter(map(int, place.read_text().split()))
    assert sorted(letter.event["number"] for letter in letters) == poisoned
    assert all(letter.error.startswith(("ValueError", "it was delivered")) for letter in letters)
    assert set(handled) == {event.number for event in events} - set(poisoned)
    assert (reading.length, reading.groups[0].pending, reading.groups[0].lag) == (1, 0, 0)
    assert workers.killed > _EVENTS / 5000


async def test_effects_in_sql_happen_once_however_often_consumers_are_killed(
    victim: Valkey, postgres: Postgres
) -> None:
    """With the guard in its transaction, each event has its effect exactly once."""
    with psycopg.connect(postgres.url, autocommit=True) as sql:
        sql.execute(ONCE.table)
        sql.execute(EFFECTS)
        events = [Happened(number) for number in range(1500)]
        workers = Workers("sql", victim.url, postgres.url)
        try:
            async with connect(victim.url, CATALOGUE) as store:
                await _campaign(store, workers, events, within=90)
                assert await store[EVENTS].dead_letters() == []
        finally:
            workers.close()
        rows = sql.execute("SELECT number, count(*) FROM fault_effects GROUP BY number").fetchall()
    assert dict(rows) == {event.number: 1 for event in events}


class Handled:
    """A handler in this process that remembers its events."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()

    async def __call__(self, event: Happened, _delivery: Delivery) -> None:
        """Handle an event."""
        self.numbers.add(event.number)
        await asyncio.sleep(0.001)

    async def has(self, *numbers: int) -> None:
        """Wait until these events are handled."""

        async def all_there() -> bool:
            return self.numbers.issuperset(numbers)

        await until(all_there, within=30)


async def _publish_through(store: Store, numbers: range) -> None:
    """Publish events one by one, each until the server has accepted it."""
    for number in numbers:
        while True:
            try:
                await store[EVENTS].publish(Happened(number))
            except ConnectionFailed:
                await asyncio.sleep(0.005)
            else:
                break


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Valkey]:
    """A server with an append-only file."""
    config = {"appendonly": "yes", "appendfsync": "always"}
    with embedded.valkey(data=tmp_path, config=config) as running:
        yield running


@pytest.mark.patient
async def test_a_restarted_server_loses_no_event(durable: Valkey) -> None:
    """Every event that the server acknowledged is handled, although it is killed twice."""
    handled = Handled()
    async with (
        connect(durable.url, CATALOGUE) as store,
        store[EVENTS].consume(GROUP, handled),
        store[EVENTS].consume(GROUP, handled),
    ):
        publishing = asyncio.create_task(_publish_through(store, range(1000)))
        for middle in (200, 600):
            await handled.has(middle)
            await asyncio.to_thread(durable.kill)
            await asyncio.to_thread(durable.restart)
        await publishing
        await settled(store, EVENTS, within=60)
        assert (await store[EVENTS].info()).dead == 0
    assert handled.numbers == set(range(1000))


async def test_consumers_continue_on_a_server_that_restarts_empty(victim: Valkey) -> None:
    """Consumers create their group again, and handle every event published from then on."""
    handled = Handled()
    async with connect(victim.url, CATALOGUE) as store, store[EVENTS].consume(GROUP, handled) as consumer:
        await _publish_through(store, range(100))
        await handled.has(*range(100))
        for start in (100, 200):
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.restart)
            await _publish_through(store, range(start, start + 100))
            await handled.has(*range(start, start + 100))
        await store.call("FLUSHALL")
        await _publish_through(store, range(300, 400))
        await handled.has(*range(300, 400))
        await settled(store, EVENTS)
        assert consumer.counts.dead == 0


async def test_publishing_without_a_server_fails_clearly_and_consumers_recover(victim: Valkey) -> None:
    """While the server is down, `publish` raises at once, and consumers wait, even new ones."""
    handled = Handled()
    async with connect(victim.url, CATALOGUE) as store, store[EVENTS].consume(GROUP, handled):
        await asyncio.to_thread(victim.kill)
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await _publish_until_refused(store)
        with pytest.raises(Unavailable, match=str(victim.port)):
            await store[EVENTS].publish(Happened(1))
        with pytest.raises(Unavailable, match=str(victim.port)):
            await store[EVENTS].publish_many([Happened(1)] * 1000)
        later = Handled()
        async with store[EVENTS].consume("later", later):
            await asyncio.to_thread(victim.restart)
            await answered(lambda: store[EVENTS].publish(Happened(2)))
            await handled.has(2)
            await later.has(2)


async def _publish_until_refused(store: Store) -> None:
    while True:
        await store.call("PING")


async def test_a_consumer_follows_a_fail_over() -> None:
    """When the master of its stream dies, a consumer continues with the new one."""
    handled = Handled()
    with embedded.cluster(node_timeout=1000) as cluster:
        await asyncio.sleep(2.5)  # a master that has just started refuses to vote
        async with connect(cluster.url, CATALOGUE) as store, store[EVENTS].consume(GROUP, handled):
            await _publish_through(store, range(50))
            await handled.has(*range(50))
            await asyncio.to_thread(owner(cluster, key_slot(EVENTS.keys({})[0])).kill)
            await asyncio.wait_for(_publish_through(store, range(50, 100)), 90)
            await handled.has(*range(50, 100))


async def test_a_consumer_follows_the_sentinels() -> None:
    """When the master behind Sentinel dies, a consumer continues with its replacement."""
    handled = Handled()
    with embedded.sentinel(down_after=500) as sentinel:
        async with connect(sentinel.url, CATALOGUE) as store, store[EVENTS].consume(GROUP, handled):
            await _publish_through(store, range(50))
            await handled.has(*range(50))
            await caught_up(sentinel.master)
            await asyncio.to_thread(sentinel.master.kill)
            await asyncio.wait_for(_publish_through(store, range(50, 100)), 90)
            await handled.has(*range(50, 100))
            await settled(store, EVENTS, within=60)


async def test_a_hung_server_is_waited_for(victim: Valkey) -> None:
    """An event handled while the server hung is acknowledged when it answers again."""
    begun, release = asyncio.Event(), asyncio.Event()

    async def handle(_event: Any, _delivery: Delivery) -> None:
        begun.set()
        await release.wait()

    async with connect(victim.url, CATALOGUE) as store:
        async with store[EVENTS].consume(GROUP, handle) as consumer:
            await store[EVENTS].publish(Happened(1))
            await begun.wait()
            victim.pause()
            with pytest.raises(OutcomeUnknown):
                await store[EVENTS].publish(Happened(2))
            release.set()
            victim.resume()
            await answered(lambda: store.call("PING"))
            await settled(store, EVENTS, within=60)
        assert consumer.counts.handled >= 1
        assert (await store[EVENTS].info()).dead == 0
