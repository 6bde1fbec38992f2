"""The rows of our storage for limits: the same code of limits, with another URL.

The peers are limits' own storages on the clients that it supports: valkey-py and redis-py. Subjects come from
a thousand users in turn, and no limit is reached.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from benchmarks.load import Tasks, Threads
from benchmarks.rate_limits import users
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers

_TASKS, _THREADS = 50, 8
_PLENTY = 1_000_000
"""A limit per minute that a round stays below for each of the users."""
_OURS, _VALKEY_PY, _REDIS_PY = "ephemera", "valkey", "redis"


def hits(client: str, strategy: str, amount: int = _PLENTY) -> Opener:
    """Hits of async code on the storage of a client."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        import_module("ephemera.adapters.limits")
        limits, aio = import_module("limits"), import_module("limits.aio")
        options = {"implementation": "redispy"} if client == _REDIS_PY else {}
        url = servers.valkey.url.replace("redis", client, 1)
        storage = import_module("limits.storage").storage_from_string(f"async+{url}", **options)
        hit = aio.strategies.STRATEGIES[strategy](storage).hit
        item, subjects = limits.RateLimitItemPerMinute(amount), users()
        _check(await hit(item, "first", client))

        async def work(count: int) -> None:
            for _ in range(count):
                await hit(item, next(subjects))

        yield Tasks(_TASKS, work)
        if client == _OURS:
            await storage.aclose()

    return opened


def hits_of_threads(client: str, strategy: str) -> Opener:
    """Hits of threads on the storage of a client."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        import_module("ephemera.adapters.limits")
        limits, strategies = import_module("limits"), import_module("limits.strategies")
        url = servers.valkey.url.replace("redis", client, 1)
        storage = import_module("limits.storage").storage_from_string(url)
        hit: Callable[..., Any] = strategies.STRATEGIES[strategy](storage).hit
        item, subjects = limits.RateLimitItemPerMinute(_PLENTY), users()
        _check(hit(item, "first", client))

        def work(count: int) -> None:
            for _ in range(count):
                hit(item, next(subjects))

        yield Threads(_THREADS, work)
        if client == _OURS:
            storage.close()

    return opened


def _check(admitted: bool) -> None:
    if not admitted:
        raise RuntimeError("the first hit was denied")


def _row(strategy: str, amount: int = _PLENTY) -> Row:
    peers = {f"limits on {client}-py": hits(client, strategy, amount) for client in (_VALKEY_PY, _REDIS_PY)}
    return Row(f"limits' {strategy} on our storage", hits(_OURS, strategy, amount), peers, (Times(3),))


ROWS = (
    _row("fixed-window"),
    _row("moving-window", 1000),
    _row("sliding-window-counter"),
    Row(
        "limits' fixed-window on our storage, 8 threads",
        hits_of_threads(_OURS, "fixed-window"),
        {"limits on redis-py": hits_of_threads(_REDIS_PY, "fixed-window")},
        (Times(1.3),),
    ),
)
