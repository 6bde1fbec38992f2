"""The traps of the feed's planner (F1, F2, F4 to F8): the naive implementation fails, ours holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.keyspace import Store
from ephemera.patterns.planner import Dataset, Task
from tests.patterns.planner_world import DAY, World, database, ids, world
from tests.patterns.trips import Counting
from tests.resources import with_resources
from tests.traps.interrupted import Interrupted
from tests.traps.naive_feed import NaiveFeed
from tests.wire.conditions import answered


@pytest.fixture
async def here(server: Valkey, postgres: Postgres) -> AsyncIterator[World]:
    """A planner."""
    async with world(server.url, database(postgres)) as made:
        yield made


async def _seen(here: World, user: str, channel: str) -> int:
    table = here.tables.user_cluster_hwm
    query = sa.select(table.c.last_seq).where(table.c.user_id == user, table.c.channel_id == channel)
    return int((await here.sql(query))[0][0])


async def _current(here: World, channel: str) -> int:
    table = here.tables.channels
    return int((await here.sql(sa.select(table.c.current_seq).where(table.c.channel_id == channel)))[0][0])


@pytest.fixture
def naive(here: World, key: str) -> NaiveFeed:
    """The naive implementation, on the same server."""
    return NaiveFeed(here.store, key)


async def test_f1_what_arrives_during_a_run_stays_new(here: World, naive: NaiveFeed) -> None:
    """A naive run marks as seen what arrived in the meantime, and loses it; ours clusters it next time."""
    await naive.publish("art", 3)
    await naive.rebuild("ann", "art", meanwhile=lambda: naive.publish("art", 4))
    assert await naive.pending("ann", "art") == 0  # and four of them are never looked at
    assert await naive.clustered("ann") == [1, 2, 3]

    await here.add_user("ann", "art")
    await here.publish("art", 7)

    async def build(dataset: Dataset) -> Any:
        read = await here.build(dataset)
        await here.publish("art", 4)  # in the meantime
        return read

    run = await here.planner.rebuild("ann", build)
    assert (run.pending, run.left, await _seen(here, "ann", "art")) == (7, 4, 7)
    await here.tick()
    assert here.tasks == [("ann", "novelty", 4)]
    await here.work()
    first, second = await here.versions("ann")
    assert (len(first), sorted(set(second) - set(first))) == (7, [8, 9, 10, 11])


async def test_f2_a_channel_that_is_marked_again_stays(here: World) -> None:
    """A channel that gets an insight while a tick examines it is examined by the next one."""
    call = here.store.client("queue").call
    await call("ZADD", "naive", "1", "art")
    read = await call("ZRANGE", "naive", 0, -1)
    await call("ZADD", "naive", "2", "art")  # in the meantime
    await call("ZREM", "naive", *read)
    assert await call("ZCARD", "naive") == 0  # the second mark is lost
    await call("UNLINK", "naive")

    await here.add_user("ann", "art")
    await here.publish("art", 3)

    async def enqueue(tasks: Sequence[Task]) -> None:
        await here.publish("art")  # after the channels were read, before they are removed

    await here.planner.tick(enqueue)
    assert await here.dirty() == {"art"}


async def test_f2_marks_differ_however_fast_they_come(here: World) -> None:
    """Two marks of one channel always differ, so the second is never mistaken for the first."""
    dirty = here.store[here.declared.keys.dirty]
    insight = await here.planner.publish("art")
    scores: list[float | None] = []

    async def mark() -> None:
        await here.planner.mark_dirty(insight)
        scores.append(await dirty.score("art"))

    for _ in range(50):
        await mark()
    assert scores == sorted(set(scores), key=lambda score: score or 0.0)
    # Also where the server's clock was set back.
    ahead = (scores[-1] or 0.0) + 1e12
    await dirty.add({"art": ahead})
    await mark()
    assert scores[-1] == ahead + 1


async def test_f4_a_run_longer_than_its_mark_is_decided_by_the_fence(here: World, naive: NaiveFeed) -> None:
    """A naive run that outlasts its mark is done and saved twice; SQL refuses the older one of ours."""
    await naive.publish("art", 3)
    assert await naive.enqueue("ann", 50)

    async def for_too_long() -> None:
        while await naive.marked("ann"):
            await asyncio.sleep(0.01)
        assert await naive.enqueue("ann", 50)  # the mark has ended, the run has not
        await naive.rebuild("ann", "art")

    assert await naive.rebuild("ann", "art", meanwhile=for_too_long) == 2
    assert await naive.clustered("ann") == [1, 2, 3, 1, 2, 3]

    await here.add_user("ann", "art")
    await here.publish("art", 3)
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(dataset: Dataset) -> Any:
        reading.set()
        await go_on.wait()
        return await here.build(dataset)

    slow = asyncio.create_task(here.planner.rebuild("ann", slowly))
    await reading.wait()
    # While it holds the lock, a second task finds it busy.
    assert (await here.rebuild("ann")).outcome == "busy"
    # Its lock is gone (its lease ended, its mark did): a second one begins, and saves.
    await here.store[here.declared.keys.user_lock.keyspace].delete(user_id="ann")
    await here.store[here.declared.keys.enqueued].delete(user_id="ann")
    other = with_resources(here.store, {here.declared: here.engine})[here.declared]
    quick = await other.rebuild("ann", here.build)
    go_on.set()
    assert (quick.outcome, quick.version) == ("rebuilt", 1)
    assert (await slow).outcome == "overtaken"
    assert len(await here.versions("ann")) == 1
    assert (await here.row("ann")).cluster_version == 1


async def test_f5_a_new_subscriber_has_the_windows_novelty(here: World, naive: NaiveFeed) -> None:
    """History before the window is no novelty for a new subscriber; the naive one counts all of it."""
    await naive.publish("art", 40)
    assert await naive.pending("ann", "art") == 40
    await naive.rebuild("ann", "art")
    assert len(await naive.clustered("ann")) == 40

    await here.publish("art", 40)
    insights = here.tables.insights
    await here.sql(sa.update(insights).where(insights.c.seq <= 38).values(ts=sa.func.now() - 60 * DAY))
    await here.planner.enroll("ann", plan="free")
    await here.planner.subscribe("ann", "art")
    assert await _seen(here, "ann", "art") == 38
    run = await here.rebuild("ann", force=True)
    assert run.pending == 2
    # Also where the row is missing, as after an import by hand.
    await here.planner.enroll("bob", plan="free")
    await here.sql(sa.insert(here.tables.subscriptions).values(user_id="bob", channel_id="art"))
    assert (await here.rebuild("bob", force=True)).pending == 2


async def test_f5_a_returning_subscriber_does_not_get_the_same_again(here: World) -> None:
    """A user who unsubscribes and subscribes again keeps the high-water mark."""
    await here.add_user("ann", "art")
    await here.publish("art", 5)
    await here.rebuild("ann")
    await here.planner.unsubscribe("ann", "art")
    await here.publish("art")
    await here.planner.subscribe("ann", "art")
    assert await _seen(here, "ann", "art") == 5


async def test_f6_redis_only_moves_forward(here: World) -> None:
    """A late mark does not move a channel's seq back, as a plain write does."""
    insights = [await here.planner.publish("art") for _ in range(3)]
    channels = here.store[here.declared.keys.channels]
    await here.planner.mark_dirty(insights[0])
    state = await channels.get(channel_id="art")
    assert state is not None
    assert state.current_seq == 3
    await channels.update({"current_seq": insights[0].seq}, channel_id="art")
    state = await channels.get(channel_id="art")
    assert state is not None
    assert state.current_seq == 1  # the naive way: two insights are gone from the count


