"""Rows of batches: 100 typed values read or written in one round trip, one task at a time.

The peer is a pipeline of redis-py's asyncio client without a transaction, on its fastest settings; it is
given strings, and writes each with its TTL, as ours. Ours decodes and encodes the same text as JSON. So does
redis-py-kit, which reads with one MGET.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from benchmarks import peers
from benchmarks.load import Tasks
from benchmarks.rows import Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, connect, fixed

CATALOGUE = Catalogue("bench-batches")
TEXT = CATALOGUE.value("bench:batch:{number}", str, lifetime=fixed(hours=1), purpose="Measured here")
_BATCH = [{"number": number} for number in range(100)]
_KEYS = [f"bench:batch:{number}" for number in range(100)]
_VALUE = "v" * 100
_HOUR = 3_600_000  # milliseconds


@asynccontextmanager
async def our_reads(servers: Servers) -> AsyncIterator[Round]:
    """`get_many` of 100 values."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        await store[TEXT].put_many((fields, _VALUE) for fields in _BATCH)
        if await store[TEXT].get_many(_BATCH) != [_VALUE] * 100:
            raise RuntimeError("the values that were read are not those that were stored")

        async def work(times: int) -> None:
            for _ in range(times):
                await store[TEXT].get_many(_BATCH)

        yield Tasks(1, work)


@asynccontextmanager
async def our_writes(servers: Servers) -> AsyncIterator[Round]:
    """`put_many` of 100 values."""
    async with connect(servers.valkey.url, CATALOGUE) as store:

        async def work(times: int) -> None:
            for _ in range(times):
                await store[TEXT].put_many((fields, _VALUE) for fields in _BATCH)

        yield Tasks(1, work)


@asynccontextmanager
async def redis_py_reads(servers: Servers) -> AsyncIterator[Round]:
    """100 GETs in a pipeline of redis-py."""
    async with peers.redis_py(servers.valkey) as client:

        async def work(times: int) -> None:
            for _ in range(times):
                async with client.pipeline(transaction=False) as pipe:
                    for key in _KEYS:
                        pipe.get(key)
                    await pipe.execute()

        yield Tasks(1, work)


@asynccontextmanager
async def redis_py_writes(servers: Servers) -> AsyncIterator[Round]:
    """100 SETs with a TTL in a pipeline of redis-py."""
    async with peers.redis_py(servers.valkey) as client:

        async def work(times: int) -> None:
            for _ in range(times):
                async with client.pipeline(transaction=False) as pipe:
                    for key in _KEYS:
                        pipe.set(key, _VALUE, px=_HOUR)
                    await pipe.execute()

        yield Tasks(1, work)


@asynccontextmanager
async def kit_reads(servers: Servers) -> AsyncIterator[Round]:
    """`get_many` of redis-py-kit's cache."""
    async with peers.redis_py(servers.valkey) as client:
        cache = import_module("redis_kit").AsyncCache(client, prefix="kit")
        await cache.set_many(dict.fromkeys(_KEYS, _VALUE), ttl=3600)

        async def work(times: int) -> None:
            for _ in range(times):
                await cache.get_many(_KEYS)

        yield Tasks(1, work)


@asynccontextmanager
async def kit_writes(servers: Servers) -> AsyncIterator[Round]:
    """`set_many` of redis-py-kit's cache."""
    async with peers.redis_py(servers.valkey) as client:
        cache = import_module("redis_kit").AsyncCache(client, prefix="kit")
        values = dict.fromkeys(_KEYS, _VALUE)

        async def work(times: int) -> None:
            for _ in range(times):
                await cache.set_many(values, ttl=3600)

        yield Tasks(1, work)


ROWS = (
    Row(
        "batches: get_many of 100",
        our_reads,
        {"redis-py, pipeline": redis_py_reads, "redis-py-kit": kit_reads},
        (Times(3, "redis-py, pipeline"),),
        unit="batches/s",
    ),
    Row(
        "batches: put_many of 100",
        our_writes,
        {"redis-py, pipeline": redis_py_writes, "redis-py-kit": kit_writes},
        (Times(3, "redis-py, pipeline"),),
        unit="batches/s",
    ),
)
