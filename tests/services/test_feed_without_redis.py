"""Redis killed, hung and back: planner and workers continue from SQL, bounded, and lose no user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from zlib import crc32

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.planner import Task
from ephemera_services.feed.cluster_queue import LOST
from tests.services.feed_fixtures import World, feed_fixtures
from tests.services.feed_users import Caller, feeding, texts, until, working


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A Valkey for one test, which ends it."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture
def places(valkey: Valkey, postgres: Postgres, request: pytest.FixtureRequest) -> dict[str, str]:
    """A database for each test, as each loses its Redis."""
    name = f"feed_{crc32(request.node.name.encode()):x}"
    return {"EPHEMERA_URL": valkey.url, "EPHEMERA_DATABASE_URL": postgres.database(name)}


@pytest.fixture
async def world(places: dict[str, str]) -> AsyncIterator[World]:
    """A service whose ticks hand over at most ten users."""
    async with feed_fixtures(places, max_enqueued_per_tick=10, pro_novelty=3) as made:
        yield made


async def _crowd(world: World, count: int) -> list[str]:
    """Users of one channel, clustered before, to whom three insights are new."""
    users = [f"user-{number}" for number in range(count)]
    for user in users:
        await world.aggregator.subscribe(user, "news", "pro")
        await world.age(user, last_clustered_at="1 h")
    await world.tick()
    await world.publish("news", 3)
    return users


async def test_redis_killed_in_mid_tick(world: World, valkey: Valkey) -> None:
    """A tick whose Redis dies between claim and queue loses no user: SQL has them for later ticks."""
    users = await _crowd(world, 25)
    enqueue = world.aggregator.queue.enqueue

    async def killed_first(tasks: Sequence[Task]) -> None:
        if world.aggregator.store.client("queue").up:
            await asyncio.to_thread(valkey.kill)
            await _until_down(world)
        await enqueue(tasks)

    tick = await world.planner.tick(killed_first)
    assert tick.mode == "sql", "it continued from SQL at once"
    assert tick.enqueued <= 10, "bounded"
    served = await _serve_from_sql(world, users)
    assert served == set(users)

    await world.publish("news", 3, "banks")  # during the outage
    await asyncio.to_thread(valkey.restart)
    await _until_up(world)
    for user in users:
        await world.age(user, last_enqueued_at="1 h", recheck_at="1 s")
    assert (await world.tick()).mode == "redis"
    handed = await world.handed()
    assert len(handed) == 10
    assert handed <= set(users)


async def test_both_flows_without_redis(world: World, valkey: Valkey) -> None:
    """While Redis is unavailable, novelty and time are read from SQL, and the planner says where it reads."""
    await _crowd(world, 3)
    await world.aggregator.subscribe("timely", "elsewhere", "pro")
    await world.age("timely", last_clustered_at="13 h")
    await asyncio.to_thread(valkey.kill)
    await _until_down(world)
    await world.publish("elsewhere", 1, "sport")
    assert (await world.tick()).mode == "sql"
    assert await world.handed() == {"user-0", "user-1", "user-2", "timely"}
    tick, queue = await world.aggregator.planner_state()
    assert tick is not None
    assert (tick.mode, queue.length) == ("sql", 4)
    run = await world.rebuild("timely")
    assert (run.outcome, run.pending) == ("rebuilt", 1)
    await world.aggregator.touch("timely")
    feed = await world.aggregator.feed("timely")
    assert feed is not None
    assert feed.cluster_version == run.version


async def test_what_the_stream_lost_is_found_in_sql(world: World, valkey: Valkey) -> None:
    """A Redis that came back empty has lost the stream: workers find who was handed over, a little later."""
    users = await _crowd(world, 2)
    await world.tick()
    await world.aggregator.store.client("queue").call("FLUSHALL")
    assert await world.aggregator.queue.waiting(LOST, 10) == [], "the stream would tell of them now"
    for user in users:
        await world.age(user, last_enqueued_at="31 s")
    assert set(await world.aggregator.queue.waiting(LOST, 10)) == set(users)
    assert (await world.rebuild(users[0])).outcome == "rebuilt"
    assert await world.aggregator.queue.waiting(LOST, 10) == [users[1]]


async def test_no_user_is_enqueued_while_the_workers_lag(world: World) -> None:
    """While a user has waited for half of the mark the planner pauses, and continues when they are served."""
    users = await _crowd(world, 12)
    assert (await world.tick()).enqueued == 10
    waits = next(iter(await world.handed()))
    await world.age(waits, last_enqueued_at="151 s")
    await world.tick()
    assert len(await world.handed()) == 10
    pauses = world.aggregator.metrics.registry.get_sample_value("feed_tick_pauses_total")
    assert pauses == 1
    await world.rebuild(waits)
    await world.tick()
    assert len(await world.handed() | {waits}) == len(users)


@pytest.mark.parametrize("how", ["killed", "hung"])
def test_a_service_that_loses_redis_keeps_working(
    how: str, places: dict[str, str], valkey: Valkey, tmp_path: Path
) -> None:
    """Feeds are published, clustered and read over HTTP while Redis is down, and afterwards."""
    with feeding(tmp_path, places) as caller, working(tmp_path, places):
        _read_about(caller, "space", "before")
        valkey.kill() if how == "killed" else valkey.pause()
        _read_about(caller, "banks", "meanwhile")
        until(lambda: caller.http.get("/feed/planner").json()["mode"] == "sql", "the planner reads SQL")
        assert caller.http.get("/readyz").json()["redis"] == "down"
        valkey.restart() if how == "killed" else valkey.resume()
        until(lambda: caller.http.get("/feed/planner").json()["mode"] == "redis", "the planner reads Redis")
        _read_about(caller, "sport", "after")
        until(lambda: caller.http.get("/readyz").json()["redis"] == "up", "Redis is back")


def _read_about(caller: Caller, subject: str, user: str) -> None:
    """A new user reads what was published before they came."""
    caller.publish(subject, *texts(subject, 5))
    caller.subscribe(user, subject, plan="pro")
    caller.wait_for_version(user, 1)
    (item,) = caller.feed(user)["items"]
    assert item["size"] == 5


async def _serve_from_sql(world: World, users: list[str]) -> set[str]:
    """Work as a worker does without Redis, until all are served."""
    served: set[str] = set()
    for _ in range(20):
        for user in await world.aggregator.queue.waiting(timedelta(0), 100):
            run = await world.rebuild(user)
            assert run.outcome == "rebuilt"
            assert user not in served, "no user is served twice"
            served.add(user)
        if served == set(users):
            break
        await world.tick()
    return served


async def _until_down(world: World) -> None:
    async with asyncio.timeout(60):
        while world.aggregator.store.client("queue").up:
            await asyncio.sleep(0.01)


async def _until_up(world: World) -> None:
    async with asyncio.timeout(60):
        while not world.aggregator.store.client("queue").up:
            await asyncio.sleep(0.01)
