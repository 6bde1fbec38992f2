"""When a user's clusters are rebuilt, by plan and usual settings: novelty, time, activity, cooldown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from ephemera_services.feed.embeddings import embed_texts
from tests.services.feed_fixtures import Interrupted, World, feed_fixtures

BY_PLAN = pytest.mark.parametrize(
    ("plan", "novelty", "every", "active_within", "cooldown"),
    [("free", 20, "2 d", "7 d", "6 h"), ("pro", 5, "12 h", "14 d", "15 min")],
)


@pytest.fixture
async def world(places: dict[str, str]) -> AsyncIterator[World]:
    """A service with the usual settings."""
    async with feed_fixtures(places) as made:
        yield made


async def test_publishing_makes_the_channel_dirty_and_nothing_else(world: World) -> None:
    """Of all keys only the channel's and the dirty set change, and of all users' rows none."""
    for user in ("bea", "cid"):
        await world.settled(user, "quiet", "pro")
    keys, rows = await _redis(world), await _users(world)
    await world.publish("quiet", 1)
    after = await _redis(world)
    changed = {name for name in keys | after if keys.get(name) != after.get(name)}
    assert changed == {b"ch:quiet", b"dirty:channels"}
    assert await _users(world) == rows


async def _redis(world: World) -> dict[bytes, bytes]:
    """Everything in Redis, by key."""
    client = world.aggregator.store.client("queue")
    return {name: await client.call("DUMP", name) for name in await client.call("KEYS", "*")}


async def _users(world: World) -> list[Any]:
    users = world.tables.user_stats
    return list(await world.sql(sa.select(users).order_by(users.c.user_id)))


@BY_PLAN
async def test_novelty(
    world: World, plan: str, novelty: int, every: str, active_within: str, cooldown: str
) -> None:
    """A user is handed over with the plan's number of new insights, and not with one less."""
    user, channel = f"novel-{plan}", f"novelties-{plan}"
    await world.settled(user, channel, plan)
    await world.publish(channel, novelty - 1)
    await world.tick()
    assert user not in await world.handed()
    await world.publish(channel, 1)
    await world.tick()
    assert user in await world.handed()
    assert await world.reason(user) == "novelty"
    run = await world.rebuild(user)
    assert (run.outcome, run.pending, run.left) == ("rebuilt", novelty, 0)


@BY_PLAN
async def test_time(
    world: World, plan: str, novelty: int, every: str, active_within: str, cooldown: str
) -> None:
    """A user is enqueued for a single new insight when the plan's interval has passed, and not before."""
    user, channel = f"timely-{plan}", f"times-{plan}"
    await world.settled(user, channel, plan)
    before = (await world.row(user)).cluster_version
    await world.publish(channel, 1)
    await world.tick()
    assert user not in await world.handed()
    await world.age(user, last_clustered_at=every)
    await world.tick()
    assert user in await world.handed()
    assert await world.reason(user) == "time"
    assert (await world.rebuild(user)).version == before + 1


async def test_time_without_novelty_changes_nothing(world: World) -> None:
    """Without new insights a run by time keeps the version and restarts the interval."""
    await world.settled("patient", "silence", "pro")
    await world.age("patient", last_clustered_at="12 h")
    before = await world.row("patient")
    await world.tick()
    assert "patient" in await world.handed()
    run = await world.rebuild("patient")
    after = await world.row("patient")
    assert (run.outcome, run.version) == ("nothing new", before.cluster_version)
    assert after.cluster_version == before.cluster_version
    assert after.last_clustered_at > before.last_clustered_at
    await world.tick()
    assert "patient" not in await world.handed()


@BY_PLAN
async def test_activity(
    world: World, plan: str, novelty: int, every: str, active_within: str, cooldown: str
) -> None:
    """A user inactive for longer than the plan allows is not clustered until they return."""
    user, channel = f"inactive-{plan}", f"unseen-{plan}"
    await world.settled(user, channel, plan)
    await world.age(user, last_active_at=f"{active_within} 1 min")
    await world.publish(channel, novelty)
    await world.tick()
    assert user not in await world.handed()
    await world.aggregator.touch(user)
    await world.tick()
    assert user in await world.handed()