async def test_f6_seqs_have_no_gap_and_no_twin(here: World) -> None:
    """Concurrently published insights, some of them rolled back, are committed as 1, 2, 3, ..."""

    async def one(number: int) -> None:
        async with here.engine.connect() as sql:
            await here.planner.publish_in(sql, "art", text=str(number))
            await (sql.rollback() if number % 4 == 0 else sql.commit())

    await asyncio.gather(*(one(number) for number in range(40)))
    insights = here.tables.insights
    seqs = [seq for (seq,) in await here.sql(sa.select(insights.c.seq).order_by(insights.c.seq))]
    assert seqs == list(range(1, 31))
    assert await _current(here, "art") == 30


async def test_f7_a_tick_that_dies_leaves_everything_to_the_next(here: World) -> None:
    """A tick that dies while it enqueues leaves channels dirty; popping them first loses them."""
    await here.add_user("ann", "art")
    await here.publish("art", 3)

    class Killed(BaseException):
        pass

    async def die(tasks: Sequence[Task]) -> None:
        raise Killed

    with pytest.raises(Killed):
        await here.planner.tick(die)
    assert await here.dirty() == {"art"}
    await here.tick()
    assert here.users() == ["ann"]

    call = here.store.client("queue").call
    await call("ZADD", "naive", "1", "art")
    await call("ZPOPMIN", "naive", 10)  # and then it dies
    assert await call("ZCARD", "naive") == 0


