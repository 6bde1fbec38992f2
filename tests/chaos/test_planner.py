"""The planner when Redis, planners and workers die: no user is lost, and nothing is clustered twice."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from ephemera import connect
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.planner import Dataset, Task
from tests.chaos.planner_worker import BEFORE
from tests.patterns.planner_world import HOUR, World, database, each, ids, world
from tests.resources import with_resources
from tests.wire.conditions import answered

_RUN_STEPS = ["begin", "build", "save", "commit", "follow", "invalidated"]
_TICK_STEPS = [step for step in BEFORE if step.startswith("tick.")] + ["tick.enqueue"]


@pytest.fixture
async def here(victim: Valkey, postgres: Postgres) -> AsyncIterator[World]:
    """A planner whose server may be killed, with five users who are due."""
    async with world(victim.url, database(postgres)) as made:
        for user in ids("u", 5):
            await made.add_user(user, "art")
        await made.publish("art", 3)
        yield made


async def _killed_at(step: str, here: World, redis: str, user: str = "u0") -> list[str]:
    """Kill a process at a step; return its output."""
    url = here.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.chaos.planner_worker", redis, url, step, user]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    said: list[str] = []
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            while (line := (await process.stdout.readline()).decode().strip()) != "here":
                assert line or not process.stdout.at_eof(), f"it ended before {step}: {said}"
                said.append(line)
    finally:
        process.kill()
        await process.wait()
    return said


async def _marks_end(here: World) -> None:
    """Expire all marks and leases in SQL, as 300 s would."""
    users = here.tables.user_stats
    ago = sa.func.clock_timestamp() - HOUR
    for column in ("enqueued_until", "recheck_at", "running_until", "last_enqueued_at", "retry_at"):
        await here.sql(sa.update(users).where(users.c[column].is_not(None)).values({column: ago}))


async def _time_passes(here: World) -> None:
    """Expire all marks and leases of dead processes."""
    users = here.tables.user_stats
    await _marks_end(here)
    if here.store.client().up:
        for (user,) in await here.sql(sa.select(users.c.user_id)):
            await here.store[here.declared.keys.enqueued].delete(user_id=user)
            await here.store[here.declared.keys.user_lock.keyspace].delete(user_id=user)
        await here.store[here.declared.keys.tick_lock.keyspace].delete()


async def _all_clustered_once(here: World, count: int = 3) -> None:
    """Every user has one version, of all insights."""
    for user in ids("u", 5):
        assert [len(version) for version in await here.versions(user)] == [count], user


@pytest.mark.parametrize("step", _RUN_STEPS)
async def test_a_worker_killed_at_any_step(here: World, victim: Valkey, step: str) -> None:
    """The user of a dead worker is enqueued again if nothing was saved, and only then."""
    await here.tick()
    await _killed_at(step, here, victim.url)
    saved = step in ("follow", "invalidated")
    assert len(await here.versions("u0")) == saved
    assert (await here.work())[0].outcome in ("busy", "nothing new", "rebuilt")
    await _time_passes(here)
    await here.tick()
    await here.work()
    await _all_clustered_once(here)
    assert (await here.tick()).candidates == 0


@pytest.mark.parametrize("step", _TICK_STEPS)
async def test_a_planner_killed_at_any_step(here: World, victim: Valkey, step: str) -> None:
    """What a dead planner did not enqueue the next one does, at the latest when marks expire."""
    said = await _killed_at(step, here, victim.url)
    enqueued = [line.partition(" ")[2] for line in said]
    assert sorted(enqueued) == (ids("u", 5) if step in ("tick.clear", "tick.end") else [])
    await _time_passes(here)
    await here.tick()
    assert sorted(here.users()) == ids("u", 5)  # no worker ran for those enqueued before
    await here.work()
    await _all_clustered_once(here)
    assert (await here.tick()).candidates == 0


@pytest.mark.patient
@pytest.mark.parametrize("step", ["begin", "candidates", "claim", "update", "enqueue", "finish"])
async def test_redis_killed_in_mid_tick_and_back(
    here: World, victim: Valkey, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick that loses Redis at any step continues from SQL: all are enqueued and clustered once."""
    killed = asyncio.Event()

    async def kill() -> None:
        if not killed.is_set():
            killed.set()
            await asyncio.to_thread(victim.kill)

    def killing(name: str) -> Any:
        real = getattr(target, name)

        async def first_killed(*args: Any, **options: Any) -> Any:
            await kill()
            return await real(*args, **options)

        return first_killed

    async def enqueue(tasks: Sequence[Task]) -> None:
        await here.enqueue(tasks)
        if step == "enqueue":
            await kill()

    target: Any = here.planner._redis if step in ("claim", "finish") else here.planner._working_set
    name = {"begin": "dirty", "candidates": "high_water_marks", "update": "update_users"}.get(step, step)
    if step != "enqueue":
        monkeypatch.setattr(target, name, killing(name))
    tick = await here.planner.tick(enqueue)
    assert killed.is_set()
    assert tick.mode == "sql"
    assert each(here.users()) == dict.fromkeys(ids("u", 5), 1)
    await here.work()
    await asyncio.to_thread(victim.restart)
    await answered(lambda: here.store.call("PING"))
    back = await here.tick()
    assert (back.mode, back.dirty, here.tasks) == ("redis", 1, [])
    await _all_clustered_once(here)
    await here.publish("art", 3)
    await here.tick()
    await here.work()
    for user in ids("u", 5):
        assert [len(version) for version in await here.versions(user)] == [3, 6]


