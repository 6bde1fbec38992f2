"""SEC1: a MessagePack extension in a checkpoint hash named `os.system`, and the worker called it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import ormsgpack
import pydantic
import pytest
import zstandard
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.types import Command, Interrupt, Overwrite, Send

from ephemera import Catalogue, fixed, keyspace
from ephemera.adapters.langgraph import GraphCheckpoints, JobSaver
from ephemera.adapters.langgraph._serializer import StrictSerializer
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidValue
from ephemera.keyspace import Store
from ephemera.patterns.jobs import BoundJobs
from tests.adapters.graph_fixtures import (
    CATALOGUE,
    RECENT,
    THREADS,
    chain,
    config,
    fields_of,
    key_of,
    slides,
    write_slide,
)
from tests.adapters.graph_job_fixtures import MOMENTS, present
from tests.patterns.job_fixtures import JOBS
from tests.patterns.job_store import attempt_by, opened


class Runs:
    """A pickle of it runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


def extension(code: int, *content: Any) -> bytes:
    """A MessagePack extension as LangGraph's serializer writes them."""
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(content)))


def hostile_values(command: str) -> dict[str, tuple[str, bytes]]:
    """Values, with their type, that run a command when something reads them carelessly."""
    single = extension(0, "os", "system", command)
    nested = ormsgpack.packb({"a": [{"b": ormsgpack.Ext(0, ormsgpack.packb(("os", "system", command)))}]})
    inner = ormsgpack.Ext(0, ormsgpack.packb(("os", "system", command)))
    message = extension(5, "langchain_core.messages.human", "HumanMessage", {"content": inner}, "x")
    constructor = {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [command]}
    deep = ormsgpack.packb(1)
    for _ in range(2000):
        deep = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb("Send")[:0] + b"\x92\xa3set" + deep))
    return {
        "single argument": ("msgpack", single),
        "positional arguments": ("msgpack", extension(1, "os", "system", [command])),
        "keyword arguments": ("msgpack", extension(2, "os", "system", {"command": command})),
        "method": ("msgpack", extension(3, "os", "path", command, "system")),
        "pydantic 1": ("msgpack", extension(4, "os", "system", {"command": command})),
        "pydantic 2": ("msgpack", extension(5, "os", "system", {"command": command}, "model_validate")),
        "in containers": ("msgpack", nested),
        "in a message": ("msgpack", message),
        "by our own extension": ("msgpack", extension(1, "os.system", command)),
        "an attribute of a declared type": ("msgpack", extension(1, "datetime.fromisoformat", "2026-01-01")),
        "pickle": ("pickle", pickle.dumps(Runs(command))),
        "json": ("json", json.dumps(constructor).encode()),
        "extensions 2000 deep": ("msgpack", deep),
        "arrays 100,000 deep": ("msgpack", b"\x91" * 100_000 + b"\x01"),
        "a false length": ("msgpack", b"\xdd\xff\xff\xff\xff"),
        "objects in an array": ("msgpack", extension(1, "ndarray", ["|O", [1], b"\0" * 8])),
        "a wrong set": ("msgpack", extension(1, "set", [[1]])),
        "a far date": ("msgpack", extension(1, "timedelta", [2**62, 0, 0])),
        "text that is not UTF-8": ("msgpack", b"\xa2\xff\xfe"),
    }


CASES = sorted(hostile_values("true"))


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store for graphs."""
    async with keyspace.connect(server.url, CATALOGUE) as store:
        yield store


@pytest.mark.parametrize("case", CASES)
async def test_sec1_a_hostile_checkpoint_is_a_miss(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    """In every field of a real graph's thread: nothing runs, it is logged, and the thread starts again."""
    canary = tmp_path / "canary"
    value = msgspec.msgpack.encode(hostile_values(f"touch {canary}")[case])
    where, graph = config(), chain(write_slide, 2).compile(checkpointer=store[THREADS])
    await graph.ainvoke({"topic": "whales", "slides": []}, where)
    original = {name: await store.call("HGET", key_of(where), name) for name in await fields_of(store, where)}
    for name, stored in original.items():
        kind, data = name.split(":")[1], value
        if kind == "body":
            body = msgspec.msgpack.decode(stored)
            data = msgspec.msgpack.encode([body[0], value, value])
        elif kind == "write":
            data = msgspec.msgpack.encode([*msgspec.msgpack.decode(stored)[:4], value])
        elif kind != "value":
            continue
        await store.call("HSET", key_of(where), name, data)
    with caplog.at_level(logging.WARNING, "ephemera"):
        assert [each async for each in store[THREADS].alist(where)] == []
    assert "cannot be decoded" in caplog.text
    made = await graph.ainvoke({"topic": "squids", "slides": []}, where)
    assert made["slides"] == slides(2, "squids")
    assert not canary.exists()


async def test_sec1_no_field_of_a_thread_can_stop_its_graph(store: Store) -> None:
    """Any bytes in any field, a cycle of parents too: what cannot be read is a miss, and the graph runs."""
    graph = chain(write_slide, 1).compile(checkpointer=store[RECENT])
    bomb = zstandard.ZstdCompressor().compress(b"\x92" + b"\0" * (80 << 20))
    for data in (b"", b"\xc1", b"inf", bomb, b"9" * 5000, msgspec.msgpack.encode([1, 2, 3]), b"cycle"):
        where = config()
        await graph.ainvoke({"topic": "whales", "slides": []}, where)
        key = key_of(where, RECENT)
        for name in await fields_of(store, where, RECENT):
            if data == b"cycle" and ":checkpoint:" in name:
                own = name.rpartition(":")[2]
                data = msgspec.msgpack.encode([own, "", 2**50, [], 2**50])
            await store.call("HSET", key, name, data)
            made = await graph.ainvoke({"topic": "squids", "slides": []}, where)
            assert made["slides"][-1] == "squids 1", (name, data[:20])
            assert isinstance([each async for each in store[RECENT].alist(where)], list)


