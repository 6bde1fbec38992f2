"""The planner: which users are enqueued, and when; on one server, on Redis 7 and on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from ephemera import connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidDeclaration, UndeclaredKeyspace
from ephemera.patterns.planner import (
    Dataset,
    Plan,
    PlannerTiming,
    Task,
    TickLimits,
    UserFacts,
    Verdict,
    decide,
)
from tests.chaos.conftest import victim
from tests.patterns.planner_world import DAY, HOUR, PLANS, World, database, declare, ids, world
from tests.resources import with_resources
from tests.wire.conditions import eventually

__all__ = ["victim"]


@pytest.fixture
async def here(url: str, postgres: Postgres) -> AsyncIterator[World]:
    """A planner on every kind of server."""
    async with world(url, database(postgres)) as made:
        yield made


@pytest.fixture
async def one(server: Valkey, postgres: Postgres) -> AsyncIterator[World]:
    """A planner on one server."""
    async with world(server.url, database(postgres)) as made:
        yield made


async def test_novelty_enqueues(here: World) -> None:
    """A user is enqueued when the insights of all channels reach the plan's threshold, not before."""
    await here.add_user("ann", "art", "sea")
    await here.publish("art")
    await here.publish("sea")
    await here.tick()
    assert here.tasks == []
    await here.publish("art")
    tick = await here.tick()
    assert here.tasks == [("ann", "novelty", 3)]
    assert (tick.mode, tick.candidates, tick.enqueued, tick.full) == ("redis", 1, 1, False)
    assert await here.dirty() == set()


async def test_time_enqueues(here: World) -> None:
    """A user is enqueued when their plan's time has passed, without any insight."""
    await here.add_user("ann", "art")
    await here.publish("art")
    await here.tick()
    assert here.tasks == []
    await here.change("ann", last_clustered_at=sa.func.now() - DAY)
    await here.tick()
    assert here.tasks == [("ann", "time", 1)]


async def test_an_inactive_user_is_not_enqueued_until_they_return(here: World) -> None:
    """Novelty of an inactive user does not enqueue them; their next activity does."""
    await here.add_user("ann", "art")
    await here.change("ann", last_active_at=sa.func.now() - 8 * DAY)
    await here.publish("art", 5)
    await here.tick()
    assert (here.tasks, await here.dirty()) == ([], set())
    await here.planner.touch("ann")
    await here.tick()
    assert here.tasks == [("ann", "novelty", 5)]


async def test_a_user_is_enqueued_once(here: World) -> None:
    """While enqueued, more novelty does not enqueue a user again; after the worker's run it does."""
    await here.add_user("ann", "art")
    await here.publish("art", 3)
    await here.tick()
    await here.publish("art", 3)
    await here.tick()
    assert here.users() == ["ann"]
    assert await here.planner.queue_length() == 1
    assert [run.outcome for run in await here.work()] == ["rebuilt"]
    assert await here.planner.queue_length() == 0
    await here.publish("art", 3)
    await here.tick()
    assert here.users() == ["ann"]


async def test_the_cooldown_postpones_and_does_not_lose(here: World) -> None:
    """A user who is due within the cooldown is enqueued at its end, without another insight."""
    await here.add_user("ann", "art", plan="calm")
    await here.publish("art", 3)
    await here.change("ann", last_enqueued_at=sa.func.now() - HOUR / 2)
    tick = await here.tick()
    assert (here.tasks, tick.postponed, await here.dirty()) == ([], 1, set())
    row = await here.row("ann")
    assert row.recheck_at - row.last_enqueued_at == pytest.approx(HOUR, abs=HOUR / 3600)
    await here.tick()
    assert here.tasks == []
    ago = sa.func.now() - HOUR
    await here.change("ann", last_enqueued_at=ago, recheck_at=sa.func.now())
    await here.tick()
    assert here.users() == ["ann"]


async def test_a_recheck_that_finds_nothing_is_over(one: World) -> None:
    """The recheck of a user who is not due ends; that of a user in their cooldown is moved to its end."""
    await one.add_user("ann", "art")
    await one.add_user("bob", "sea", plan="calm")
    await one.publish("sea", 3)
    await one.change("ann", recheck_at=sa.func.now())
    await one.change("bob", recheck_at=sa.func.now(), last_enqueued_at=sa.func.now() - HOUR / 2)
    await one.tick()
    assert one.tasks == []
    assert (await one.row("ann")).recheck_at is None
    bob = await one.row("bob")
    assert bob.recheck_at - bob.last_enqueued_at == pytest.approx(HOUR, abs=HOUR / 3600)