async def test_two_workers_on_one_user(here: World, victim: Valkey) -> None:
    """Of six processes that rebuild the same user, one saves, and SQL has one version."""
    url = here.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.chaos.planner_worker", victim.url, url, "none", "u0"]
    processes = [
        await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    said = [((await process.communicate())[0]).decode().strip() for process in processes]
    assert said.count("rebuilt") == 1
    assert set(said) <= {"rebuilt", "busy", "nothing new", "overtaken"}
    assert [len(version) for version in await here.versions("u0")] == [3]


class _Chaos:
    """Publishers, planners and workers on their own stores, while Redis restarts."""

    def __init__(self, here: World, victim: Valkey, sql: str) -> None:
        self.here, self.victim, self.sql = here, victim, sql
        self.queue: asyncio.Queue[str] = asyncio.Queue()
        self.over = asyncio.Event()

    async def enqueue(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if random.random() < 0.9:  # a lossy queue
                self.queue.put_nowait(task.user_id)

    async def build(self, dataset: Dataset) -> Any:
        await asyncio.sleep(random.uniform(0, 0.05))
        if random.random() < 0.1:
            raise OSError("the clusterizer is down")
        return {span.channel_id: [span.seen, span.upto] for span in dataset.spans}

    async def part(self, role: str) -> None:
        """Do the work of one process, until the test is over."""
        engine = create_async_engine(self.sql)
        async with connect(self.victim.url, *self.here.store.catalogues, required=False) as store:
            planner = with_resources(store, {self.here.declared: engine})[self.here.declared]
            while not self.over.is_set():
                if role == "publish":
                    await planner.publish(f"c{random.randrange(4)}")
                    await planner.touch(f"u{random.randrange(8)}")
                    await asyncio.sleep(0.01)
                elif role == "tick":
                    await planner.tick(self.enqueue)
                    await asyncio.sleep(0.03)
                else:
                    with suppress(TimeoutError, OSError):
                        async with asyncio.timeout(0.2):
                            user = await self.queue.get()
                        await planner.rebuild(user, self.build)
        await engine.dispose()

    async def kills(self) -> None:
        """Redis dies and restarts empty, until enough was saved to draw a conclusion.

        Each time the marks end: else all users would soon wait, each for a task that was lost.
        """
        for kill in count():
            if kill >= 4 and await self.saved() > 20:
                break
            await asyncio.sleep(random.uniform(0.3, 0.9))  # a random moment is the point of it
            await asyncio.to_thread(self.victim.kill)
            await _marks_end(self.here)
            await asyncio.sleep(random.uniform(0.1, 0.6))
            await asyncio.to_thread(self.victim.restart)
        self.over.set()

    async def saved(self) -> int:
        """Return the number of versions."""
        clusters = self.here.tables.clusters
        [(number,)] = await self.here.sql(sa.select(sa.func.count()).select_from(clusters))
        return int(number)


async def test_while_redis_restarts(victim: Valkey, postgres: Postgres) -> None:
    """With a lossy queue, failing runs and an emptied Redis, no insight is missed or clustered twice."""
    random.seed(7)
    sql = database(postgres)
    async with world(victim.url, sql) as here:
        for number in range(8):
            await here.add_user(
                f"u{number}", *(f"c{channel}" for channel in range(4) if channel != number % 4)
            )
        chaos = _Chaos(here, victim, sql)
        roles = ("publish", "publish", "tick", "tick", "work", "work", "work")
        async with asyncio.timeout(100):
            await asyncio.gather(chaos.kills(), *map(chaos.part, roles))
        await answered(lambda: here.store.call("PING"))
        for _ in range(2):
            await _time_passes(here)
            await here.tick()
            for user in here.users():
                await here.planner.rebuild(user, _spans)
            here.tasks = []
        assert (await here.tick()).candidates == 0
        await _no_gap_and_no_overlap(here)


async def _spans(dataset: Dataset) -> Any:
    return {span.channel_id: [span.seen, span.upto] for span in dataset.spans}


async def _no_gap_and_no_overlap(here: World) -> None:
    t = here.tables
    saved = await here.sql(
        sa.select(t.clusters.c.user_id, t.clusters.c.cluster_version, t.clusters.c.clusters).order_by(
            t.clusters.c.user_id, t.clusters.c.cluster_version
        )
    )
    upto: defaultdict[tuple[str, str], int] = defaultdict(int)
    for user, _, spans in saved:
        for channel, (seen, last) in spans.items():
            assert seen == upto[user, channel], f"{user}, {channel}: clustered twice, or left out"
            upto[user, channel] = last
    seqs = dict(await here.sql(sa.select(t.channels.c.channel_id, t.channels.c.current_seq)))
    for number in range(8):
        pending = sum(
            seqs[f"c{channel}"] - upto[f"u{number}", f"c{channel}"]
            for channel in range(4)
            if channel != number % 4
        )
        assert pending < 3, f"u{number} was lost with {pending} insights"
