"""The lifetime, history and deletion of threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from ephemera import keyspace
from ephemera.adapters.langgraph import GraphCheckpoints
from ephemera.errors import CheckpointLost
from ephemera.keyspace import Store
from tests.adapters.graph_fixtures import (
    CATALOGUE,
    RECENT,
    THREADS,
    State,
    chain,
    checkpoint_of,
    config,
    fields_of,
    key_of,
    slides,
    write_slide,
)
from tests.patterns.wait_for_jobs import until


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for graphs, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE) as store:
        yield store


async def test_every_key_is_declared_and_expires(store: Store) -> None:
    """A run with an id has two keys, both in the catalogue; the run's set outlives the thread."""
    run = str(uuid4())
    where = config()
    where["configurable"]["run_id"] = run
    graph = chain(write_slide, 3).compile(checkpointer=store[THREADS])
    await graph.ainvoke({"topic": "whales", "slides": []}, where)
    keys = [key_of(where), THREADS.runs.key(run_id=run)]
    assert [CATALOGUE.classify(key.encode()) for key in keys] == [THREADS.keyspace, THREADS.runs]
    lives = [await store.call("PTTL", key) for key in keys]
    assert 0 < lives[0] <= 3_600_000 < lives[1] <= 7_200_000
    await store[THREADS].adelete_for_runs([run])
    assert await store[THREADS].aget_tuple(where) is None


async def test_a_used_thread_keeps_its_earlier_runs_findable(store: Store) -> None:
    """A later run renews the sets of the runs before it, so that these can still be deleted by their ids."""
    graph, where, runs = chain(write_slide, 1).compile(checkpointer=store[THREADS]), config(), ["", ""]
    for number in range(2):
        runs[number] = where["configurable"]["run_id"] = str(uuid4())
        await store.call("PEXPIRE", THREADS.runs.key(run_id=runs[0]), 5000)
        await graph.ainvoke({"topic": "whales", "slides": []}, where)
    assert await store.call("PTTL", THREADS.runs.key(run_id=runs[0])) > 3_600_000
    await store[THREADS].adelete_for_runs(runs[:1])
    left = [each.metadata["run_id"] async for each in store[THREADS].alist(where)]
    assert set(left) == {runs[1]}


async def test_a_thread_ends_after_its_lifetime(store: Store) -> None:
    """An expired thread leaves nothing, and starts again."""
    graph, where = chain(write_slide, 3).compile(checkpointer=store[THREADS]), config()
    await graph.ainvoke({"topic": "whales", "slides": []}, where)
    assert await store[THREADS].aget_tuple(where) is not None
    assert 0 < await store.call("PTTL", key_of(where)) <= 3_600_000
    await store.call("PEXPIRE", key_of(where), 1)  # its lifetime is over

    async def gone() -> bool:
        return not await store.call("EXISTS", key_of(where))

    await until(gone)
    assert await store[THREADS].aget_tuple(where) is None
    made = await graph.ainvoke({"topic": "squids", "slides": []}, where)
    assert made["slides"] == slides(3, "squids")


async def test_a_thread_lost_during_a_run_is_stored_completely(store: Store) -> None:
    """After an expiry, eviction or flush, the next step stores all values, not only its own."""
    where = config()

    async def vanish(number: int, state: State) -> dict[str, Any]:
        if number == 3:
            await store.call("UNLINK", key_of(where))
        return await write_slide(number, state)

    graph = chain(vanish, 5).compile(checkpointer=store[THREADS])
    made = await graph.ainvoke({"topic": "whales", "slides": []}, where, durability="sync")
    state = await graph.aget_state(where)
    assert state.values == made == {"topic": "whales", "slides": slides(5)}


async def deleted_in_mid_run(saver: BaseCheckpointSaver[Any]) -> tuple[Any, Any, Any]:
    """Restart a thread while its graph runs; returns the new state, its later state, and the error."""
    where, deleted, begun = config(), asyncio.Event(), asyncio.Event()

    async def late(number: int, state: State) -> dict[str, Any]:
        if number == 2 and state["topic"] == "whales":
            begun.set()
            await deleted.wait()
        return await write_slide(number, state)

    graph = chain(late, 4).compile(checkpointer=saver)
    running = asyncio.create_task(graph.ainvoke({"topic": "whales", "slides": []}, where, durability="sync"))
    await begun.wait()
    await saver.adelete_thread(where["configurable"]["thread_id"])
    fresh = await graph.ainvoke({"topic": "squids", "slides": []}, where)
    deleted.set()
    await asyncio.wait([running])
    return fresh, (await graph.aget_state(where)).values, running.exception() or running.result()


async def test_a_running_graph_does_not_revive_a_deleted_thread(store: Store) -> None:
    """A graph whose thread is deleted gets an error, and a conversation started since is unchanged."""
    fresh, became, outcome = await deleted_in_mid_run(store[THREADS])
    assert became == fresh == {"topic": "squids", "slides": slides(4, "squids")}
    assert isinstance(outcome, CheckpointLost)
    assert "deleted while its graph ran" in str(outcome)