async def test_a_run_saves_everything(here: World) -> None:
    """Clusters, version, marks and times are in SQL, the cache follows, and the user is not enqueued."""
    await here.add_user("ann", "art")
    await here.publish("art", 3)
    await here.tick()
    before = (await here.row("ann")).last_clustered_at
    notified: list[tuple[str, int]] = []

    async def invalidate(user: str, version: int) -> None:
        notified.append((user, version))

    run = await here.rebuild("ann", invalidate=invalidate)
    assert (run.outcome, run.version, run.pending, run.left) == ("rebuilt", 1, 3, 0)
    assert notified == [("ann", 1)]
    row = await here.row("ann")
    assert (row.cluster_version, row.pending_insights_count, row.enqueued_until, row.recheck_at) == (
        1,
        0,
        None,
        None,
    )
    assert row.last_clustered_at > before
    assert [len(version) for version in await here.versions("ann")] == [3]
    state = await here.store[here.declared.keys.users].get(user_id="ann")
    assert state is not None
    assert state.cluster_version == 1
    assert state.last_clustered_at == int(row.last_clustered_at.timestamp() * 1000)
    assert await here.store[here.declared.keys.marks].get_all(user_id="ann") == {"art": 3}
    assert not await here.store[here.declared.keys.enqueued].exists(user_id="ann")


async def test_an_unnecessary_run_changes_nothing(one: World) -> None:
    """A recount ends a run that has nothing new, is not due, or has an unknown user; `force` rebuilds."""
    await one.add_user("ann", "art")
    assert (await one.rebuild("ann")).outcome == "nothing new"
    await one.publish("art", 2)
    assert (await one.rebuild("ann")).outcome == "not due"
    assert (await one.rebuild("bob")).outcome == "unknown user"
    assert one.built == []
    assert (await one.rebuild("ann", force=True)).version == 1


async def test_a_dataset_is_the_window_and_the_novelty(one: World) -> None:
    """The dataset has the window, seen or not, and older insights that were never seen."""
    await one.add_user("ann", "art")
    await one.publish("art", 4)
    await one.rebuild("ann")
    await one.publish("art", 3)
    insights = one.tables.insights
    await one.sql(sa.update(insights).where(insights.c.seq <= 2).values(ts=sa.func.now() - 40 * DAY))
    await one.sql(sa.update(insights).where(insights.c.seq == 5).values(ts=sa.func.now() - 40 * DAY))
    await one.rebuild("ann")
    (span,) = one.built[-1].spans
    assert (span.after, span.seen, span.upto) == (2, 4, 7)
    assert [row.seq for row in await one.planner.insights(one.built[-1])] == [3, 4, 5, 6, 7]
    newest = await one.planner.insights(one.built[-1], newest=3)
    assert [row.seq for row in newest] == [4, 6, 7], "the fifth is older"


async def test_the_facts_of_a_user(one: World) -> None:
    """A user's plan, novelty and version, as SQL has them; None for an unknown user."""
    await one.add_user("ann", "art")
    await one.publish("art", 4)
    await one.rebuild("ann")
    await one.publish("art", 2)
    known = await one.planner.user("ann")
    assert known is not None
    assert (known.facts.plan, known.facts.pending, known.cluster_version) == ("free", 2, 1)
    assert known.facts.last_clustered_at > 0
    assert await one.planner.user("unknown") is None


async def test_a_failing_queue_loses_no_user(here: World) -> None:
    """When the queue refuses, the tick fails, and the next one enqueues at once."""
    await here.add_user("ann", "art")
    await here.publish("art", 3)

    async def refuse(tasks: Sequence[Task]) -> None:
        raise OSError("the queue is full")

    with pytest.raises(OSError, match="full"):
        await here.planner.tick(refuse)
    assert here.planner.status.failed_ticks == 1
    await here.tick()
    assert here.users() == ["ann"]


async def test_a_lost_task_is_enqueued_again(one: World) -> None:
    """If no worker ever runs, the user is enqueued again when the mark expires."""
    await one.add_user("ann", "art")
    await one.publish("art", 3)
    await one.tick()
    ago = sa.func.now() - HOUR
    await one.change("ann", enqueued_until=ago, recheck_at=ago, last_enqueued_at=ago)
    await one.store[one.declared.keys.enqueued].delete(user_id="ann")
    await one.tick()
    assert one.users() == ["ann", "ann"]


