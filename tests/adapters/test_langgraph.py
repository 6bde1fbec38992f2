"""Graphs that continue where they were: after failures and interrupts, in branches, async and sync."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from ephemera import keyspace, sync
from ephemera.embedded import Valkey
from ephemera.errors import SyncCallInEventLoop
from ephemera.keyspace import Store
from tests.adapters.graph_fixtures import (
    CATALOGUE,
    STEPS,
    THREADS,
    State,
    chain,
    checkpoint_of,
    config,
    slides,
    write_slide,
)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for graphs, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE) as store:
        yield store


@pytest.fixture
async def local(server: Valkey) -> AsyncIterator[Store]:
    """A store on one server."""
    async with keyspace.connect(server.url, CATALOGUE) as store:
        yield store


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_graph_runs_and_its_state_is_there_afterwards(store: Store, durability: Any) -> None:
    """A graph of 15 nodes returns its whole state, and another graph reads the same later."""
    graph, where = chain(write_slide).compile(checkpointer=store[THREADS]), config()
    made = await graph.ainvoke({"topic": "whales", "slides": []}, where, durability=durability)
    assert made["slides"] == slides(STEPS)
    state = await chain(write_slide).compile(checkpointer=store[THREADS]).aget_state(where)
    assert (state.values, state.next) == (made, ())
    history = [each async for each in graph.aget_state_history(where)]
    assert len(history) == (1 if durability == "exit" else STEPS + 2)


async def test_a_failed_graph_continues_at_its_node(store: Store) -> None:
    """Invoked again with None, it runs the remaining nodes and repeats none."""
    done: list[int] = []

    async def once_broken(number: int, state: State) -> dict[str, Any]:
        if number == 8 and done.count(8) == 0:
            done.append(8)
            raise RuntimeError("a power cut")
        done.append(number)
        return await write_slide(number, state)

    graph, where = chain(once_broken).compile(checkpointer=store[THREADS]), config()
    with pytest.raises(RuntimeError, match="power cut"):
        await graph.ainvoke({"topic": "whales", "slides": []}, where)
    made = await graph.ainvoke(None, where)
    assert made["slides"] == slides(STEPS)
    assert done == [*range(1, 9), *range(8, STEPS + 1)]


async def test_of_parallel_nodes_only_the_failed_one_is_repeated(store: Store) -> None:
    """The writes of the other nodes are stored, and used when the graph continues."""
    done: list[str] = []

    def node(name: str) -> Any:
        async def work(state: State) -> dict[str, Any]:
            done.append(name)
            if name == "c" and done.count("c") == 1:
                raise RuntimeError("no answer")
            return {"slides": [name]}

        return work

    builder = StateGraph(State)
    for name in "abc":
        builder.add_node(name, node(name))
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    graph, where = builder.compile(checkpointer=store[THREADS]), config()
    with pytest.raises(RuntimeError, match="no answer"):
        await graph.ainvoke({"topic": "", "slides": []}, where)
    made = await graph.ainvoke(None, where)
    assert made["slides"] == ["a", "b", "c"]
    assert sorted(done) == ["a", "b", "c", "c"]


async def test_an_interrupted_graph_is_resumed_elsewhere(url: str) -> None:
    """An interrupt made in one store can be resumed in another."""

    async def ask(state: State) -> dict[str, Any]:
        return {"slides": [*state["slides"], interrupt("what about?")]}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    where = config()
    async with keyspace.connect(url, CATALOGUE) as here:
        asked = await builder.compile(checkpointer=here[THREADS]).ainvoke({"topic": "", "slides": []}, where)
    assert asked["__interrupt__"][0].value == "what about?"
    async with keyspace.connect(url, CATALOGUE) as elsewhere:
        graph = builder.compile(checkpointer=elsewhere[THREADS])
        made = await graph.ainvoke(Command(resume="squids"), where)
    assert made["slides"] == ["squids"]


async def test_subgraphs_have_their_own_namespaces(store: Store) -> None:
    """A subgraph is listed under its own namespace, and found without one."""
    inner = chain(write_slide, 2).compile(checkpointer=True)
    builder = StateGraph(State)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    graph, where = builder.compile(checkpointer=store[THREADS]), config()
    await graph.ainvoke({"topic": "whales", "slides": []}, where)
    found = [each.config["configurable"]["checkpoint_ns"] async for each in store[THREADS].alist(where)]
    root = [each async for each in store[THREADS].alist(config(**where["configurable"], checkpoint_ns=""))]
    assert set(found) == {"", "inner"}
    assert len(root) == found.count("")


async def test_branches_of_a_thread_do_not_share_values(store: Store) -> None:
    """Updating a past state makes a branch, and the first branch keeps its values."""
    graph, where = chain(write_slide, 4).compile(checkpointer=store[THREADS]), config()
    await graph.ainvoke({"topic": "whales", "slides": []}, where)
    past = [each async for each in graph.aget_state_history(where)]
    first, second = past[0], past[2]
    branch = await graph.aupdate_state(second.config, {"slides": ["a squid"]})
    made = await graph.ainvoke(None, branch)
    assert made["slides"] == [*slides(2), "a squid", "whales 3", "whales 4"]
    assert (await graph.aget_state(first.config)).values["slides"] == slides(4)
    assert (await graph.aget_state(where)).values == made


async def test_concurrent_threads_are_separate(store: Store) -> None:
    """Fifty graphs in fifty threads of one store have separate states."""
    graph = chain(write_slide, 4).compile(checkpointer=store[THREADS])
    topics = [f"topic-{number}" for number in range(50)]
    prefix = str(uuid4())
    made = await asyncio.gather(
        *(graph.ainvoke({"topic": topic, "slides": []}, config(f"{prefix}-{topic}")) for topic in topics)
    )
    assert [each["slides"] for each in made] == [slides(4, topic) for topic in topics]
    states = await asyncio.gather(*(graph.aget_state(config(f"{prefix}-{topic}")) for topic in topics))
    assert [state.values for state in states] == made


def test_a_graph_runs_synchronously_on_a_sync_store(url: str) -> None:
    """`graph.invoke` stores the same checkpoints, and every synchronous method reads them."""
    builder = StateGraph(State)
    builder.add_node("only", lambda state: {"slides": [state["topic"]]})
    builder.add_edge(START, "only")
    with sync.connect(url, CATALOGUE) as store:
        saver, where = store[THREADS], config()
        graph = builder.compile(checkpointer=saver)
        assert graph.invoke({"topic": "whales", "slides": []}, where)["slides"] == ["whales"]
        assert graph.get_state(where).values["slides"] == ["whales"]
        assert len(list(graph.get_state_history(where))) == 3
        thread, copy = where["configurable"]["thread_id"], str(uuid4())
        saver.copy_thread(thread, copy)
        saver.prune([thread])
        assert [len(list(saver.list(config(each)))) for each in (thread, copy)] == [1, 3]
        saver.delete_for_runs([])
        saver.delete_thread(thread)
        assert saver.get_tuple(where) is None


async def test_a_synchronous_call_in_an_event_loop_is_refused(local: Store) -> None:
    """`graph.invoke` with the checkpointer of an async store raises an error that says what to use."""
    graph = StateGraph(State)
    graph.add_node("only", lambda _: {"slides": []})
    graph.add_edge(START, "only")
    with pytest.raises(SyncCallInEventLoop, match=r"graph.ainvoke.*ephemera.sync.connect"):
        graph.compile(checkpointer=local[THREADS]).invoke({"topic": "", "slides": []}, config())


async def test_an_async_graph_runs_on_a_sync_store(url: str) -> None:
    """`graph.ainvoke` may use the checkpointer of a synchronous store, on a loop that is not blocked."""
    graph = chain(write_slide, 3)
    store = sync.connect(url, CATALOGUE)
    try:
        compiled, where = graph.compile(checkpointer=store[THREADS]), config(run_id="r1")
        assert (await compiled.ainvoke({"topic": "whales", "slides": []}, where))["slides"] == slides(3)
        await store[THREADS].adelete_for_runs([str(where["configurable"]["run_id"])])
        target = str(uuid4())
        await store[THREADS].acopy_thread(where["configurable"]["thread_id"], target)
    finally:
        await asyncio.to_thread(store.close)


async def test_a_thread_uses_the_checkpointer_of_an_async_store(local: Store) -> None:
    """A synchronous call in a thread, as a synchronous node makes it, runs on the store's loop."""
    saver, where, checkpoint = local[THREADS], config(), checkpoint_of({"a": 1})
    put = await asyncio.to_thread(saver.put, where, checkpoint, {}, checkpoint["channel_versions"])
    found = await asyncio.to_thread(saver.get_tuple, where)
    assert found is not None
    assert found.config == put
