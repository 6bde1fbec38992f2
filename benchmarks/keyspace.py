"""The keyspace's rows: what typed access costs on top of the wire, and how fast keys are classified.

The record is a session of five fields; each contender reads it as its own users would, 50 tasks at a time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import msgspec

from benchmarks import peers
from benchmarks.load import Tasks
from benchmarks.rows import Absolute, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, connect, fixed
from ephemera.keyspace import RecordCodec
from ephemera.wire import Script

TASKS = 50
ID = "0190d2a4e7c17bd8"


class Session(msgspec.Struct):
    """A record as services keep them."""

    user: str
    role: str
    logins: int
    score: float
    active: bool


_PUT = Script(
    "bench_put",
    """redis.call('UNLINK', KEYS[1])
    redis.call('HSET', KEYS[1], unpack(ARGV, 2))
    return redis.call('PEXPIRE', KEYS[1], ARGV[1])""",
    is_fast=True,
)
RECORD = Session("ada@example.com", "admin", 42, 0.75, True)
CATALOGUE = Catalogue("bench")
HASH = CATALOGUE.hash("session:{session_id}", Session, lifetime=fixed(hours=1), purpose="Read as a hash")
VALUE = CATALOGUE.value(
    "profile:{user_id}", Session, codec="msgpack", lifetime=fixed(hours=1), purpose="Read as a value"
)

AS_JSON = CATALOGUE.value("card:{user_id}", Session, lifetime=fixed(hours=1), purpose="Read as JSON")


@asynccontextmanager
async def typed_hash(servers: Servers) -> AsyncIterator[Round]:
    """Our accessor of a hash."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        sessions = store[HASH]
        await sessions.put(RECORD, session_id=ID)
        _check(await sessions.get(session_id=ID), RECORD)

        async def work(count: int) -> None:
            for _ in range(count):
                await sessions.get(session_id=ID)

        yield Tasks(TASKS, work)


@asynccontextmanager
async def bare_hash(servers: Servers) -> AsyncIterator[Round]:
    """The same hash as the wire gives it: bytes by bytes."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        await store[HASH].put(RECORD, session_id=ID)
        key = HASH.template.render({"session_id": ID})

        async def work(count: int) -> None:
            for _ in range(count):
                await store.call("HGETALL", key)

        yield Tasks(TASKS, work)


@asynccontextmanager
async def typed_put(servers: Servers) -> AsyncIterator[Round]:
    """Our accessor of a hash, writing: the old one goes, and the new one comes with its TTL, in one step."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        sessions = store[HASH]

        async def work(count: int) -> None:
            for _ in range(count):
                await sessions.put(RECORD, session_id=ID)

        yield Tasks(TASKS, work)


@asynccontextmanager
async def bare_put(servers: Servers) -> AsyncIterator[Round]:
    """The same by a script of these three commands, its arguments rendered and encoded before."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        key = HASH.template.render({"session_id": ID})
        arguments: list[Any] = [3_600_000, *RecordCodec(HASH.pattern, Session).encode(RECORD)]
        run = store.client().run

        async def work(count: int) -> None:
            for _ in range(count):
                await run(_PUT, (key,), arguments)

        yield Tasks(TASKS, work)


@asynccontextmanager
async def redis_om_hash(servers: Servers) -> AsyncIterator[Round]:
    """A HashModel of redis-om with the same fields, on redis-py as fast as it goes."""
    om = import_module("aredis_om")
    async with peers.redis_py_untimed(servers.valkey, decode_responses=True) as client:
        model = _model(om.HashModel, client)
        await model(pk=ID, **msgspec.structs.asdict(RECORD)).save()
        _check((await model.get(ID)).logins, RECORD.logins)

        async def work(count: int) -> None:
            for _ in range(count):
                await model.get(ID)

        yield Tasks(TASKS, work)


@asynccontextmanager
async def typed_value(servers: Servers) -> AsyncIterator[Round]:
    """Our accessor of a value, msgspec inside."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        profiles = store[VALUE]
        await profiles.put(RECORD, user_id=ID)
        _check(await profiles.get(user_id=ID), RECORD)

        async def work(count: int) -> None:
            for _ in range(count):
                await profiles.get(user_id=ID)

        yield Tasks(TASKS, work)


