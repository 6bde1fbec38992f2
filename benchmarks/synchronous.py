"""The rows of synchronous code: GET of 100 bytes over loopback TCP, and a typed read.

The peer is redis-py with hiredis, on its fastest settings; our drop-in and redis-py are compared on their
default settings. A thread waits for one reply at a time. Every contender's reply is compared with what was
stored before it is measured. Forked children and greenlets read in processes of their own.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from benchmarks.blocking_process import GREENLETS
from benchmarks.load import Load, Threads
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, fixed, sync
from ephemera.sync import SyncStore

KEY = "bench:sync:plain"
VALUE = "v" * 100
CATALOGUE = Catalogue("bench_sync")
TEXT = CATALOGUE.value("bench:sync:{name}", str, lifetime=fixed(hours=1), purpose="A value to read")


def call(store: SyncStore) -> Any:
    """Read by a command."""
    return store.call("GET", KEY)


def get(store: SyncStore) -> Any:
    """Read by an accessor, which decodes and counts."""
    return store[TEXT].get(name="typed")


def ours(threads: int, read: Callable[[SyncStore], Any]) -> Opener:
    """That many threads that share one of our stores."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        with sync.connect(servers.valkey.url, CATALOGUE) as store:
            await asyncio.to_thread(_prepare, store)
            await asyncio.to_thread(lambda: _check(read(store)))

            def work(count: int) -> None:
                for _ in range(count):
                    read(store)

            yield Threads(threads, work)

    return opened


def redis_py(threads: int, module: str = "redis", **options: Any) -> Opener:
    """That many threads that share the pool of a module's `Redis`: redis-py's, or our drop-in's."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        with import_module(module).Redis.from_url(servers.valkey.url, **options) as client:
            client.set(KEY, VALUE)
            _check(client.get(KEY))

            def work(count: int) -> None:
                for _ in range(count):
                    client.get(KEY)

            yield Threads(threads, work)

    return opened


class ProcessLoad(Load):
    """The load of a `benchmarks.blocking_process`, which is given how much to do."""

    def __init__(self, process: Process, workers: int) -> None:
        super().__init__(workers)
        self._process = process

    async def perform(self, each: int) -> float:
        """Have every worker read this often, and return the seconds it took."""
        questions, answers = self._process.stdin, self._process.stdout
        if questions is None or answers is None:
            raise RuntimeError("the process was started without pipes")
        questions.write(b"%d\n" % each)
        if not (seconds := await answers.readline()):
            raise RuntimeError("its process has ended, as when gevent is not installed")
        return float(seconds)


def process(mode: str, name: str) -> Opener:
    """A process that reads in a "forked" child or in "gevent", by "ours" or "redis-py"."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        command = (sys.executable, "-m", "benchmarks.blocking_process", mode, name, servers.valkey.url)
        started = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        yield ProcessLoad(started, GREENLETS if mode == "gevent" else 1)
        await started.communicate(b"")  # its input ends, and so does it

    return opened


def _prepare(store: SyncStore) -> None:
    store.call("SET", KEY, VALUE)
    store[TEXT].put(VALUE, name="typed")


def _check(reply: Any) -> None:
    if reply not in (VALUE, VALUE.encode()):
        raise RuntimeError(f"GET answered {reply!r} in place of the stored value")


def _row(name: str, contender: Opener, threads: int, target: float, **options: Any) -> Row:
    peer = {"redis-py": redis_py(threads, **options)}
    return Row(f"sync: {name}", contender, peer, (Times(target, "redis-py"),))


_DROP_IN = "ephemera.adapters.redis_py.sync"
_BARE: dict[str, Any] = {"protocol": 3, "socket_timeout": None}  # redis-py's fastest settings

ROWS = (
    _row("one thread, call", ours(1, call), 1, 1.3, **_BARE),
    _row("one thread, store[X].get", ours(1, get), 1, 1.3, **_BARE),
    _row("8 threads, call", ours(8, call), 8, 3, **_BARE),
    _row("8 threads, store[X].get", ours(8, get), 8, 3, **_BARE),
    Row(
        "sync: forked child, call",
        process("forked", "ours"),
        {"redis-py": process("forked", "redis-py")},
        (Times(1.3, "redis-py"),),
    ),
    Row(
        "sync: 8 greenlets of gevent, call",
        process("gevent", "ours"),
        {"redis-py": process("gevent", "redis-py")},
    ),
    _row("one thread, redis-py code", redis_py(1, _DROP_IN), 1, 1.0),
    _row("8 threads, redis-py code", redis_py(8, _DROP_IN), 8, 2.0),
)
