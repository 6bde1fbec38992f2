"""The planner's two sources: they find the same users, and one takes over from the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.planner import TickLimits, UserFacts, decide
from ephemera.wire import NodeClient
from tests.patterns.planner_world import DAY, HOUR, PLANS, World, database, each, ids, world
from tests.resources import with_resources
from tests.wire.conditions import answered, eventually

_NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
async def here(server: Valkey, postgres: Postgres) -> AsyncIterator[World]:
    """A planner."""
    async with world(server.url, database(postgres)) as made:
        yield made


async def _random_world(here: World, seed: int) -> dict[str, UserFacts]:
    """Create users of every kind that were never examined; return the facts each should have."""
    chance = random.Random(seed)
    channels = ids("c", 12)
    seqs = {channel: chance.randrange(0, 6) for channel in channels}
    now = int((await here.sql(sa.select(sa.extract("epoch", sa.func.now()))))[0][0]) * 1000
    facts: dict[str, UserFacts] = {}
    async with here.engine.begin() as sql:
        for channel, seq in seqs.items():
            values = {"channel_id": channel, "current_seq": seq, "last_insight_ts": sa.func.now()}
            await sql.execute(sa.insert(here.tables.channels).values(**values))
        for user in ids("u", 60):
            pending = 0
            for channel in chance.sample(channels, chance.randrange(1, 6)):
                seen = chance.randrange(0, seqs[channel] + 1)
                pending += seqs[channel] - seen
                pair = {"user_id": user, "channel_id": channel}
                await sql.execute(sa.insert(here.tables.subscriptions).values(**pair))
                await sql.execute(sa.insert(here.tables.user_cluster_hwm).values(**pair, last_seq=seen))
            ago = [chance.choice((0, 1, 12, 23, 25, 24 * 6, 24 * 8)) for _ in range(3)]
            clustered, active, enqueued = (now - hours * 3_600_000 for hours in ago)
            facts[user] = UserFacts(chance.choice(list(PLANS)), pending, clustered, active, enqueued)
            moments = dict(
                zip(
                    ("last_clustered_at", "last_active_at", "last_enqueued_at"),
                    (sa.func.to_timestamp(at / 1000) for at in facts[user][2:]),
                    strict=True,
                )
            )
            row = {"user_id": user, "plan": facts[user].plan, **moments}
            await sql.execute(sa.insert(here.tables.user_stats).values(**row))
    return facts


@pytest.mark.parametrize("seed", range(4))
async def test_both_sources_find_the_same_users(server: Valkey, postgres: Postgres, seed: int) -> None:
    """With random data, a cold Redis, a warm Redis and SQL alone all enqueue exactly the due users."""
    found: dict[str, set[str]] = {}
    for way, url in (("cold", server.url), ("warm", server.url), ("sql", _NOWHERE)):
        async with world(url, database(postgres), required=False) as here:
            facts = await _random_world(here, seed)
            if way == "warm":
                marked = sa.func.now() + HOUR  # so that they are looked at, and left
                await here.sql(sa.update(here.tables.user_stats).values(enqueued_until=marked))
                await here.tick()
                assert here.tasks == []
                free = {"enqueued_until": None, "recheck_at": None}
                await here.sql(sa.update(here.tables.user_stats).values(**free))
                for node in here.store.client().nodes():
                    for user in facts:
                        await node.call("UNLINK", here.declared.keys.enqueued.key(user_id=user))
                await here.planner.mark_dirty(*[await here.planner.publish(c) for c in ids("x", 1)])
                await here.sql(sa.update(here.tables.planner_state).values(swept_at=sa.func.now() - DAY))
            tick = await here.tick()
            at = tick.at
            found[way] = set(here.users())
            assert each(here.users()) == dict.fromkeys(found[way], 1)
            assert tick.mode == ("sql" if way == "sql" else "redis")
            verdicts = {u: decide(PLANS[f.plan], f, at) for u, f in facts.items()}
            assert found[way] == {user for user, verdict in verdicts.items() if verdict.reason}
            assert {task.user_id: task[1:] for task in here.tasks} == {
                user: (verdicts[user].reason, facts[user].pending) for user in found[way]
            }
    assert found["cold"] == found["warm"] == found["sql"] != set()


async def test_redis_down_and_back(postgres: Postgres) -> None:
    """Ticks and runs use SQL while Redis is down; on its return the dirty channels are rebuilt."""
    with embedded.valkey() as victim:
        async with world(victim.url, database(postgres)) as here:
            for user in ("ann", "bob"):
                await here.add_user(user, "art")
            await asyncio.to_thread(victim.kill)
            await eventually(lambda: not here.store.client().up)
            await here.publish("art", 3)
            tick = await here.tick()
            assert (tick.mode, sorted(here.users())) == ("sql", ["ann", "bob"])
            assert "not connected" in tick.problem
            assert here.planner.status.mode == "sql"
            assert [run.outcome for run in await here.work()] == ["rebuilt", "rebuilt"]
            assert here.planner.status.missed_by_redis == 3
            await here.publish("art", 3)  # no tick runs any more while it is down
            await asyncio.to_thread(victim.restart)
            await answered(lambda: here.store.call("PING"))
            tick = await here.tick()
            assert (tick.mode, tick.dirty, sorted(here.users())) == ("redis", 1, ["ann", "bob"])
            assert here.planner.status.switches == 2
            assert [run.outcome for run in await here.work()] == ["rebuilt", "rebuilt"]
            assert [len(version) for version in await here.versions("ann")] == [3, 6]
            # Copies are made again, and read from then on.
            await here.publish("art")
            await here.tick()
            assert await here.store[here.declared.keys.marks].get_all(user_id="ann") == {"art": 6}


async def test_a_hung_redis(postgres: Postgres) -> None:
    """A tick on a server that stops answering continues from SQL."""
    with embedded.valkey() as victim:
        async with world(victim.url, database(postgres)) as here:
            await here.add_user("ann", "art")
            await here.publish("art", 3)
            victim.pause()
            tick = await here.tick()
            victim.resume()
            assert (tick.mode, here.users()) == ("sql", ["ann"])


@pytest.mark.standalone("it empties one server")
async def test_an_emptied_redis_is_noticed(here: World) -> None:
    """Channels whose marks vanished are examined within `sweep_every`."""
    await here.add_user("ann", "art")
    await here.publish("art", 3)
    await here.store.call("FLUSHALL")
    await here.tick()
    assert here.tasks == []
    await here.sql(sa.update(here.tables.planner_state).values(swept_at=sa.func.now() - HOUR))
    await here.tick()
    assert here.users() == ["ann"]


@pytest.mark.standalone("it empties one server")
async def test_a_reconnect_between_two_ticks_triggers_a_sweep(here: World) -> None:
    """Marks that were lost with a dead master are restored by the next tick, although no tick failed."""
    await here.add_user("ann", "art")
    await here.tick()
    await here.publish("art", 3)
    await here.store.call("FLUSHALL")
    queue = here.store.client("queue")
    assert isinstance(queue, NodeClient)
    connected = queue.connection_count
    queue.link.drop("its master died")
    await eventually(lambda: queue.connection_count > connected)
    await here.tick()
    assert here.users() == ["ann"]


async def test_a_new_planner_sweeps_first(here: World) -> None:
    """A new process rebuilds the dirty channels first, so an insight that was never marked is not lost."""
    await here.add_user("ann", "art")
    async with here.engine.begin() as sql:
        for _ in range(3):
            await here.planner.publish_in(sql, "art")  # and its publisher dies before the note
    await here.tick()
    assert here.tasks == []
    await with_resources(here.store, {here.declared: here.engine})[here.declared].tick(here.enqueue)
    assert here.users() == ["ann"]


async def test_sql_continues_where_it_was(postgres: Postgres) -> None:
    """Without Redis a tick takes a limited number of channels, and the next one continues after them."""
    async with world(
        _NOWHERE, database(postgres), limits=TickLimits(max_dirty_channels=2), required=False
    ) as here:
        for number in range(5):
            await here.add_user(f"u{number}", f"c{number}")
        await here.sql(sa.update(here.tables.planner_state).values(examined_at=sa.func.clock_timestamp()))
        for number in range(5):
            await here.publish(f"c{number}", 3)
        ticks = [await here.tick() for _ in range(4)]
        assert sorted(here.users()) == ids("u", 5)
        assert [tick.full for tick in ticks] == [True, True, False, False]
        assert [tick.enqueued for tick in ticks] == [2, 2, 1, 0]


async def test_two_planners_without_redis(postgres: Postgres) -> None:
    """One of two concurrent ticks leads without Redis, too."""
    async with world(_NOWHERE, database(postgres), required=False) as here:
        await here.add_user("ann", "art")
        await here.publish("art", 3)
        other = with_resources(here.store, {here.declared: here.engine})[here.declared]

        async def in_the_meantime(tasks: object) -> None:
            tick = await asyncio.create_task(other.tick(here.enqueue))
            assert tick.not_leader

        assert (await here.planner.tick(in_the_meantime)).enqueued == 1
        assert here.tasks == []


async def test_two_runs_without_redis(postgres: Postgres) -> None:
    """Without Redis the user's row excludes a second run until the first one's deadline."""
    async with world(_NOWHERE, database(postgres), required=False) as here:
        await here.add_user("ann", "art")
        await here.publish("art", 3)
        endings = []

        async def build(dataset: object) -> list[list[int]]:
            endings.append((await asyncio.create_task(here.rebuild("ann"))).outcome)
            await here.change("ann", running_until=sa.func.now())
            endings.append((await asyncio.create_task(here.rebuild("ann"))).outcome)
            return [[]]

        run = await here.planner.rebuild("ann", build)
        assert (endings, run.outcome) == (["busy", "rebuilt"], "overtaken")
        assert len(await here.versions("ann")) == 1
