"""100,000 users: a tick is bounded in what it takes, with Redis and without; a day of them is simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.planner import Scenario, simulate
from ephemera_services.feed import Settings
from ephemera_services.feed.cluster_queue import MAX_WAIT
from ephemera_services.feed.keys import FeedKeys, plans
from tests.services.feed_fixtures import World, feed_fixtures

USERS = 100_000
CHANNELS = 1_000


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A Valkey for one test, which ends it."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture
def places(valkey: Valkey, postgres: Postgres) -> dict[str, str]:
    """A database for the crowd."""
    return {"EPHEMERA_URL": valkey.url, "EPHEMERA_DATABASE_URL": postgres.database("feed_crowd")}


async def test_a_hundred_thousand_users(places: dict[str, str], valkey: Valkey) -> None:
    """Of 100,000 users who are due at once each tick hands over 500, none twice, in either mode."""
    async with feed_fixtures(places, pro_novelty=3, pro_cooldown=timedelta(hours=1)) as world:
        await _settle_a_crowd(world)
        first = await world.tick()
        assert (first.mode, first.enqueued, first.full) == ("redis", 500, True)
        assert len(await world.handed()) == 500
        assert (await world.tick()).enqueued == 500
        assert len(await world.handed()) == 1000, "others than before"
        assert (await world.rebuild(next(iter(await world.handed())))).outcome == "rebuilt"

        await asyncio.to_thread(valkey.kill)
        third = await world.tick()
        assert (third.mode, third.enqueued) == ("sql", 500)
        assert len(await world.handed()) == 1499


async def _settle_a_crowd(world: World) -> None:
    """Users with three channels each, clustered an hour ago; every channel has an insight that is new."""
    for channel in range(3):
        await world.publish(f"c{channel}", 1)
    async with world.engine.begin() as sql:
        await sql.execute(sa.text("SET LOCAL statement_timeout = 0"))  # it takes longer than any request may
        for statement in _CROWD.split(";"):
            await sql.execute(sa.text(statement))


_CROWD = f"""
    INSERT INTO feed.channels (channel_id, current_seq, last_insight_ts)
    SELECT 'c' || n, 1, now() FROM generate_series(0, {CHANNELS - 1}) n ON CONFLICT DO NOTHING;
    INSERT INTO feed.insights (channel_id, seq, text)
    SELECT 'c' || n, 1, 'insight ' || n FROM generate_series(3, {CHANNELS - 1}) n;
    INSERT INTO feed.user_stats (user_id, plan, last_active_at, last_clustered_at)
    SELECT 'u' || n, 'pro', now(), now() - interval '1 hour' FROM generate_series(0, {USERS - 1}) n;
    INSERT INTO feed.subscriptions (user_id, channel_id)
    SELECT 'u' || n, 'c' || ((n + k * 7) % {CHANNELS})
    FROM generate_series(0, {USERS - 1}) n, generate_series(0, 2) k;
    INSERT INTO feed.user_cluster_hwm SELECT user_id, channel_id, 0 FROM feed.subscriptions;
    ANALYZE feed.user_stats, feed.subscriptions, feed.user_cluster_hwm, feed.channels
"""


async def test_a_day_of_a_hundred_thousand_users() -> None:
    """By the usual plans and limits eight workers keep the queue short, and everybody up to date."""
    settings = Settings()
    builders, run_seconds = 8 * settings.builders, 1.0
    scenario = Scenario(
        days=1,
        users=USERS,
        channels=5_000,
        insights_per_day=2_000,
        tick_every=settings.tick_seconds,
        workers=builders,
        run_seconds=run_seconds,
    )
    report = await simulate(plans(settings), scenario, limits=FeedKeys(settings).planner.limits)
    assert report.rebuilds > 10_000
    assert report.longest_queue * run_seconds / builders < MAX_WAIT.total_seconds()
    late = timedelta(hours=2)  # a wave of users whose time is over together is taken 500 a tick
    assert report.plans["pro"].stale_max < (settings.pro_every + late).total_seconds()
    assert report.plans["free"].stale_max < (settings.free_every + late).total_seconds()
