"""DUR12: a busy channel was moved to the tail with each insight, and free users came before paying ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.planner import Dataset, Plan, PlannerRetention, TickLimits
from tests.patterns.planner_world import DAY, HOUR, World, database, ids, world

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
async def here(server: Valkey, postgres: Postgres) -> AsyncIterator[World]:
    """A planner whose ticks take two channels, and that gives a user three attempts."""
    options: dict[str, Any] = {"limits": TickLimits(max_dirty_channels=2), "max_attempts": 3}
    async with world(server.url, database(postgres), **options) as made:
        yield made


async def test_dur12_a_channel_that_is_marked_again_keeps_its_place(here: World) -> None:
    """A channel that gets an insight before each tick is examined no later than the others."""
    for number in range(6):
        await here.add_user(f"u{number}", f"c{number}")
    await here.publish("c0", 3)
    for number in range(1, 6):
        await here.publish(f"c{number}", 3)
        await here.publish("c0")
    await here.tick()
    assert here.users() == ["u0", "u1"]


async def test_dur12_channels_that_are_always_dirty_do_not_block_the_others(here: World) -> None:
    """Channels that are marked during each tick go behind those that wait."""
    busy = ("c0", "c1")
    for number in range(4):
        await here.add_user(f"u{number}", f"c{number}")
    for channel in ("c0", "c1", "c2", "c3"):
        await here.publish(channel, 3)

    async def enqueue(tasks: Any) -> None:
        await here.enqueue(tasks)
        for channel in busy:
            await here.publish(channel)

    for _ in range(2):
        await here.planner.tick(enqueue)
    assert here.users() == ["u0", "u1", "u2", "u3"]
    assert await here.dirty() == set(busy)


async def test_dur12_without_redis_the_busiest_channels_are_examined_too(postgres: Postgres) -> None:
    """From SQL, a tick that cannot take all channels takes some with the latest insights."""
    options: dict[str, Any] = {"limits": TickLimits(max_dirty_channels=10), "required": False}
    async with world(NOWHERE, database(postgres), **options) as here:
        await here.add_user("ann", "busy")
        for channel in (*ids("c", 20), "busy"):
            await here.publish(channel, 3)
        tick = await here.tick()
        assert (tick.mode, tick.full, here.users()) == ("sql", True, ["ann"])
        ticks = [await here.tick() for _ in range(3)]
        assert not ticks[-1].full  # and it goes through all the others


@pytest.mark.parametrize("up", [True, False])
async def test_dur12_paying_users_come_first(server: Valkey, postgres: Postgres, up: bool) -> None:
    """Of users who are due by time, or rechecked, those of the plan with the higher priority come first."""
    timing: dict[str, Any] = {"novelty": 3, "every": DAY, "active_within": 7 * DAY, "cooldown": timedelta(0)}
    plans = {name: Plan(**timing, priority=rank) for name, rank in (("free", 0), ("trial", 0), ("paid", 1))}
    options: dict[str, Any] = {"plans": plans, "limits": TickLimits(max_enqueued=2), "required": up}
    async with world(server.url if up else NOWHERE, database(postgres), **options) as here:
        users = {"f1": 9, "f2": 8, "t1": 7, "p1": 2, "p2": 3}  # days since they were clustered
        for user in users:
            await here.add_user(user, "art", plan={"f": "free", "t": "trial", "p": "paid"}[user[0]])
        for user, days in users.items():
            await here.change(user, last_clustered_at=sa.func.now() - days * DAY)
        ticks = []
        for _ in range(3):
            await here.tick()
            ticks.append(set(here.users()))
            here.tasks = []
        assert ticks == [{"p1", "p2"}, {"f1", "f2"}, {"t1"}]
        for user in users:  # all of them are to be rechecked, the paying ones last
            later = timedelta(minutes=user.startswith("p"))
            await here.change(
                user, enqueued_until=None, recheck_at=sa.func.now() - HOUR + later, last_enqueued_at=None
            )
        await here.tick()
        assert set(here.users()) == {"p1", "p2"}


async def _fail(_: Dataset) -> Any:
    raise OSError("no model \x00 today")


async def test_dur12_a_user_whose_runs_fail_is_parked(here: World) -> None:
    """Failing runs are retried at growing intervals, then not at all, until they are asked for again."""
    await here.add_user("ann", "art")
    await here.add_user("bob", "art")
    await here.publish("art", 3)
    waits = []
    for _ in range(3):
        await here.tick()
        assert "ann" in here.users()
        here.tasks = []
        for _ in range(2):  # a queue that retries at once counts as one attempt
            with pytest.raises(OSError, match="no model"):
                await here.planner.rebuild("ann", _fail)
        row = await here.row("ann")
        assert (row.enqueued_until, row.recheck_at) == (None, row.retry_at)
        waits.append(round((row.retry_at - row.last_enqueued_at) / timedelta(minutes=5)))
        await here.tick()
        assert here.users() == []  # it rests, and bob is enqueued already
        ago = sa.func.now() - HOUR
        await here.change("ann", retry_at=ago, recheck_at=ago, last_enqueued_at=ago)
    assert waits == [1, 2, 4]
    await here.publish("art", 3)
    await here.tick()
    assert here.users() == []
    (parked,) = await here.planner.parked()
    assert parked == ("ann", 3, "OSError: no model  today")
    assert await here.planner.retry("ann", "bob") == 1
    await here.tick()
    assert here.users() == ["ann"]
    assert (await here.rebuild("ann")).outcome == "rebuilt"
    row = await here.row("ann")
    assert (row.attempts, row.retry_at, row.last_error) == (0, None, None)


async def test_dur12_parked_users_do_not_take_the_place_of_others(server: Valkey, postgres: Postgres) -> None:
    """However many users are parked and overdue, a tick's limit is left for the others."""
    for up in (True, False):
        options: dict[str, Any] = {"limits": TickLimits(max_enqueued=2), "required": up}
        async with world(server.url if up else NOWHERE, database(postgres), **options) as here:
            for user in ids("u", 5):
                await here.add_user(user, "art")
            for user in ids("u", 5):
                ago = sa.func.now() - 3 * DAY
                await here.change(user, last_clustered_at=ago, recheck_at=ago, attempts=10 * (user < "u3"))
            await here.tick()
            assert sorted(here.users()) == ["u3", "u4"]


