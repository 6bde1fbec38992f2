"""Graphs for tests, and the threads that they run in."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from ephemera import Catalogue, fixed
from ephemera.adapters.langgraph import GraphCheckpoints
from ephemera.keyspace import Store

STEPS = 15

CATALOGUE = Catalogue("test-graphs")
THREADS = GraphCheckpoints(CATALOGUE, "graph:{thread_id}", lifetime=fixed(hours=1))
RECENT = GraphCheckpoints(CATALOGUE, "recent:{thread_id}", lifetime=fixed(hours=1), history=2)


class State(TypedDict):
    """The state of a graph."""

    topic: str
    slides: Annotated[list[str], operator.add]


def config(thread_id: str = "", **more: str) -> RunnableConfig:
    """The configuration of a thread."""
    return {"configurable": {"thread_id": thread_id or str(uuid4()), **more}}


def chain(
    node: Callable[[int, State], Awaitable[dict[str, Any]]], steps: int = STEPS, schema: Any = State
) -> StateGraph[Any]:
    """A graph of nodes in a chain."""
    builder: StateGraph[Any] = StateGraph(schema)
    names = [f"slide-{number}" for number in range(1, steps + 1)]

    def numbered(number: int) -> Any:
        async def work(state: State) -> dict[str, Any]:
            return await node(number, state)

        return work

    for number, name in enumerate(names, 1):
        builder.add_node(name, numbered(number), input_schema=schema)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder


async def write_slide(number: int, state: State) -> dict[str, Any]:
    """A node that only adds to the state."""
    return {"slides": [f"{state['topic']} {number}"]}


def key_of(where: RunnableConfig, threads: GraphCheckpoints = THREADS) -> str:
    """The hash of a thread."""
    return threads.keyspace.key(thread_id=where["configurable"]["thread_id"])


def slides(count: int, topic: str = "whales") -> list[str]:
    """The result of the chain."""
    return [f"{topic} {number}" for number in range(1, count + 1)]


async def fields_of(store: Store, where: RunnableConfig, threads: GraphCheckpoints = THREADS) -> list[str]:
    """The names of the fields of a thread's hash."""
    return sorted(name.decode() for name in await store.call("HKEYS", key_of(where, threads)))


def checkpoint_of(values: dict[str, Any], version: str = "1") -> Any:
    """A checkpoint with these values."""
    return {
        "v": 1,
        "id": str(uuid4()),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, version),
        "versions_seen": {},
        "updated_channels": None,
    }
