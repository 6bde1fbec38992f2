"""Graphs whose processes and servers die: they continue at their node, and no effect is repeated."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from ephemera import connect
from ephemera.embedded import Cluster, Postgres, Valkey
from ephemera.errors import ConnectionFailed, Unavailable
from ephemera.patterns.jobs import BoundJobs, Run
from tests.adapters.graph_fixtures import CATALOGUE, STEPS, THREADS, State, chain, config, write_slide
from tests.adapters.graph_job_fixtures import MOMENTS, present
from tests.patterns.job_fixtures import EFFECTS, effects
from tests.patterns.job_store import attempt_by, lapse, opened
from tests.patterns.wait_for_jobs import until

ONCE = {f"node:{number}": 1 for number in range(1, STEPS + 1)}
SLIDES = [f"whales {number}" for number in range(1, STEPS + 1)]


@pytest.fixture
def sql(postgres: Postgres) -> str:
    """A database for these tests."""
    return postgres.database("test_langgraph_faults")


@pytest.fixture
async def jobs(victim: Valkey, sql: str) -> AsyncIterator[BoundJobs]:
    """Jobs on a server that may be killed."""
    async with opened(victim.url, sql) as bound:
        yield bound
    MOMENTS.clear()


async def process(*arguments: str) -> tuple[int, str]:
    """The outcome of a process that runs a graph."""
    command = [sys.executable, "-m", "tests.chaos.killed_graph", *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout.strip() or done.stderr


async def free(jobs: BoundJobs, job_id: str) -> None:
    """Expire a job's lease, so that the next worker can claim it."""
    await lapse(jobs, job_id)


async def test_a_killed_workers_graph_continues_in_another_process(
    jobs: BoundJobs, victim: Valkey, sql: str
) -> None:
    """After SIGKILL behind node 7 of 15, another process starts at node 8, and each effect exists once."""
    job_id = await jobs.enqueue(present, "whales")
    assert (await process("job", victim.url, sql, job_id, "in:8"))[0] == -signal.SIGKILL
    assert len(await effects(jobs.engine, job_id)) == 7
    await free(jobs, job_id)
    assert await process("job", victim.url, sql, job_id, "never") == (0, "done")
    assert (await jobs.get(job_id)).result == SLIDES
    assert await effects(jobs.engine, job_id) == ONCE
    chosen = select(EFFECTS.c.fence).where(EFFECTS.c.job_id == job_id).order_by(EFFECTS.c.id)
    async with jobs.engine.connect() as connection:
        fences = list((await connection.execute(chosen)).scalars())
    assert fences == [1] * 7 + [2] * 8


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("script", ["get:1", "put:1", "put:9", "write:8", "put:17"])
async def test_killed_at_any_moment_a_careful_graph_does_everything_once(
    jobs: BoundJobs, victim: Valkey, sql: str, when: str, script: str
) -> None:
    """SIGKILL before and after each kind of write: the next process completes the job, each effect once."""
    job_id = await jobs.enqueue(present, "whales", True)
    assert (await process("job", victim.url, sql, job_id, f"{when}:{script}"))[0] == -signal.SIGKILL
    await free(jobs, job_id)
    assert await attempt_by(jobs, "next").run(job_id) == "done"
    assert (await jobs.get(job_id)).result == SLIDES
    assert await effects(jobs.engine, job_id) == ONCE


@pytest.mark.parametrize("where", ["server", "cluster"])
async def test_a_killed_graph_continues_in_its_thread(
    request: pytest.FixtureRequest, where: str, tmp_path: Path
) -> None:
    """Without a job, on one server and on a cluster, the next process starts at node 8."""
    running: Valkey | Cluster = request.getfixturevalue(where)
    log, thread_id = tmp_path / "nodes", str(uuid4())
    died = await process("thread", running.url, str(log), thread_id, "in:8")
    assert died[0] == -signal.SIGKILL
    assert log.read_text().split() == [str(number) for number in range(1, 8)]
    assert await process("thread", running.url, str(log), thread_id, "never") == (0, str(STEPS))
    assert log.read_text().split() == [str(number) for number in range(1, STEPS + 1)]


async def test_a_jobs_graph_continues_without_redis_and_with_an_empty_one(
    jobs: BoundJobs, victim: Valkey
) -> None:
    """Redis dies after node 4 and restarts empty after node 9: the job ends with each effect once."""
    job_id = await jobs.enqueue(present, "whales")
    saved: dict[bytes, bytes] = {}

    async def stop(_: Run) -> None:
        victim.kill()

    async def start(_: Run) -> None:
        victim.restart()
        await until(_up)

    async def _up() -> bool:
        return jobs.store.client("queue").up

    async def look(run: Run) -> None:
        saved.update(await jobs.store.call("HGETALL", run.checkpoint._key))

    MOMENTS.update({5: stop, 10: start, 12: look})
    assert await attempt_by(jobs).run(job_id) == "done"
    assert (await jobs.get(job_id)).result == SLIDES
    assert await effects(jobs.engine, job_id) == ONCE
    assert any(name.startswith(b"_graph:checkpoint:") for name in saved)


async def test_state_lost_by_redis_is_restored_from_sql(jobs: BoundJobs, victim: Valkey, sql: str) -> None:
    """After the worker is killed and Redis emptied, the graph starts again, and repeats no recorded step."""
    job_id = await jobs.enqueue(present, "whales", True)
    assert (await process("job", victim.url, sql, job_id, "in:8"))[0] == -signal.SIGKILL
    victim.kill()
    victim.restart()
    await until(lambda: _answers(jobs))
    await free(jobs, job_id)
    assert await attempt_by(jobs, "next").run(job_id) == "done"
    assert (await jobs.get(job_id)).result == SLIDES
    assert await effects(jobs.engine, job_id) == ONCE


async def _answers(jobs: BoundJobs) -> bool:
    return jobs.store.client("queue").up


async def test_a_graph_without_a_job_fails_with_redis(victim: Valkey) -> None:
    """The graph raises while Redis is down or hangs, and continues where it was afterwards."""
    where, fault = config(), {"at": 3}

    async def node(number: int, state: State) -> dict[str, Any]:
        if number == fault["at"]:
            fault["at"] = 0
            victim.pause()
        return await write_slide(number, state)

    async with connect(victim.url, CATALOGUE) as store:
        graph = chain(node, 5).compile(checkpointer=store[THREADS])
        with pytest.raises(ConnectionFailed):
            await graph.ainvoke({"topic": "whales", "slides": []}, where, durability="sync")
        with pytest.raises(Unavailable):
            await graph.aget_state(where)
        victim.resume()

        async def back() -> bool:
            return store.client().up

        await until(back)
        made = await graph.ainvoke(None, where)
        assert made["slides"] == SLIDES[:5]