async def test_dur12_a_cancelled_run_is_no_attempt(here: World) -> None:
    """Workers that are stopped again and again do not park their users; a run that takes too long counts."""
    await here.add_user("ann", "art")
    await here.publish("art", 3)
    building = asyncio.Event()

    async def never(_: Dataset) -> Any:
        building.set()
        await asyncio.Event().wait()

    for _ in range(4):
        building.clear()
        run = asyncio.create_task(here.planner.rebuild("ann", never))
        await building.wait()
        assert (await here.row("ann")).attempts == 1  # also if the worker dies now
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert (await here.row("ann")).attempts == 0
    here.planner._rebuilder._run_timeout = 0.5
    with pytest.raises(TimeoutError):
        await here.planner.rebuild("ann", never)
    row = await here.row("ann")
    assert (row.attempts, row.last_error) == (1, "TimeoutError: the run took longer than 0.5 s")


async def test_dur12_names_that_sql_cannot_have_do_not_stop_the_ticks(here: World) -> None:
    """A channel or a mark that another program wrote is dropped, and everyone else is enqueued."""
    await here.add_user("ann", "art")
    call = here.store.client("queue").call
    await call("ZADD", here.store[here.declared.keys.dirty].key(), 1, b"a\x00b")
    for name in (b"a\x00b", b"\xff"):
        await here.store.client().call("HSET", here.declared.keys.marks.key(user_id="ann"), name, 1)
    await here.publish("art", 3)
    await here.tick()
    await here.tick()
    assert here.users() == ["ann"]
    assert await here.dirty() == set()


async def test_dur12_old_rows_are_deleted_in_bounded_batches(server: Valkey, postgres: Postgres) -> None:
    """Old insights, versions and marks of ended subscriptions go; what the window needs stays."""
    retention = PlannerRetention(insights=60 * DAY, versions=2)
    async with world(server.url, database(postgres), retention=retention) as here:
        await here.add_user("ann", "art", "sea")
        insights, marks = here.tables.insights, here.tables.user_cluster_hwm
        await here.publish("sea", 2)
        await here.publish("art", 4)
        await here.rebuild("ann", force=True)
        await here.planner.unsubscribe("ann", "sea")
        await here.sql(sa.update(insights).where(insights.c.seq <= 2).values(ts=sa.func.now() - 61 * DAY))
        many = "SELECT 'art', 100 + n, now() - interval '70 days' FROM generate_series(1, 1500) n"
        await here.sql(sa.text(f"INSERT INTO insights (channel_id, seq, ts) {many}"))
        left = []
        for _ in range(3):
            await here.tick()
            left.append((await here.sql(sa.select(sa.func.count()).select_from(insights)))[0][0])
        assert left == [508, 2, 2]  # a thousand ids are examined each time
        for _ in range(3):
            await here.publish("art", 3)
            await here.rebuild("ann", force=True)
        assert len(await here.versions("ann")) == 2
        assert [row.channel_id for row in await here.sql(sa.select(marks))] == ["art"]
