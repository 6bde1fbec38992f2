"""The graph of a job: its state is in the job's checkpoint, fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest

from ephemera.adapters.langgraph import JobSaver
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidValue, JobLost
from ephemera.patterns.jobs import BoundJobs, Run
from tests.adapters.graph_fixtures import STEPS, chain, config, write_slide
from tests.adapters.graph_job_fixtures import MOMENTS, present
from tests.patterns.job_fixtures import JOBS, effects
from tests.patterns.job_store import attempt_by, lapse, opened, resumed


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """The tests' jobs."""
    async with opened(server.url, postgres.database("test_langgraph_jobs")) as bound:
        yield bound
    MOMENTS.clear()


async def taken(jobs: BoundJobs, job_id: str, worker: str) -> Run:
    """A run of a job that a worker has just claimed."""
    held = await jobs.get(job_id)
    if held.state == "running":
        await lapse(jobs, job_id)  # rather than wait for its lease
    row = await jobs._backend.rows.claim(job_id, worker, timedelta(minutes=1))
    assert row is not None
    return await resumed(jobs, row)


async def fields_of(jobs: BoundJobs, job_id: str) -> set[str]:
    """The kinds of fields in a job's checkpoint."""
    names = await jobs.store.call("HKEYS", JOBS.checkpoints.key(job_id=job_id))
    return {":".join(name.decode().split(":")[:2]) for name in names}


def once(count: int = STEPS) -> dict[str, int]:
    """The effects of a graph, each once."""
    return {f"node:{number}": 1 for number in range(1, count + 1)}


async def test_a_graphs_state_is_in_its_jobs_checkpoint(jobs: BoundJobs) -> None:
    """During the job the hash has only the newest state; after its end only the fence, for an hour."""
    seen: dict[str, object] = {}
    job_id = await jobs.enqueue(present, "whales")
    key = JOBS.checkpoints.key(job_id=job_id)

    async def look(run: Run) -> None:
        seen["fields"] = await fields_of(jobs, job_id)
        seen["history"] = len([each async for each in JobSaver(run).alist(config(job_id))])
        seen["life"] = await jobs.store.call("PTTL", key)
        seen["own"] = await run.checkpoint.load()

    MOMENTS[8] = look
    assert await attempt_by(jobs).run(job_id) == "done"
    assert (await jobs.get(job_id)).result == [f"whales {number}" for number in range(1, STEPS + 1)]
    graph = {f"_graph:{kind}" for kind in ("checkpoint", "body", "value", "latest", "puts")}
    assert seen["fields"] == {"_fence", "_worker", *graph}
    assert (seen["history"], seen["own"]) == (1, {})
    assert 3_500_000 < int(str(seen["life"])) <= 3_600_000
    assert await fields_of(jobs, job_id) == {"_fence"}
    assert await effects(jobs.engine, job_id) == once()


async def test_a_failed_attempt_of_a_graph_is_followed_by_one_that_continues(jobs: BoundJobs) -> None:
    """A node that raises ends the attempt; the next attempt starts at that node."""
    job_id = await jobs.enqueue(present, "whales")

    async def fail(run: Run) -> None:
        if run.attempt == 1:
            raise RuntimeError("the model is overloaded")

    MOMENTS[8] = fail
    assert await attempt_by(jobs).run(job_id) == "rescheduled"
    assert await effects(jobs.engine, job_id) == once(7)
    row = await jobs._backend.rows.claim(job_id, "worker-2", timedelta(seconds=5))
    while row is None:  # it can be claimed after its delay
        await asyncio.sleep(0.05)
        row = await jobs._backend.rows.claim(job_id, "worker-2", timedelta(seconds=5))
    await jobs._backend.rows.release(job_id, row.fence)
    assert await attempt_by(jobs, "worker-3").run(job_id) == "done"
    assert await effects(jobs.engine, job_id) == once()


async def test_a_finished_graph_returns_its_state_again(jobs: BoundJobs) -> None:
    """After a worker died behind the last node, the next one runs no node, and has the whole state."""
    run = await taken(jobs, await jobs.enqueue(present, "whales"), "worker-1")
    graph = chain(write_slide).compile(checkpointer=JobSaver(run))
    made = await graph.ainvoke({"topic": "whales", "slides": []}, config(run.id))

    async def never(number: int, _: object) -> dict[str, object]:
        raise AssertionError(f"node {number} was run again")

    saver = JobSaver(await taken(jobs, run.id, "worker-2"))
    again = chain(never).compile(checkpointer=saver)
    assert await saver.input({"topic": "squids", "slides": []}) is None
    assert await again.ainvoke(None, saver.config) == made


