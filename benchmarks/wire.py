"""The wire's rows: GET of 100 bytes from the embedded Valkey over loopback TCP, uvloop.

Every contender's reply is compared with what was stored before it is measured. The CPU time per call on six
masters is compared with that on one; the target, 0.77 of one master, is at most 1.3 times its time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from typing import Any

from benchmarks import peers
from benchmarks.load import Tasks
from benchmarks.peers import ClientOf
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import embedded
from ephemera.wire import open_client

KEY = "bench:wire"
VALUE = b"v" * 100
SPREAD = [f"bench:wire:{number}" for number in range(300)]
"""Keys that lie on all nodes of a cluster."""


def ours(tasks: int) -> Opener:
    """Our client, that many tasks."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with open_client(_stocked(servers).url) as client:
            _check(await client.call("GET", KEY))

            async def work(count: int) -> None:
                for _ in range(count):
                    await client.call("GET", KEY)

            yield Tasks(tasks, work)

    return opened


def peer(client_of: ClientOf[embedded.Valkey], tasks: int) -> Opener:
    """A peer's client, that many tasks."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with client_of(_stocked(servers)) as client:
            _check(await client.get(KEY))

            async def work(count: int) -> None:
                for _ in range(count):
                    await client.get(KEY)

            yield Tasks(tasks, work)

    return opened


@asynccontextmanager
async def redis_benchmark(servers: Servers) -> AsyncIterator[Round]:
    """What C reaches with 50 connections and 16 commands in each write."""
    yield peers.RedisBenchmark(_stocked(servers), "GET", KEY)


@asynccontextmanager
async def our_cluster(servers: Servers) -> AsyncIterator[Round]:
    """Our cluster client, keys on all masters."""
    async with open_client(servers.cluster.url) as client:
        for key in SPREAD:
            await client.call("SET", key, VALUE)

        async def work(count: int) -> None:
            for key in islice(cycle(SPREAD), count):
                await client.call("GET", key)

        yield Tasks(50, work)


def peer_cluster(client_of: ClientOf[embedded.Cluster]) -> Opener:
    """A peer's cluster client, keys on all masters."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with client_of(servers.cluster) as client:
            for key in SPREAD:
                _check(await client.get(key))

            async def work(count: int) -> None:
                for key in islice(cycle(SPREAD), count):
                    await client.get(key)

            yield Tasks(50, work)

    return opened


def cpu_per_call(masters: int) -> Opener:
    """The CPU time of this process for each call on a cluster of this many masters, in microseconds."""

    @asynccontextmanager
    async def opened(_: Servers) -> AsyncIterator[Round]:
        calls = 0
        with embedded.cluster(masters=masters, replicas=0) as cluster:
            async with open_client(cluster.url) as client:
                for key in SPREAD:
                    await client.call("SET", key, VALUE)

                async def work(count: int) -> None:
                    nonlocal calls
                    calls += count
                    for key in islice(cycle(SPREAD), count):
                        await client.call("GET", key)

                reads = Tasks(50, work)

                async def cost(seconds: float) -> float:
                    nonlocal calls
                    calls, began = 0, time.process_time()
                    await reads(seconds)
                    return (time.process_time() - began) / calls * 1e6

                yield cost

    return opened


def _stocked(servers: Servers) -> embedded.Valkey:
    """The row's server, with the key that everyone reads."""
    servers.valkey.ask("SET", KEY, VALUE.decode())
    return servers.valkey


def _check(reply: Any) -> None:
    if reply != VALUE:
        raise RuntimeError(f"GET answered {reply!r} in place of the stored value")


def _peers(tasks: int) -> dict[str, Opener]:
    return {
        "redis-py": peer(peers.redis_py if tasks == 1 else peers.redis_py_untimed, tasks),
        "coredis": peer(peers.coredis, tasks),
        "valkey-glide": peer(peers.glide, tasks),
    }


ROWS = (
    Row("wire: 50 tasks", ours(50), _peers(50), (Times(8, "redis-py"), Times(5))),
    Row("wire: 500 tasks", ours(500), _peers(500), (Times(12, "redis-py"), Times(6))),
    Row("wire: one task at a time", ours(1), _peers(1), (Times(1.6),)),
    Row("wire: 500 tasks, share of C", ours(500), {"redis-benchmark": redis_benchmark}, (Times(0.4),)),
    Row(
        "wire: 3+3 cluster, 50 tasks",
        our_cluster,
        {
            "redis-py": peer_cluster(peers.redis_py_cluster),
            "coredis": peer_cluster(peers.coredis_cluster),
            "valkey-glide": peer_cluster(peers.glide_cluster),
        },
        (Times(10, "redis-py"),),
    ),
    Row(
        "wire: CPU time per call on 6 masters, 50 tasks",
        cpu_per_call(6),
        {"1 master": cpu_per_call(1)},
        (Times(1 / 1.3, "1 master"),),
        unit="µs",
        higher_is_better=False,
    ),
)