class Level(Enum):
    """A listed enum."""

    HIGH = 1


@dataclass
class Point:
    """A listed dataclass."""

    x: int


class Pair(NamedTuple):
    """A listed named tuple."""

    left: Any
    right: Any


class Model(pydantic.BaseModel):
    """A listed model."""

    at: datetime
    names: set[str]


class Record(msgspec.Struct):
    """A listed Struct."""

    name: str


LISTED = (Level, Point, Pair, Model, Record)


def test_sec1_plain_values_messages_and_listed_types_are_read_as_written() -> None:
    """A type is built if, and only if, it was declared before."""
    now = datetime.now(UTC)
    values: list[Any] = [
        *(None, True, 5, -(2**62), 1.5, "text", b"bytes", [1, [2]], {"a": {1: (2,)}}, {(1, 2): 3}),
        *(now, now.date(), date(2026, 1, 2), time(1, 2, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)),
        *(timedelta(days=-1, seconds=3), UTC, timezone(timedelta(hours=2), "x"), ZoneInfo("Asia/Tokyo")),
        *(uuid4(), UUID(int=0), Decimal("1.10"), {1, 2}, frozenset("ab"), deque([1, 2])),
        *(ip_address("::1"), ip_network("10.0.0.0/8"), Path("/tmp/x")),
        *(HumanMessage("hi", id="1"), SystemMessage("be nice"), RemoveMessage(id="1")),
        AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "2", "type": "tool_call"}]),
        *(
            ToolMessage("done", tool_call_id="2", artifact={"at": now}),
            Document("text", metadata={"at": now}),
        ),
        *(Send("node", {"x": HumanMessage("hi")}), Interrupt("really?", id="7"), Overwrite([1])),
        Command(update={"messages": [HumanMessage("hi")]}, goto=[Send("a", 1)]),
        *(Level.HIGH, Point(1), Pair(1, Point(2)), Model(at=now, names={"a"}), Record("x")),
    ]
    serializer = StrictSerializer(LISTED)
    for value in values:
        found = serializer.loads_typed(serializer.dumps_typed(value))
        expected = {"a": {1: [2]}} if value == {"a": {1: (2,)}} else value
        assert (found, type(found)) == (expected, type(value))
    array = serializer.loads_typed(serializer.dumps_typed(np.arange(6).reshape(2, 3)))
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    for written in (Level.HIGH, Point(1), Pair(1, 2), Model(at=now, names=set()), Record("x")):
        with pytest.raises(ValueError, match=f"{type(written).__name__}' is not declared"):
            StrictSerializer().loads_typed(serializer.dumps_typed(written))


def test_sec1_a_value_that_could_not_be_read_is_refused_when_it_is_written() -> None:
    """The error names the type and where to list it; a type that cannot be built is not accepted."""
    with pytest.raises(InvalidValue, match=r"listed types: types=.*; given a .*\.Point"):
        StrictSerializer().dumps_typed({"points": [Send("node", Point(1))]})
    with pytest.raises(InvalidValue, match="64-bit"):
        StrictSerializer().dumps_typed(2**64)
    with pytest.raises(InvalidValue, match="types"):
        StrictSerializer([os.stat_result, Runs])
    with pytest.raises(InvalidValue, match="types"):
        GraphCheckpoints(Catalogue("odd-graphs"), "odd:{thread_id}", lifetime=fixed(days=1), types=[Runs])


async def test_sec1_a_hostile_checkpoint_of_a_waiting_job_runs_nothing(
    server: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """A job that waits for its second attempt finds hostile values in its graph's state, and completes."""
    canary = tmp_path / "canary"
    async with opened(server.url, postgres.database("test_sec1_jobs")) as jobs:
        job_id = await jobs.enqueue(present, "whales")
        await _spoil_after_first_attempt(jobs, job_id, f"touch {canary}")
    assert not canary.exists()


async def _spoil_after_first_attempt(jobs: BoundJobs, job_id: str, command: str) -> None:
    key, cases = JOBS.checkpoints.key(job_id=job_id), list(hostile_values(command).values())

    async def fail(run: Any) -> None:
        if run.attempt == 1:
            for number, name in enumerate(await jobs.store.call("HKEYS", key)):
                if name.startswith(b"_graph:value"):
                    value = msgspec.msgpack.encode(cases[number % len(cases)])
                    await jobs.store.call("HSET", key, name, value)
            assert await JobSaver(run).aget_tuple(config(job_id)) is None
            raise RuntimeError("the model is overloaded")

    MOMENTS[8] = fail
    try:
        assert await attempt_by(jobs).run(job_id) == "rescheduled"
        while (row := await jobs._backend.rows.claim(job_id, "worker-2", timedelta(seconds=5))) is None:
            await asyncio.sleep(0.05)  # it can be claimed after its delay
        await jobs._backend.rows.release(job_id, row.fence)
        assert await attempt_by(jobs, "worker-3").run(job_id) == "done"
    finally:
        MOMENTS.clear()
