"""Rows of what there is to pay before the first request, and of bytes on the server.

A service that has sessions, a cache and limits imports them and opens its clients: CPU time and resident
memory of a process that does nothing else. The peer does the same with redis-py, starsessions, cashews and
limits. Sessions are 200 bytes of JSON each; the peer is a bare hash of the same fields with a TTL, and no
index that can end all sessions of a user.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from benchmarks.imports import cpu_time
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, Store, connect, sliding
from ephemera.patterns.sessions import Sessions

_OURS = """
from datetime import timedelta
from ephemera import Cache, Catalogue, RateLimits, Sessions, fixed_window, sliding
catalogue = Catalogue("shop")
class Session(__import__("msgspec").Struct):
    user_id: str
SESSIONS = Sessions(catalogue, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=24))
PROFILE = Cache(catalogue, "profile:{user_id}", dict, fresh=timedelta(minutes=5), purpose="Profiles")
LIMITS = RateLimits(catalogue, "limits", fixed_window("requests", 100, per=timedelta(minutes=1)))
from ephemera.web import LimitMiddleware, SessionMiddleware
"""
_THEIRS = """
import redis.asyncio
from starsessions import SessionAutoloadMiddleware, SessionMiddleware
from starsessions.stores.redis import RedisStore
from limits import RateLimitItemPerMinute
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter
from cashews import Cache
client = redis.asyncio.Redis()
store = RedisStore(connection=client)
limiter = FixedWindowRateLimiter(RedisStorage("async+redis://localhost:6379", implementation="redispy"))
cache = Cache()
cache.setup("redis://localhost:6379")
"""
_MEMORY = """
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
"""

_SESSIONS = 1_000_000
_AT_ONCE = 500
_DAY = 86_400_000  # milliseconds


class Session(msgspec.Struct):
    """What is stored of each: 200 bytes as JSON."""

    user_id: str
    role: str = "editor"
    email: str = "anna@example.org"
    plan: str = "team"
    created_at: str = "2026-03-01T10:00:00Z"
    ip: str = "95.24.128.55"
    agent: str = "Mozilla/5.0 (X11; Linux x86_64)"


CATALOGUE = Catalogue("bench-footprint")
VALUES = Sessions(
    CATALOGUE, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=24), kind="value"
)


def starting(source: str, figure: Callable[[str], float]) -> Opener:
    """A contender whose figure is of a process that runs the source."""

    @asynccontextmanager
    async def opened(_: Servers) -> AsyncIterator[Round]:
        figure(source)  # its bytecode is written

        async def measured_round(_seconds: float) -> float:
            return figure(source)

        yield measured_round

    return opened


def _cpu(source: str) -> float:
    return cpu_time(source, 8)


def _resident(source: str) -> float:
    printed = subprocess.run([sys.executable, "-c", source + _MEMORY], capture_output=True, check=True).stdout
    return int(printed) / 1024


def stored(write: Callable[[Store, int], Awaitable[Any]]) -> Opener:
    """A contender whose figure is the bytes that each session adds to the server."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        # Removing a million keys at once takes longer than a server may be silent.
        async with connect(f"{servers.valkey.url}?timeout=30", CATALOGUE) as store:

            async def measured_round(_seconds: float) -> float:
                await store.call("FLUSHALL", "SYNC")
                before = await _used(store)
                for first in range(0, _SESSIONS, _AT_ONCE):
                    await asyncio.gather(*(write(store, first + each) for each in range(_AT_ONCE)))
                if (keys := int(await store.call("DBSIZE"))) < _SESSIONS:
                    raise RuntimeError(f"{keys} keys in place of {_SESSIONS} sessions")
                return (await _used(store) - before) / _SESSIONS

            yield measured_round

    return opened


async def _used(store: Store) -> int:
    report: bytes = await store.call("INFO", "memory")
    return next(int(line[12:]) for line in report.split() if line.startswith(b"used_memory:"))


def _user(number: int) -> Session:
    return Session(f"018e9a1f-b3c2-7654-9abc-{number:012x}")


async def ours(store: Store, number: int) -> None:
    """A session, and the index of its user."""
    await store[VALUES].create(_user(number))


async def bare_hash(store: Store, number: int) -> None:
    """A hash with a TTL, under a token of the same length."""
    key = f"session:{number:043x}"
    fields = [each for pair in msgspec.structs.asdict(_user(number)).items() for each in pair]
    await asyncio.gather(store.call("HSET", key, *fields), store.call("PEXPIRE", key, _DAY))


def _service(name: str, figure: Callable[[str], float], unit: str) -> Row:
    return Row(
        name,
        starting(_OURS, figure),
        {"redis-py, starsessions, limits, cashews": starting(_THEIRS, figure)},
        (Times(1),),
        unit=unit,
        higher_is_better=False,
    )


ROWS = (
    _service("start: CPU time of sessions, a cache and limits", _cpu, "ms"),
    _service("start: memory of sessions, a cache and limits", _resident, "MB"),
    Row(
        "memory: a session of 200 bytes on the server",
        stored(ours),
        {"bare hash with a TTL": stored(bare_hash)},
        (Times(1 / 1.25, "bare hash with a TTL"),),
        unit="bytes",
        higher_is_better=False,
        patience=900.0,  # a million sessions are written, on a busy machine too
    ),
)
