"""How a thread is stored, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from ephemera import Catalogue, fixed, keyspace, sliding
from ephemera.adapters.langgraph import GraphCheckpoints, GraphSaver
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, InvalidValue, UndeclaredKeyspace
from ephemera.keyspace import Store
from tests.adapters.graph_fixtures import (
    CATALOGUE,
    THREADS,
    chain,
    checkpoint_of,
    config,
    fields_of,
    key_of,
    slides,
    write_slide,
)
from tests.patterns.trips import Counting


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


async def test_names_may_contain_special_characters(store: Store) -> None:
    """Names of threads, namespaces, channels and tasks may contain any text."""
    saver, odd = store[THREADS], "a:b{c}*%\n|é "
    for number, (thread, namespace) in enumerate([(odd, odd), (odd, ""), (odd + ":", "x:y|z:1")]):
        where = config(thread + str(uuid4()), checkpoint_ns=namespace)
        checkpoint = checkpoint_of({odd: number, odd + ":1": "other"})
        put = await saver.aput(where, checkpoint, {"step": number}, checkpoint["channel_versions"])
        await saver.aput_writes(put, [(odd, "written")], odd, odd)
        (found,) = [each async for each in saver.alist(where)]
        assert found.config == put
        assert found.checkpoint["channel_values"] == checkpoint["channel_values"]
        assert found.pending_writes == [(odd, odd, "written")]


async def test_each_operation_is_one_round_trip(local: Store) -> None:
    """`aput`, `aput_writes` and `aget_tuple` are one command each, for any number of channels."""
    counting = Counting(local.client())
    local._clients["cache"] = counting
    saver, checkpoint = local[THREADS], checkpoint_of({f"channel-{number}": number for number in range(20)})
    put = await saver.aput(config(), checkpoint, {"step": 1}, checkpoint["channel_versions"])
    await saver.aput_writes(put, [("a", 1), ("b", 2)], "task")
    found = await saver.aget_tuple(put)
    assert found is not None
    assert found.checkpoint["channel_values"] == checkpoint["channel_values"]
    assert (counting.trips, counting.commands) == (3, 3)
    assert (local.stats[THREADS.keyspace].hits, local.stats[THREADS.keyspace].writes) == (1, 2)


async def test_only_new_values_are_sent(local: Store) -> None:
    """An unchanged value is stored once, for any number of checkpoints."""
    saver, where = local[THREADS], config()
    first = checkpoint_of({"document": "x" * 3000, "page": 1})
    put = await saver.aput(where, first, {"step": 1}, first["channel_versions"])
    second = checkpoint_of({"document": "x" * 3000, "page": 2})
    second["channel_versions"]["page"] = "2"
    await saver.aput(put, second, {"step": 2}, {"page": "2"})
    values = [name for name in await fields_of(local, where) if name.startswith("_graph:value:")]
    assert len(values) == 3


async def test_large_values_are_compressed(local: Store) -> None:
    """A repetitive megabyte takes a fraction of that on the server."""
    where, checkpoint = config(), checkpoint_of({"document": "a long story, " * 80_000})
    await local[THREADS].aput(where, checkpoint, {}, checkpoint["channel_versions"])
    found = await local[THREADS].aget_tuple(where)
    assert found is not None
    assert found.checkpoint["channel_values"] == checkpoint["channel_values"]
    assert await local.call("MEMORY", "USAGE", key_of(where)) < 20_000


async def test_an_enormous_checkpoint_is_refused(local: Store) -> None:
    """The error has the size and says what to do, and nothing is stored."""
    where, checkpoint = config(), checkpoint_of({"film": os.urandom(33 * 1024 * 1024)})
    with pytest.raises(InvalidValue, match=r"at most 32 MiB \(store large values elsewhere.*given 33.0 MiB"):
        await local[THREADS].aput(where, checkpoint, {}, checkpoint["channel_versions"])
    assert await fields_of(local, where) == []


async def test_what_cannot_be_read_is_a_miss(local: Store) -> None:
    """A corrupted value is counted and logged, and the thread starts again."""
    graph, where = chain(write_slide, 2).compile(checkpointer=local[THREADS]), config()
    await graph.ainvoke({"topic": "whales", "slides": []}, where)
    for name in await fields_of(local, where):
        if name.startswith("_graph:value:"):
            await local.call("HSET", key_of(where), name, b"spoiled")
    assert await local[THREADS].aget_tuple(where) is None
    assert local.stats[THREADS.keyspace].undecodable == 1
    made = await graph.ainvoke({"topic": "squids", "slides": []}, where)
    assert made["slides"] == slides(2, "squids")


async def test_wrong_calls_are_refused(local: Store) -> None:
    """A missing thread id, an unknown strategy and a copy over an existing thread are refused."""
    saver: GraphSaver = local[THREADS]
    with pytest.raises(InvalidValue, match="thread_id"):
        await saver.aget_tuple({"configurable": {}})
    with pytest.raises(InvalidValue, match="thread_id"):
        [each async for each in saver.alist(None)]
    with pytest.raises(InvalidValue, match="keep_latest or delete; given 'oldest'"):
        await saver.aprune(["1"], strategy="oldest")
    where, checkpoint = config(), checkpoint_of({"a": 1})
    await saver.aput(where, checkpoint, {}, checkpoint["channel_versions"])
    thread_id = where["configurable"]["thread_id"]
    with pytest.raises(InvalidValue, match=f"copies in empty threads; given '{thread_id}'"):
        await saver.acopy_thread(thread_id, thread_id)


def test_declarations_that_cannot_work_are_refused() -> None:
    """A pattern without its field, a wrong lifetime and a wrong history are refused."""
    catalogue = Catalogue("refused-graphs")
    wrong_lifetime: Any = sliding(days=1)
    with pytest.raises(InvalidDeclaration, match=r"its one field is \{thread_id\}"):
        GraphCheckpoints(catalogue, "graph:{user}", lifetime=fixed(days=1))
    with pytest.raises(InvalidDeclaration, match="threads cannot have the lifetime"):
        GraphCheckpoints(catalogue, "graph:{thread_id}", lifetime=wrong_lifetime)
    with pytest.raises(InvalidDeclaration, match="history=0 keeps nothing"):
        GraphCheckpoints(catalogue, "graph:{thread_id}", lifetime=fixed(days=1), history=0)


async def test_foreign_stores_are_refused(local: Store) -> None:
    """A store without the catalogue is refused."""
    with pytest.raises(UndeclaredKeyspace):
        local[GraphCheckpoints(Catalogue("foreign-graphs"), "foreign:{thread_id}", lifetime=fixed(days=1))]


def test_without_langgraph_the_error_names_the_extra() -> None:
    """Without LangGraph, the import error says what to install."""
    program = (
        "import importlib.util as util; find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name.startswith('langgraph') else find(name, *more)\n"
        "import ephemera.adapters.langgraph"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "needs LangGraph: pip install 'ephemera-data[langgraph]'" in done.stderr