async def test_a_stale_mark_in_redis_delays_no_user(one: World) -> None:
    """A promoted replica may still have the mark of a finished run; SQL knows that it ended."""
    await one.add_user("ann", "art")
    await one.publish("art", 3)
    await one.tick()
    await one.work()
    await one.store[one.declared.keys.enqueued].set(user_id="ann")
    await one.change("ann", last_enqueued_at=sa.func.now() - HOUR)  # the cooldown is over
    await one.store[one.declared.keys.users].delete(user_id="ann")
    await one.publish("art", 3)
    await one.tick()
    assert one.users() == ["ann"]


async def test_a_tick_takes_a_limited_number_of_channels(server: Valkey, postgres: Postgres) -> None:
    """What a tick leaves, the next ones take, the oldest first."""
    async with world(server.url, database(postgres), limits=TickLimits(max_dirty_channels=2)) as here:
        for number in range(5):
            await here.add_user(f"u{number}", f"c{number}")
        for number in range(5):
            await here.publish(f"c{number}", 3)
        handed = []
        for _ in range(3):
            tick = await here.tick()
            handed.append((tick.full, sorted(here.users())))
            here.tasks = []
        assert handed == [(True, ["u0", "u1"]), (True, ["u2", "u3"]), (False, ["u4"])]


@pytest.mark.parametrize("up", [True, False])
async def test_a_tick_enqueues_a_limited_number_of_users(
    server: Valkey, postgres: Postgres, up: bool
) -> None:
    """Users beyond the limit are enqueued by the next tick, each once, with or without Redis."""
    url = server.url if up else "redis://127.0.0.1:1"
    async with world(url, database(postgres), limits=TickLimits(max_enqueued=2), required=False) as here:
        for user in ids("u", 5):
            await here.add_user(user, "art")
        await here.publish("art", 3)
        ticks = [await here.tick() for _ in range(4)]
        assert sorted(here.users()) == ids("u", 5)
        assert [tick.enqueued for tick in ticks] == [2, 2, 1, 0]
        assert {tick.mode for tick in ticks} == {"redis" if up else "sql"}


async def test_only_subscribed_channels_count(here: World) -> None:
    """A channel counts from its subscription until its end, cached or not."""
    await here.add_user("ann", "art", "sea")
    await here.publish("art", 2)
    await here.publish("sea", 1)
    await here.planner.unsubscribe("ann", "sea")
    await here.tick()
    assert here.tasks == []
    assert await here.planner.subscribe("ann", "sky")
    assert not await here.planner.subscribe("ann", "sky")
    await here.publish("sky", 1)
    await here.tick()
    assert here.tasks == [("ann", "novelty", 3)]


async def test_a_cache_that_missed_a_subscription_is_detected(here: World) -> None:
    """A subscription that Redis missed counts as soon as its channel is dirty."""
    await here.add_user("ann", "art")
    await here.publish("art")
    await here.tick()  # the copies are made
    await here.planner.subscribe("ann", "sea")
    await here.store[here.declared.keys.marks].remove("sea", user_id="ann")
    await here.change("ann", recheck_at=None)
    await here.store[here.declared.keys.users].delete(user_id="ann")
    await here.tick()
    await here.publish("sea", 2)
    await here.tick()
    assert here.tasks == [("ann", "novelty", 3)]


async def test_a_cache_with_too_much_novelty_is_corrected(here: World) -> None:
    """A cache that missed a save costs one run, which finds nothing and evicts it."""
    await here.add_user("ann", "art")
    await here.publish("art", 3)
    await here.tick()
    await here.work()
    await here.store[here.declared.keys.marks].put({"art": 0}, user_id="ann")
    await here.publish("art")
    await here.tick()
    assert [run.outcome for run in await here.work()] == ["not due"]
    await here.publish("art")
    await here.tick()
    assert here.tasks == []