async def test_a_saver_without_fences_revives_a_deleted_thread() -> None:
    """Without the mark, as in LangGraph's own saver, a part of a deleted thread reappears."""
    fresh, became, outcome = await deleted_in_mid_run(InMemorySaver())
    assert fresh == {"topic": "squids", "slides": slides(4, "squids")}
    assert became == {"slides": slides(4, "whales")}
    assert outcome == {"topic": "whales", "slides": slides(4)}


async def test_a_deleted_thread_leaves_a_mark_that_expires(store: Store) -> None:
    """Only the mark is left, with the thread's lifetime."""
    graph, where = chain(write_slide, 2).compile(checkpointer=store[THREADS]), config()
    await graph.ainvoke({"topic": "whales", "slides": []}, where)
    await store[THREADS].adelete_thread(where["configurable"]["thread_id"])
    assert await fields_of(store, where) == ["_graph:deleted"]
    assert 0 < await store.call("PTTL", key_of(where)) <= 3_600_000


async def test_history_is_as_long_as_declared(store: Store) -> None:
    """Only the last two checkpoints and their values are kept, and the graph can continue."""
    graph, where = chain(write_slide).compile(checkpointer=store[RECENT]), config()
    made = await graph.ainvoke({"topic": "whales", "slides": []}, where)
    kept = [each async for each in store[RECENT].alist(where)]
    assert [each.checkpoint["channel_values"]["slides"] for each in kept] == [slides(15), slides(14)]
    needed = {name for each in kept for name in each.checkpoint["channel_values"]}
    values = [name for name in await fields_of(store, where, RECENT) if name.startswith("_graph:value:")]
    assert len(values) <= 2 * len(needed)
    assert (await graph.aget_state(where)).values == made
    again = await graph.ainvoke({"topic": "squids", "slides": []}, where)
    assert again["slides"] == [*slides(15), *slides(15, "squids")]


@pytest.mark.parametrize("threads", [THREADS, RECENT], ids=["all", "two"])
async def test_the_newest_checkpoint_is_the_one_put_last(store: Store, threads: GraphCheckpoints) -> None:
    """The newest checkpoint is the one put last, even by a process whose clock is behind."""
    saver, where = store[threads], config()
    for number, ahead in enumerate([5, 4, 3, 2, 1]):
        checkpoint = checkpoint_of({"step": number}, version=str(number))
        checkpoint["id"] = f"1f0{ahead}0000-0000-6000-8000-000000000000"
        where = await saver.aput(where, checkpoint, {"step": number}, checkpoint["channel_versions"])
    thread = config(where["configurable"]["thread_id"])
    newest = await saver.aget_tuple(thread)
    assert newest is not None
    assert newest.config == where
    listed = [each.checkpoint["channel_values"]["step"] async for each in saver.alist(thread)]
    assert listed == ([4, 3, 2, 1, 0] if threads is THREADS else [4, 3])
    before = [each.metadata["step"] async for each in saver.alist(thread, before=where)]
    assert before == listed[1:]


def _joined(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(each for write in writes for each in write)]


class Deltas(TypedDict):
    """A state whose list is stored as the additions of each step."""

    topic: str
    slides: Annotated[list[str], DeltaChannel(_joined, list, snapshot_frequency=4)]


@pytest.mark.parametrize("threads", [THREADS, RECENT], ids=["all", "two"])
async def test_delta_channels_keep_the_ancestors_they_need(store: Store, threads: GraphCheckpoints) -> None:
    """Neither a short history nor pruning removes ancestors that a channel needs."""
    builder = chain(write_slide, 6, Deltas)
    graph, where = builder.compile(checkpointer=store[threads]), config()
    made = await graph.ainvoke({"topic": "whales", "slides": []}, where)
    assert made["slides"] == slides(6)
    assert (await graph.aget_state(where)).values == made
    await store[threads].aprune([where["configurable"]["thread_id"]])
    assert (await graph.aget_state(where)).values == made
    again = await graph.ainvoke({"topic": "squids", "slides": []}, where)
    assert again["slides"] == [*slides(6), *slides(6, "squids")]


async def test_delta_channels_that_lost_their_ancestors_fail(store: Store) -> None:
    """Their values cannot be stored again, so the graph fails rather than continue with a part of them."""
    where = config()

    async def vanish(number: int, state: State) -> dict[str, Any]:
        if number == 2:  # between two snapshots
            await store.call("UNLINK", key_of(where))
        return await write_slide(number, state)

    graph = chain(vanish, 5, Deltas).compile(checkpointer=store[THREADS])
    with pytest.raises(CheckpointLost, match="Redis lost"):
        await graph.ainvoke({"topic": "whales", "slides": []}, where, durability="sync")
