"""The peers, each in the fastest setup that we know.

Tried on the asyncio clients of one server:

- redis-py, with hiredis, RESP3, replies not decoded. At 50 tasks its plain pool with room for every task is
  20 to 30 % faster than `BlockingConnectionPool` of 10 to 100; at 500 tasks no size was clearly better.
  Without its default socket timeout it is 10 to 30 % faster when many tasks wait, so there it goes without.
- coredis multiplexes by itself; its pool size (1 to 50) makes no difference, so it has its defaults.
- valkey-glide multiplexes in Rust threads of its own; a larger in-flight limit changes nothing. Defaults,
  except for a timeout that is never reached.

The cluster clients and redis-py's threads have the same settings; nothing else was tried on them.
redis-benchmark is C, with 50 connections and 16 commands in each write: the server's speed, nearly.

Imports are late, so that a peer that is not installed is missing from its rows and nothing else.
"""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Any, TypeVar

from ephemera import embedded

ServerT = TypeVar("ServerT")
ClientOf = Callable[[ServerT], AbstractAsyncContextManager[Any]]
"""Gives a peer's connected client for a server or a cluster."""

_NO_HURRY = 10_000
"""Milliseconds, for a timeout that must not happen."""
_ENOUGH = 2000
"""Connections, so that no task waits for one."""


def redis_py(server: embedded.Valkey) -> AbstractAsyncContextManager[Any]:
    """redis-py's asyncio client with its default socket timeout, best for one task."""
    return _redis_py(server)


def redis_py_untimed(server: embedded.Valkey, **options: Any) -> AbstractAsyncContextManager[Any]:
    """redis-py's asyncio client with no socket timeout, best for many tasks."""
    return _redis_py(server, socket_timeout=None, **options)


@asynccontextmanager
async def _redis_py(server: embedded.Valkey, *, protocol: int = 3, **options: Any) -> AsyncIterator[Any]:
    redis = import_module("redis.asyncio")
    pool = redis.ConnectionPool.from_url(server.url, protocol=protocol, max_connections=_ENOUGH, **options)
    async with redis.Redis.from_pool(pool) as client:
        yield client


@asynccontextmanager
async def redis_py_cluster(cluster: embedded.Cluster) -> AsyncIterator[Any]:
    """redis-py's asyncio cluster client, with connections for every task on every node."""
    redis = import_module("redis.asyncio.cluster")
    nodes = [redis.ClusterNode("127.0.0.1", node.port) for node in cluster.nodes]
    options = {
        "password": cluster.nodes[0].password,
        "protocol": 3,
        "max_connections": _ENOUGH,
        "socket_timeout": None,
    }
    async with redis.RedisCluster(startup_nodes=nodes, **options) as client:
        yield client


@asynccontextmanager
async def coredis(server: embedded.Valkey) -> AsyncIterator[Any]:
    """The client of coredis with its defaults."""
    async with import_module("coredis").Redis("127.0.0.1", server.port, password=server.password) as client:
        yield client


@asynccontextmanager
async def coredis_cluster(cluster: embedded.Cluster) -> AsyncIterator[Any]:
    """The cluster client of coredis with its defaults."""
    module = import_module("coredis")
    nodes = [module.connection.TCPLocation("127.0.0.1", node.port) for node in cluster.nodes]
    async with module.RedisCluster(startup_nodes=nodes, password=cluster.nodes[0].password) as client:
        yield client


@asynccontextmanager
async def glide(server: embedded.Valkey) -> AsyncIterator[Any]:
    """valkey-glide's asyncio client."""
    module = import_module("glide")
    where = [module.NodeAddress("127.0.0.1", server.port)]
    credentials = module.ServerCredentials(server.password)
    settings = module.GlideClientConfiguration(where, credentials=credentials, request_timeout=_NO_HURRY)
    client = await module.GlideClient.create(settings)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def glide_cluster(cluster: embedded.Cluster) -> AsyncIterator[Any]:
    """valkey-glide's asyncio cluster client."""
    module = import_module("glide")
    where = [module.NodeAddress("127.0.0.1", node.port) for node in cluster.nodes]
    credentials = module.ServerCredentials(cluster.nodes[0].password)
    settings = module.GlideClusterClientConfiguration(
        where, credentials=credentials, request_timeout=_NO_HURRY
    )
    client = await module.GlideClusterClient.create(settings)
    try:
        yield client
    finally:
        await client.close()


class RedisBenchmark:
    """The round of a C program that sends one command as fast as it can."""

    def __init__(self, server: embedded.Valkey, *command: str) -> None:
        program = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
        if program is None:
            raise FileNotFoundError("redis-benchmark is not installed (Debian: apt install redis-tools)")
        # It takes a password on its command line alone, so it is a user who may send only this command.
        server.ask("ACL", "SETUSER", "benchmark", "reset", "on", ">benchmark", "~*", f"+{command[0]}")
        where = ("-h", "127.0.0.1", "-p", str(server.port), "--user", "benchmark", "-a", "benchmark")
        self._words = [program, *where, "-P", "16", "-c", "50", "--csv"]
        self._command = command
        self._pace = 0.0

    async def __call__(self, seconds: float) -> float:
        """Commands per second, by its own account."""
        if not self._pace:
            self._pace = await self._run(100_000)
        self._pace = await self._run(int(self._pace * seconds))
        return self._pace

    async def _run(self, count: int) -> float:
        process = await asyncio.create_subprocess_exec(
            *self._words, "-n", str(count), *self._command, stdout=PIPE, stderr=PIPE
        )
        out, problem = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"redis-benchmark failed: {problem.decode().strip()}")
        last = out.decode().strip().splitlines()[-1]  # "GET key","683293.44","0.95",...
        return float(last.split('","')[1])