async def test_corrupted_keys_are_counted_by_sql(here: World) -> None:
    """Marks, seqs and states that are no numbers count as missing, and are repaired."""
    await here.add_user("ann", "art", "sea")
    await here.publish("sea")
    await here.tick()
    await here.store.client().call("HSET", here.declared.keys.marks.key(user_id="ann"), "art", "x")
    await here.store.client().call(
        "HSET", here.declared.keys.channels.key(channel_id="sea"), "current_seq", "y"
    )
    await here.publish("art", 2)
    await here.tick()
    assert here.tasks == [("ann", "novelty", 3)]
    assert await here.store[here.declared.keys.marks].get_all(user_id="ann") == {"art": 0, "sea": 0}


async def test_a_changed_plan_takes_effect(one: World) -> None:
    """A changed plan applies from the next tick; an undeclared one is refused."""
    await one.add_user("ann", "art", plan="calm")
    await one.change("ann", last_enqueued_at=sa.func.now())
    await one.publish("art", 3)
    await one.tick()
    assert one.tasks == []
    await one.planner.enroll("ann", plan="free")
    await one.tick()
    assert one.users() == ["ann"]
    with pytest.raises(InvalidDeclaration, match="free, calm"):
        await one.planner.enroll("ann", plan="gold")


async def test_a_touch_is_one_round_trip_and_updates_sql_now_and_then(one: World) -> None:
    """Redis gets every touch; SQL gets the first, and then none for a while."""
    await one.add_user("ann", "art")
    await one.publish("art")
    await one.tick()
    first = await one.row("ann")
    await one.planner.touch("ann")
    state = await one.store[one.declared.keys.users].get(user_id="ann")
    assert state is not None
    assert state.last_active_at > first.last_active_at.timestamp() * 1000
    assert (await one.row("ann")).last_active_at == first.last_active_at


async def test_publishing_in_ones_own_transaction(one: World) -> None:
    """An insight that was rolled back leaves no gap, and a committed one marks its channel."""
    await one.add_user("ann", "art")
    async with one.engine.connect() as sql:
        assert (await one.planner.publish_in(sql, "art", text="no")).seq == 1
        await sql.rollback()
    async with one.engine.begin() as sql:
        insights = [await one.planner.publish_in(sql, "art", text="yes") for _ in range(3)]
    await one.planner.mark_dirty(*insights)
    assert [each.seq for each in insights] == [1, 2, 3]
    await one.tick()
    assert one.users() == ["ann"]


async def test_more_is_saved_in_the_same_transaction(one: World) -> None:
    """What `on_save` writes is saved with the clusters, and an error in it saves neither."""
    await one.add_user("ann", "art")
    await one.publish("art", 3)

    async def fail(sql: Any, dataset: Any) -> None:
        await sql.execute(sa.insert(one.tables.channels).values(channel_id="more"))
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        await one.rebuild("ann", on_save=fail)
    assert await one.versions("ann") == []
    channels = await one.sql(sa.select(one.tables.channels.c.channel_id))
    assert channels == [("art",)]
    assert (await one.rebuild("ann")).outcome == "rebuilt"


async def test_two_planners_at_once(one: World, server: Valkey, postgres: Postgres) -> None:
    """Of two concurrent ticks one leads and the other does nothing; the status says which."""
    await one.add_user("ann", "art")
    await one.publish("art", 3)
    other = with_resources(one.store, {one.declared: one.engine})[one.declared]
    async with one.store[one.declared.keys.tick_lock].hold():
        tick = await asyncio.create_task(other.tick(one.enqueue))
    assert (tick.not_leader, one.tasks, other.status.last_tick) == (True, [], None)
    tick = await other.tick(one.enqueue)
    assert (other.status.last_tick, other.status.mode) == (tick, "redis")
    assert msgspec.json.decode(msgspec.json.encode(tick))["enqueued"] == 1