@BY_PLAN
async def test_cooldown(
    world: World, plan: str, novelty: int, every: str, active_within: str, cooldown: str
) -> None:
    """Who was handed over is not again within the cooldown; afterwards they are, also if no insight comes."""
    user, channel = f"eager-{plan}", f"floods-{plan}"
    await world.settled(user, channel, plan)
    await world.publish(channel, novelty)
    await world.tick()
    await world.rebuild(user)
    await world.publish(channel, novelty, "banks")
    await world.tick()
    assert user not in await world.handed()
    row = await world.row(user)
    assert row.recheck_at > row.last_enqueued_at, "SQL knows when to look again"
    await world.age(user, last_enqueued_at=cooldown, recheck_at="1 s")
    await world.tick()
    assert user in await world.handed()
    assert (await world.rebuild(user)).pending == novelty


async def test_insights_that_come_during_clustering_are_counted_next_time(world: World) -> None:
    """They stay new: they are in the next run's count, and in its clusters; none is left out."""
    await world.settled("mia", "busy", "pro")
    await world.publish("busy", 5)

    async def meanwhile() -> None:
        await world.publish("busy", 6, "sport")

    world.builder._pool = Interrupted(world.clusterizer, meanwhile)  # type: ignore[assignment]
    run = await world.rebuild("mia")
    assert (run.outcome, run.pending, run.left) == ("rebuilt", 5, 6)
    status = await world.aggregator.status("mia")
    assert status is not None
    assert status.pending == 6
    feed = await world.aggregator.feed("mia")
    assert feed is not None
    assert sum(item.size for item in feed.items) + feed.unclustered == 5

    world.builder._pool = world.clusterizer
    await world.age("mia", last_enqueued_at="1 h", recheck_at="1 s")
    await world.tick()
    assert "mia" in await world.handed(), "it was enough for another run"
    run = await world.rebuild("mia")
    assert (run.outcome, run.pending, run.left) == ("rebuilt", 6, 0)
    newer = await world.aggregator.feed("mia")
    assert newer is not None
    assert newer.cluster_version == feed.cluster_version + 1
    assert sum(item.size for item in newer.items) + newer.unclustered == 11


async def test_a_new_subscriber_of_an_old_channel(world: World) -> None:
    """10,000 insights from before the window are neither novelty nor in the clusters of a new subscriber."""
    await _old_insights(world, "archive", 10_000, "90 d")
    await world.publish("archive", 4, "banks")
    await world.aggregator.subscribe("newcomer", "archive", "pro")
    status = await world.aggregator.status("newcomer")
    assert status is not None
    assert status.pending == 4
    await world.tick()
    run = await world.rebuild("newcomer")
    assert (run.outcome, run.pending) == ("rebuilt", 4)
    clusters = (
        await world.sql(sa.select(world.tables.clusters).where(world.tables.clusters.c.user_id == "newcomer"))
    )[0]
    assert clusters.dataset_size == 4


async def test_a_window_with_more_than_a_run_takes(world: World) -> None:
    """Of 10,000 insights within the window the newest 2,000 are clustered, and all are seen."""
    await _old_insights(world, "torrent", 10_000, "1 d")
    await world.aggregator.subscribe("reader", "torrent", "pro")
    await world.tick()
    run = await world.rebuild("reader")
    assert (run.outcome, run.pending) == ("rebuilt", 10_000)
    row = (
        await world.sql(sa.select(world.tables.clusters).where(world.tables.clusters.c.user_id == "reader"))
    )[0]
    assert row.dataset_size == 2_000
    members = {each for cluster in row.clusters for each in cluster["insights"]}
    assert len(members) + row.unclustered == 2_000
    status = await world.aggregator.status("reader")
    assert status is not None
    assert status.pending == 0


async def _old_insights(world: World, channel: str, count: int, ago: str) -> None:
    """Insights of a channel, all at once, each with a vector of its own in one of ten directions."""
    channels, insights = world.tables.channels, world.tables.insights
    await world.sql(sa.insert(channels).values(channel_id=channel, current_seq=count))
    embedder = world.aggregator.embedder
    words = [f"subject{at} alpha{at} beta{at} gamma{at} delta{at}" for at in range(10)]
    vectors = await embed_texts(embedder, words)
    rows = [
        {
            "channel_id": channel,
            "seq": at + 1,
            "text": words[at % 10],
            "embedding": vectors[at % 10],
            "embedded_by": embedder.model,
        }
        for at in range(count)
    ]
    async with world.engine.begin() as sql:
        await sql.execute(sa.insert(insights).values(ts=sa.text(f"now() - interval '{ago}'")), rows)