@pytest.mark.parametrize("answers", [1, 7, 13, 17])
async def test_f7_redis_dying_in_mid_tick_loses_no_candidate(postgres: Postgres, answers: int) -> None:
    """Redis dies after some of its 22 answers: naive marks are lost with it; ours continues from SQL."""
    with embedded.valkey() as victim:
        async with world(victim.url, database(postgres)) as here:
            everybody = ids("u", 3)
            for user in everybody:
                await here.add_user(user, "art")
            await here.publish("art", 3)
            naive = here.store.client("queue")
            await naive.call("ZADD", "naive", "1", "art")
            killed = asyncio.Event()

            async def kill() -> None:
                await asyncio.to_thread(victim.kill)
                killed.set()

            client: Any = Interrupted(here.store.client(), kill, after=answers)
            store = Store({"cache": client, "queue": client}, *here.store.catalogues)
            here.planner = with_resources(store, {here.declared: here.engine})[here.declared]
            tick = await here.tick()
            assert killed.is_set()
            assert (tick.mode, sorted(here.users())) == ("sql", everybody)  # each of them once
            await here.work()
            await here.publish("art", 3)  # during the outage

            await asyncio.to_thread(victim.restart)
            await answered(lambda: here.store.call("PING"))
            assert await naive.call("ZCARD", "naive") == 0  # and what was dirty is lost
            back = await here.tick()
            assert (back.mode, sorted(here.users())) == ("redis", everybody)
            await here.work()
            for user in everybody:
                assert [len(version) for version in await here.versions(user)] == [3, 6]


async def _crowd(here: World, users: list[str], channels: list[str]) -> None:
    """Create users subscribed to all these channels, just clustered, with everything seen."""
    pairs = "FROM unnest(CAST(:users AS text[])) u, unnest(CAST(:channels AS text[])) c"
    everybody = "FROM unnest(CAST(:users AS text[])) u"
    columns = "user_id, plan, last_active_at, last_clustered_at"
    statements = (
        f"INSERT INTO user_stats ({columns}) SELECT u, 'free', now(), now() {everybody}",
        f"INSERT INTO subscriptions SELECT u, c {pairs}",
        f"INSERT INTO user_cluster_hwm SELECT u, c, 1 {pairs}",
    )
    async with here.engine.begin() as sql:
        for statement in statements:
            given = {"users": users, "channels": channels}
            bound = {name: value for name, value in given.items() if f":{name}" in statement}
            await sql.execute(sa.text(statement), bound)


async def _one_at_a_time(
    here: World, client: Counting, users: list[str], channels: list[str]
) -> dict[str, int]:
    """The naive implementation: a round trip for each user, and two for each of their channels."""
    pending = dict.fromkeys(users, 0)
    for user in users:
        await client.call("HGETALL", here.declared.keys.users.key(user_id=user))
        for channel in channels:
            seen = await client.call("HGET", here.declared.keys.marks.key(user_id=user), channel)
            seq = await client.call(
                "HGET", here.declared.keys.channels.key(channel_id=channel), "current_seq"
            )
            pending[user] += int(seq) - int(seen)
    return pending


@pytest.mark.parametrize("place", ["server", "cluster"])
async def test_f8_round_trips_do_not_grow_with_users_or_channels(
    request: pytest.FixtureRequest, place: str, postgres: Postgres
) -> None:
    """A tick takes at most ten round trips, for 300 users of 20 channels as for 3 of one; naively, 12,300."""
    taken: dict[int, Counting] = {}
    for count, channels in ((3, ids("c", 1)), (300, ids("c", 20))):
        url = request.getfixturevalue(place).url
        async with world(url, database(postgres)) as here:
            users = ids("u", count)
            for channel in channels:
                await here.publish(channel)
            await _crowd(here, users, channels)
            await here.tick()  # copies are made
            for channel in channels:
                await here.publish(channel)
            taken[count] = client = Counting(here.store.client())
            store = Store({"cache": client, "queue": client}, *here.store.catalogues)
            tick = await with_resources(store, {here.declared: here.engine})[here.declared].tick(here.enqueue)
            assert (tick.examined, tick.mode) == (count, "redis")
            await store.aclose()
            assert sorted(here.users()) == (sorted(users) if len(channels) >= 3 else [])

            naive = Counting(here.store.client())
            some = users[:30]
            pending = await _one_at_a_time(here, naive, some, channels)
            assert naive.trips == len(some) * (1 + 2 * len(channels))
            assert set(pending.values()) == {len(channels)}
    assert taken[3].trips <= taken[300].trips <= taken[3].trips + 2  # marking and stamping who is due
    # The tick's lock, dirty channels, states, marks, channels' seqs; those two; settling, giving the lock up.
    assert taken[300].trips <= 10
    # For each user a state and marks, twice more if handed over; for each channel its mark and its copy.
    assert taken[300].commands <= 4 * 300 + 2 * 20 + 10