_PLAN = Plan(novelty=3, every=HOUR, active_within=DAY, cooldown=HOUR / 2)
_NOW, _HOUR = 1_800_000_000_000, 3_600_000


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (UserFacts("p", 3, _NOW, _NOW), Verdict("novelty")),
        (UserFacts("p", 2, _NOW, _NOW), Verdict(None)),
        (UserFacts("p", 0, _NOW - _HOUR, _NOW), Verdict("time")),
        (UserFacts("p", 0, _NOW - _HOUR + 1, _NOW), Verdict(None)),
        (UserFacts("p", 0, 0, _NOW), Verdict("time")),
        (UserFacts("p", 9, 0, _NOW - 24 * _HOUR), Verdict("novelty")),
        (UserFacts("p", 9, 0, _NOW - 24 * _HOUR - 1), Verdict(None)),
        (UserFacts("p", 9, 0, _NOW, _NOW - _HOUR // 2), Verdict("novelty")),
        (UserFacts("p", 9, 0, _NOW, _NOW - _HOUR // 2 + 7), Verdict(None, _NOW + 7)),
        (UserFacts("p", 0, _NOW, _NOW, _NOW), Verdict(None)),
    ],
)
def test_a_verdict(facts: UserFacts, verdict: Verdict) -> None:
    """Novelty or time, and activity, and the cooldown, each to the millisecond."""
    assert decide(_PLAN, facts, _NOW) == verdict


async def test_invalid_declarations_are_refused(server: Valkey) -> None:
    """Declarations that could never enqueue a user are refused, and so is a store without the keys."""
    with pytest.raises(InvalidDeclaration):
        Plan(novelty=0, every=DAY, active_within=DAY, cooldown=HOUR)
    with pytest.raises(InvalidDeclaration):
        Plan(novelty=1, every=DAY, active_within=DAY - DAY, cooldown=HOUR)
    wrongs: list[dict[str, Any]] = [
        {"plans": {}},
        {"limits": TickLimits(max_enqueued=0)},
        {"window": DAY - DAY},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidDeclaration):
            declare(**wrong)
    _, _, stranger = declare()
    async with connect(server.url) as store:
        with pytest.raises(UndeclaredKeyspace):
            store[stranger]
    assert "free" in repr(stranger)
    assert "novelty=3" in repr(PLANS["free"])


async def test_a_planner_survives_failing_ticks(one: World) -> None:
    """`run` keeps ticking after a failed tick, until it is cancelled."""
    await one.add_user("ann", "art")
    await one.publish("art", 3)
    calls = 0

    async def enqueue(tasks: Sequence[Task]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("the queue is unavailable")
        await one.enqueue(tasks)

    running = asyncio.create_task(one.planner.run(enqueue, every=timedelta(milliseconds=50)))
    await eventually(lambda: one.tasks)
    assert one.users() == ["ann"]
    await one.work()
    ticks = one.planner.status.ticks
    await one.publish("art", 3)
    await eventually(lambda: one.tasks)  # it continues
    await eventually(lambda: one.planner.status.ticks > ticks)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert one.planner.status.failed_ticks == 1


async def test_a_run_has_a_timeout(server: Valkey, postgres: Postgres) -> None:
    """At `run_timeout` a build is cancelled, nothing is saved, and the user can be rebuilt."""
    timing = PlannerTiming(run_timeout=timedelta(seconds=3), lease=timedelta(seconds=2))
    async with world(server.url, database(postgres), timing=timing) as here:
        await here.add_user("ann", "art")
        await here.publish("art", 3)
        cancelled = []

        async def never(_: Dataset) -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        with pytest.raises(TimeoutError):
            await here.planner.rebuild("ann", never)
        assert cancelled == [True]
        assert await here.store[here.declared.keys.user_lock].holder(user_id="ann") is None
        run = await here.rebuild("ann")
        assert (run.outcome, run.version, run.pending) == ("rebuilt", 1, 3)


@pytest.mark.standalone("it lists all keys of one server")
async def test_cache_and_queue_may_be_two_servers(server: Valkey, victim: Valkey, postgres: Postgres) -> None:
    """With a `queue_url` marks and locks are there, cached rows are not; without either, SQL serves."""
    async with world(server.url, database(postgres), queue_url=victim.url) as here:
        await here.add_user("ann", "art")
        await here.publish("art", 3)
        assert (await here.tick()).mode == "redis"
        assert here.users() == ["ann"]
        kept = {role: await here.store.client(role).call("KEYS", "*") for role in ("cache", "queue")}
        first = {role: {key.partition(b":")[0] for key in keys} for role, keys in kept.items()}
        assert first["cache"] == {b"ch", b"hwm", b"us"}
        assert {b"enq", b"lock"} <= first["queue"] <= {b"enq", b"lock", b"dirty"}
        assert (await here.work())[0].outcome == "rebuilt"
        await asyncio.to_thread(victim.kill)
        await here.publish("art", 3)
        assert (await here.tick()).mode == "sql"
        assert here.users() == ["ann"]
        assert (await here.work())[0].outcome == "rebuilt"
        assert len(await here.versions("ann")) == 2