@asynccontextmanager
async def typed_json(servers: Servers) -> AsyncIterator[Round]:
    """The default way: JSON, and the accessor asked of the store for each read."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        await store[AS_JSON].put(RECORD, user_id=ID)
        _check(await store[AS_JSON].get(user_id=ID), RECORD)

        async def work(count: int) -> None:
            for _ in range(count):
                await store[AS_JSON].get(user_id=ID)

        yield Tasks(TASKS, work)


@asynccontextmanager
async def bare_value(servers: Servers) -> AsyncIterator[Round]:
    """The same value as the wire gives it: encoded."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        await store[VALUE].put(RECORD, user_id=ID)
        key = VALUE.template.render({"user_id": ID})

        async def work(count: int) -> None:
            for _ in range(count):
                await store.call("GET", key)

        yield Tasks(TASKS, work)


@asynccontextmanager
async def classify(servers: Servers) -> AsyncIterator[Round]:
    """Names to spaces: 24 patterns, a tenth of the keys of none of them."""
    catalogue, names = _service()

    async def measured_round(seconds: float) -> float:
        known, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            for name in names:
                catalogue.classify(name)
            known += len(names)
        return known / took

    yield measured_round


def _service() -> tuple[Catalogue, list[bytes]]:
    catalogue, names = Catalogue("classified"), []
    for area in ("account", "cart", "course", "feed", "slides", "league"):
        for what in ("profile:{user_id}", "page:{id}:{part}", "count:{day}", "lock:{id}"):
            space = catalogue.value(f"{area}:{what}", bytes, lifetime=fixed(hours=1), purpose="to be found")
            fields = space.template.fields
            names += [
                space.template.render(dict.fromkeys(fields, f"{number:08x}")).encode() for number in range(36)
            ]
    return catalogue, [*names, *(f"{number}:undeclared".encode() for number in range(len(names) // 9))]


def _model(base: Any, client: Any) -> Any:
    annotations = {"user": str, "role": str, "logins": int, "score": float, "active": bool}
    meta = type("Meta", (), {"database": client, "global_key_prefix": "om", "model_key_prefix": "session"})
    body = {"__annotations__": annotations, "__module__": __name__, "Meta": meta}
    return type(base)("Session", (base,), body, index=True)


def _check(read: Any, stored: Any) -> None:
    if read != stored:
        raise RuntimeError(f"read {read!r} in place of the stored {stored!r}")


@asynccontextmanager
async def counting(servers: Servers) -> AsyncIterator[Round]:
    """What counting a hit and its bytes adds to a value read, in per cent of the read."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        profiles = store[VALUE]
        await profiles.put(RECORD, user_id=ID)

        async def work(count: int) -> None:
            for _ in range(count):
                await profiles.get(user_id=ID)

        reads = Tasks(TASKS, work)

        async def share(seconds: float) -> float:
            rate = await reads(seconds)
            stats, times, data = profiles.stats, 1_000_000, b"value"
            began = time.perf_counter()
            for _ in range(times):
                stats.hits += 1
                stats.bytes_read += len(data)
            return 100 * rate * (time.perf_counter() - began) / times

        yield share


ROWS = (
    Row("keyspace: classify names", classify, targets=(Absolute(400_000, "keys/s"),), unit="keys/s"),
    Row(
        "keyspace: typed hash read, 50 tasks",
        typed_hash,
        {"redis-om": redis_om_hash},
        (Times(6, "redis-om"),),
    ),
    Row(
        "keyspace: typed hash read, share of HGETALL",
        typed_hash,
        {"bare wire": bare_hash},
        (Times(0.8, "bare wire"),),
    ),
    Row(
        "keyspace: typed hash put, share of a script",
        typed_put,
        {"bare wire": bare_put},
        (Times(0.8, "bare wire"),),
    ),
    Row(
        "keyspace: cost of counting, share of a read",
        counting,
        targets=(Absolute(5, "%", at_most=True),),
        unit="%",
        higher_is_better=False,
    ),
    Row(
        "keyspace: JSON value read, share of GET",
        typed_json,
        {"bare wire": bare_value},
        (Times(0.7, "bare wire"),),
    ),
    Row(
        "keyspace: MessagePack value read, share of GET",
        typed_value,
        {"bare wire": bare_value},
        (Times(0.7, "bare wire"),),
    ),
)