async def test_a_worker_that_lost_its_job_is_refused(jobs: BoundJobs) -> None:
    """It can neither read, write nor delete, and the state of the later worker is unchanged."""
    first = await taken(jobs, await jobs.enqueue(present, "whales"), "worker-1")
    where, old = config(first.id), JobSaver(first)
    graph = chain(write_slide, 3).compile(checkpointer=old)
    await graph.ainvoke({"topic": "whales", "slides": []}, where)
    known = await old.aget_tuple(where)
    assert known is not None
    second = await taken(jobs, first.id, "worker-2")
    saved = await jobs.store.call("HGETALL", JOBS.checkpoints.key(job_id=first.id))
    for late in (
        old.aput(known.config, {**known.checkpoint, "id": "f" * 36}, known.metadata, {}),
        old.aput_writes(known.config, [("slides", ["late"])], "task"),
        old.adelete_thread(first.id),
        old.adelete_for_runs(["run"]),
        old.aprune([first.id]),
        old.aget_tuple(where),
        graph.ainvoke({"topic": "late", "slides": []}, where),
    ):
        with pytest.raises(JobLost, match="carries the later fence 2"):
            await late
    assert first._lost is not None
    assert await jobs.store.call("HGETALL", JOBS.checkpoints.key(job_id=first.id)) == saved
    found = await JobSaver(second).aget_tuple(where)
    assert found is not None
    assert found.checkpoint == known.checkpoint


async def test_an_overtaken_graph_changes_nothing(jobs: BoundJobs) -> None:
    """When another worker finished the job, the next checkpoint of the first one is refused."""
    job_id = await jobs.enqueue(present, "whales", True)
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def hang(run: Run) -> None:
        if run.fence == 1:
            waiting.set()
            await go_on.wait()

    MOMENTS[8] = hang
    late = asyncio.create_task(attempt_by(jobs, "worker-1").run(job_id))
    await waiting.wait()
    outcome = "refused"
    while outcome == "refused":  # the first may renew its lease in between
        await lapse(jobs, job_id)
        outcome = await attempt_by(jobs, "worker-2").run(job_id)
    assert outcome == "done"
    go_on.set()
    assert await late == "lost"
    assert await effects(jobs.engine, job_id) == once()


async def test_a_job_continues_after_its_checkpoint_was_lost(jobs: BoundJobs) -> None:
    """After an eviction during the job, the next node stores the whole state, and the fence."""
    job_id = await jobs.enqueue(present, "whales")
    key = JOBS.checkpoints.key(job_id=job_id)
    fields: set[str] = set()

    async def vanish(_: Run) -> None:
        await jobs.store.call("UNLINK", key)

    async def look(run: Run) -> None:
        fields.update(await fields_of(jobs, job_id))
        found = await JobSaver(run).aget_tuple(config(job_id))
        assert found is not None
        assert len(found.checkpoint["channel_values"]["slides"]) == 8

    MOMENTS.update({8: vanish, 9: look})
    assert await attempt_by(jobs).run(job_id) == "done"
    assert {"_fence", "_worker", "_graph:checkpoint"} <= fields
    assert await effects(jobs.engine, job_id) == once()


async def test_a_job_has_one_thread(jobs: BoundJobs) -> None:
    """Another thread id, or a copy, is refused with the job's name."""
    run = await taken(jobs, await jobs.enqueue(present, "whales"), "worker-1")
    saver, other = JobSaver(run), str(uuid4())
    with pytest.raises(InvalidValue, match=f"job {run.id}' holds only its own thread; given '{other}'"):
        await saver.aget_tuple(config(other))
    with pytest.raises(InvalidValue, match="only its own thread"):
        await saver.acopy_thread(run.id, other)


async def test_a_stopping_worker_releases_its_graph(jobs: BoundJobs) -> None:
    """When its worker stops, the job waits again, and the next worker continues at that node."""
    job_id = await jobs.enqueue(present, "whales", True)

    async def stop(run: Run) -> None:
        run._state.stopping = run.fence == 1

    MOMENTS[8] = stop
    assert await attempt_by(jobs).run(job_id) == "released"
    assert await effects(jobs.engine, job_id) == once(7)
    assert await attempt_by(jobs, "worker-2").run(job_id) == "done"
    assert await effects(jobs.engine, job_id) == once()
