"""Rows of the drop-ins: code that uses redis.asyncio, unmodified, with `install()` and without.

Both sides are the same code with the same settings on clients of their own. `install()` replaces methods of
redis-py's classes, so ours is installed while its own turn lasts, and not in the peer's. limits checks a
fixed window by a script, cashews reads entries, and the store of starsessions reads and writes a session. Its
middleware does more than that for a request, in Python on both sides: that row has no target.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import cycle

from benchmarks import peers
from benchmarks.load import Tasks
from benchmarks.rate_limits import users
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers
from benchmarks.sessions import starsessions_handler, starsessions_store
from ephemera.adapters.redis_py import install

_TASKS = 50
_KEYS = 1000


def installed(code: Opener) -> Opener:
    """The same code, with shared connections while its turn lasts."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with code(servers) as work:

            async def turn(seconds: float) -> float:
                with install():
                    return await work(seconds)

            yield turn

    return opened


def reads(tasks: int) -> Opener:
    """GETs of redis-py by this many tasks."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with peers.redis_py_untimed(servers.valkey) as client:
            keys = [f"drop-in:{number}" for number in range(_KEYS)]
            await client.mset(dict.fromkeys(keys, b"x" * 100))
            turns = cycle(keys)

            async def work(count: int) -> None:
                for _ in range(count):
                    await client.get(next(turns))

            yield Tasks(tasks, work)

    return opened


@asynccontextmanager
async def limits_hits(servers: Servers) -> AsyncIterator[Round]:
    """A fixed window of limits on redis-py."""
    package, aio = import_module("limits"), import_module("limits.aio")
    options = {"implementation": "redispy", "max_connections": 2000, "socket_timeout": None, "protocol": 3}
    storage = package.storage.storage_from_string(f"async+{servers.valkey.url}", **options)
    limiter, limit = aio.strategies.FixedWindowRateLimiter(storage), package.parse("1000000/minute")
    subjects = users()

    async def work(count: int) -> None:
        for _ in range(count):
            if not await limiter.hit(limit, next(subjects)):
                raise RuntimeError("a limit that is not reached was denied")

    yield Tasks(_TASKS, work)
    await storage.bridge.get_connection().connection_pool.disconnect()


@asynccontextmanager
async def cashews_reads(servers: Servers) -> AsyncIterator[Round]:
    """Entries of cashews, read by their keys."""
    cache = import_module("cashews").Cache()
    cache.setup(servers.valkey.url, max_connections=2000, socket_timeout=None)
    keys = [f"drop-in:cashews:{number}" for number in range(_KEYS)]
    for number, key in enumerate(keys):
        await cache.set(key, {"number": number}, expire=3600)
    turns = cycle(keys)

    async def work(count: int) -> None:
        for _ in range(count):
            if await cache.get(next(turns)) is None:
                raise RuntimeError("an entry is missing")

    yield Tasks(_TASKS, work)
    await cache.close()


def _row(name: str, code: Opener, factor: float, peer: str) -> Row:
    return Row(f"drop-in: {name}", installed(code), {peer: code}, (Times(factor, peer),))


ROWS = (
    _row("redis-py, 50 tasks, GET", reads(50), 6, "redis-py"),
    _row("redis-py, 500 tasks, GET", reads(500), 12, "redis-py"),
    _row("limits on redis-py", limits_hits, 3, "limits"),
    _row("cashews on redis-py", cashews_reads, 5, "cashews"),
    _row("store of starsessions on redis-py", starsessions_store, 5, "starsessions"),
    Row(
        "drop-in: middleware of starsessions on redis-py",
        installed(starsessions_handler),
        {"starsessions": starsessions_handler},
    ),
)
