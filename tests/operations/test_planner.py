"""The state of a planner: Redis has the dirty channels, SQL everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import sqlalchemy as sa

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import ConnectionFailed
from ephemera.operations.inspect import dirty_channels, planner_state
from tests.patterns.planner_world import HOUR, World, world


@pytest.fixture(scope="module")
def valkey() -> object:
    """A server that this file may empty."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture
async def planned(valkey: Valkey, postgres: Postgres) -> AsyncIterator[World]:
    """A planner without users, in a database of this file."""
    sql = postgres.database("operations_planner").replace("postgresql://", "postgresql+psycopg://")
    async with world(valkey.url, sql) as opened:
        yield opened


async def test_a_planner_that_never_ticked(planned: World) -> None:
    """There is no last tick, no enqueued user and no dirty channel."""
    truth = await planner_state(planned.engine, planned.declared)
    assert (truth.last_tick, truth.examined_at, truth.enqueued, truth.users) == (None, None, 0, ())
    assert (await dirty_channels(planned.store, planned.declared)).count == 0


async def test_the_last_tick_and_enqueued_users(planned: World) -> None:
    """Mode, candidates and users are visible to every process, not only the one that ticked."""
    await planned.add_user("ann", "news")
    await planned.add_user("bob", "sport")
    await planned.publish("news", 3)
    dirty = await dirty_channels(planned.store, planned.declared)
    assert dirty.count == 1
    assert dirty.oldest[0][0] == "news"
    assert 0 <= dirty.oldest[0][1] < 60
    tick = await planned.tick()
    truth = await planner_state(planned.engine, planned.declared)
    assert truth.last_tick == tick
    assert (tick.mode, tick.candidates, tick.enqueued) == ("redis", 1, 1)
    assert (truth.enqueued, truth.due, truth.postponed) == (1, 0, 0), "an enqueued user is not postponed, too"
    (ann,) = truth.users
    assert (ann.user, ann.plan, ann.running) == ("ann", "free", False)
    assert truth.examined_at is not None
    assert abs(truth.now - truth.examined_at) < timedelta(minutes=2)
    assert (await dirty_channels(planned.store, planned.declared)).count == 0
    await planned.work()
    assert (await planner_state(planned.engine, planned.declared)).enqueued == 0


async def test_due_and_postponed_users_are_counted(planned: World) -> None:
    """Users postponed to a later moment, and those due now, are counted."""
    await planned.add_user("ann", "news", plan="calm")
    now = (await planner_state(planned.engine, planned.declared)).now
    await planned.change("ann", recheck_at=now + HOUR)
    assert (await planner_state(planned.engine, planned.declared)).postponed == 1
    await planned.change("ann", recheck_at=now - HOUR)
    truth = await planner_state(planned.engine, planned.declared)
    assert (truth.due, truth.postponed) == (1, 0)


async def test_users_that_were_not_due_are_listed_with_the_reason(planned: World) -> None:
    """The last ticks' users who were not due, the latest first and each once, without the enqueued ones."""
    for user, plan in (("ann", "free"), ("bob", "calm")):
        await planned.add_user(user, "news", plan=plan)
    await planned.publish("news", 1)
    tick = await planned.tick()
    truth = await planner_state(planned.engine, planned.declared)
    listed = {each.user_id: (each.plan, each.why, each.pending, each.at) for each in truth.not_due}
    assert listed == {"ann": ("free", "not due", 1, tick.at), "bob": ("calm", "not due", 1, tick.at)}
    await planned.change("bob", last_enqueued_at=truth.now)
    await planned.publish("news", 2)
    await planned.tick()
    await planned.tick()  # checks nobody, and keeps the list
    truth = await planner_state(planned.engine, planned.declared)
    assert [each.user for each in truth.users] == ["ann"]
    [bob] = truth.not_due
    assert (bob.user_id, bob.why, bob.pending) == ("bob", "cooldown", 3)


async def test_the_list_of_users_that_were_not_due_is_bounded(planned: World) -> None:
    """However many users a tick checks, it lists fifty."""
    for number in range(60):
        await planned.planner.enroll(f"user-{number}", plan="free")
        await planned.planner.subscribe(f"user-{number}", "news")
    users = planned.tables.user_stats
    await planned.sql(sa.update(users).values(last_clustered_at=sa.func.now()))
    await planned.publish("news", 1)
    assert (await planned.tick()).examined == 60
    assert len((await planner_state(planned.engine, planned.declared)).not_due) == 50


async def test_the_mode_is_visible_without_redis(planned: World, valkey: Valkey) -> None:
    """Without Redis, SQL shows the tick with its mode and the reason."""
    await planned.add_user("ann", "news")
    valkey.kill()
    try:
        tick = await planned.tick()
        truth = await planner_state(planned.engine, planned.declared)
        assert truth.last_tick == tick
        assert tick.mode == "sql"
        assert tick.problem
        with pytest.raises(ConnectionFailed):
            await dirty_channels(planned.store, planned.declared)
    finally:
        valkey.restart()
