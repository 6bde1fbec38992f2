"""Write-behind's rows: counting through Redis against one UPDATE each, and a flush against a bare COPY.

The peer of counting is what it replaces: `UPDATE ... SET n = n + 1`, each in its own transaction, by as many
tasks, on open psycopg 3 connections: one per task, and 50 that 500 tasks share. The peer of a flush is
psycopg's COPY of the same rows, as tuples in memory, into the same table: it does not have to read them from
Redis, nor to record that it wrote them. The longest PING is that of another process, which asks once a
millisecond while a million counters are sealed, read, written and removed.

Servers "as deployed" are PostgreSQL with its defaults, whose commits are on disk before they are
acknowledged, and a queue configured by `server-config`, whose log reaches the disk within a second. In the
rows without a disk neither waits for one, so that both may lose the same.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import cycle, islice
from statistics import median
from typing import Any

import msgspec
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.bystander import undisturbed
from benchmarks.load import Tasks
from benchmarks.rows import Absolute, Opener, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, connect, embedded
from ephemera.operations.configuration import server_settings
from ephemera.patterns.write_behind import (
    CounterTable,
    DeferredCounters,
    DeferredRecords,
    Flusher,
    RecordTable,
    create_tables,
)

_TASKS = 50
_CROWD = 500  # tasks: requests that count at the same moment on a busy service
_CONNECTIONS = 50
_PAGES = 1000
_RECORDS = 100_000
_COUNTERS = 1_000_000
_ADDED = 10_000  # counters that are added in one tick while a flush is prepared
_APPENDED = 1000  # records that one call appends while a flush is prepared


class Event(msgspec.Struct):
    """What a record is here."""

    number: int
    user_id: str
    page: str
    text: str


CATALOGUE = Catalogue("bench-write-behind")
VIEWS = DeferredCounters(
    CATALOGUE,
    "bench:views",
    key=["page"],
    measures=["views"],
    purpose="Measured here",
    flush_every=timedelta(seconds=1),
)
HITS = DeferredCounters(
    CATALOGUE,
    "bench:hits",
    key=["page"],
    measures=["hits"],
    purpose="Measured here",
    flush_every=timedelta(hours=1),
)
EVENTS = DeferredRecords(
    CATALOGUE, "bench:events", Event, purpose="Measured here", flush_every=timedelta(hours=1)
)

METADATA = sa.MetaData()
PAGES = sa.Table(
    "bench_pages",
    METADATA,
    sa.Column("page", sa.Text, primary_key=True),
    sa.Column("views", sa.BigInteger, nullable=False),
)
HIT_PAGES = sa.Table(
    "bench_hits",
    METADATA,
    sa.Column("page", sa.Text, primary_key=True),
    sa.Column("hits", sa.BigInteger, nullable=False),
)
_EVENT_COLUMNS = (("number", sa.BigInteger), ("user_id", sa.Text), ("page", sa.Text), ("text", sa.Text))
LOGGED = sa.Table("bench_log", METADATA, *(sa.Column(*column) for column in _EVENT_COLUMNS))
KEYED = sa.Table(
    "bench_keyed",
    METADATA,
    *(sa.Column(name, kind, primary_key=name == "number") for name, kind in _EVENT_COLUMNS),
)


@asynccontextmanager
async def _engine(database: embedded.Postgres) -> AsyncIterator[Any]:
    engine = create_async_engine(database.url.replace("postgresql:", "postgresql+psycopg:", 1))
    await create_tables(engine)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
        await connection.execute(sa.text("TRUNCATE bench_log, bench_keyed, bench_hits"))
        await connection.execute(
            sa.text(
                f"INSERT INTO bench_pages SELECT 'page-' || n, 0 FROM generate_series(0, {_PAGES - 1}) n "
                "ON CONFLICT DO NOTHING"
            )
        )
    try:
        yield engine
    finally:
        await engine.dispose()


_SHUFFLED = random.sample([f"page-{number}" for number in range(_PAGES)], _PAGES)


def _pages() -> Iterator[str]:
    """Pages in an order of chance, forever, from a place of chance on."""
    return islice(cycle(_SHUFFLED), random.randrange(_PAGES), None)


def _database(servers: Servers, *, deployed: bool) -> embedded.Postgres:
    return servers.durable_postgres if deployed else servers.postgres


_QUEUE = {each.name: each.value for each in server_settings("queue", "256mb") if each.name != "bind"}


def our_counting(tasks: int, *, deployed: bool = False) -> Opener:
    """Counting in Redis, while a flusher brings it to SQL every second; by unix sockets, as the peer does."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        with embedded.valkey(unix=True, config=_QUEUE if deployed else {}) as valkey:
            database = _database(servers, deployed=deployed)
            delay = timedelta(seconds=2 if deployed else 0)  # without a disk there is nothing to wait for
            async with _engine(database) as engine, connect(valkey.url, CATALOGUE) as store:
                add = store[VIEWS].add

                async def work(times: int) -> None:
                    for page in islice(_pages(), times):
                        await add(page=page, views=1)

                async with Flusher(store[VIEWS], CounterTable(engine, PAGES, VIEWS), write_delay=delay):
                    yield Tasks(tasks, work)

    return opened


def sql_counting(tasks: int, *, deployed: bool = False) -> Opener:
    """An UPDATE each."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        database = _database(servers, deployed=deployed)
        async with _engine(database), AsyncExitStack() as stack:
            free: asyncio.LifoQueue[Any] = asyncio.LifoQueue()
            for _ in range(_CONNECTIONS):
                connecting = psycopg.AsyncConnection.connect(database.url, autocommit=True)
                free.put_nowait(await stack.enter_async_context(await connecting))

            async def work(times: int) -> None:
                kept = tasks <= _CONNECTIONS  # else they take turns
                connection = await free.get() if kept else None
                for page in islice(_pages(), times):
                    using = connection or await free.get()
                    await using.execute("UPDATE bench_pages SET views = views + 1 WHERE page = %s", (page,))
                    if not kept:
                        free.put_nowait(using)
                if kept:
                    free.put_nowait(connection)

            yield Tasks(tasks, work)

    return opened


def _events(turn: int) -> list[Event]:
    first = turn * _RECORDS
    return [
        Event(n, f"user-{n % 5000}", f"page-{n % _PAGES}", "something that happened, in a few words")
        for n in range(first, first + _RECORDS)
    ]


class Flushing:
    """A round of writing 100,000 records, as often as the time allows; milliseconds of one."""

    def __init__(self, prepare: Callable[[int], Any], write: Callable[[Any], Any], clear: Any) -> None:
        self._prepare, self._write, self._clear = prepare, write, clear

    async def __call__(self, seconds: float) -> float:
        """The median."""
        took: list[float] = []
        ends = time.perf_counter() + seconds
        while not took or time.perf_counter() < ends:
            prepared = await self._prepare(len(took))
            began = time.perf_counter()
            await self._write(prepared)
            took.append(time.perf_counter() - began)
            await self._clear()
        return median(took) * 1000


def _our_flush(table: sa.Table, unique: tuple[str, ...]) -> Any:
    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with _engine(servers.postgres) as engine, connect(servers.valkey.url, CATALOGUE) as store:
            sink = RecordTable(engine, table, unique=unique)
            flusher = Flusher(store[EVENTS], sink, write_delay=timedelta(0))

            async def prepare(turn: int) -> None:
                events = _events(turn)
                for first in range(0, _RECORDS, _APPENDED):
                    await store[EVENTS].append(*events[first : first + _APPENDED])

            async def write(_: None) -> None:
                flushed = await flusher.flush()
                assert flushed.rows == _RECORDS, flushed

            async def clear() -> None:
                async with engine.begin() as connection:
                    await connection.execute(sa.text(f"TRUNCATE {table.name}"))

            yield Flushing(prepare, write, clear)

    return opened


def _bare_copy(table: sa.Table) -> Any:
    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with (
            _engine(servers.postgres),
            await psycopg.AsyncConnection.connect(servers.postgres.url, autocommit=True) as connection,
        ):

            async def prepare(turn: int) -> list[tuple[Any, ...]]:
                return [msgspec.structs.astuple(event) for event in _events(turn)]

            async def write(rows: list[tuple[Any, ...]]) -> None:
                copying = f"COPY {table.name} (number, user_id, page, text) FROM STDIN"
                async with connection.cursor() as cursor, cursor.copy(copying) as copy:
                    for row in rows:
                        await copy.write_row(row)

            async def clear() -> None:
                await connection.execute(f"TRUNCATE {table.name}")

            yield Flushing(prepare, write, clear)

    return opened


@asynccontextmanager
async def longest_ping(servers: Servers) -> AsyncIterator[Round]:
    """The longest PING of another client while a million counters are flushed; milliseconds."""
    with embedded.valkey() as valkey:
        undisturbed(valkey.pid)  # so that the figure is the server's, and not the scheduler's
        url = valkey.url + "?timeout=30"
        async with _engine(servers.postgres) as engine, connect(url, CATALOGUE) as store:
            add = store[HITS].add
            flusher = Flusher(store[HITS], CounterTable(engine, HIT_PAGES, HITS), write_delay=timedelta(0))

            async def flushed(seconds: float) -> float:
                for first in range(0, _COUNTERS, _ADDED):
                    await asyncio.gather(*(add(page=f"page-{first + n}", hits=1) for n in range(_ADDED)))
                pinging = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "benchmarks.bystander", valkey.url, stdin=PIPE, stdout=PIPE
                )
                done = await flusher.flush()
                assert done.rows == _COUNTERS, done
                printed, _ = await pinging.communicate(b"")  # the end of its input
                async with engine.begin() as connection:
                    await connection.execute(sa.text("TRUNCATE bench_hits"))
                return float(printed)

            yield flushed


ROWS = (
    Row(
        "write_behind: 50 tasks, count, servers as deployed",
        our_counting(_TASKS, deployed=True),
        {"SQL UPDATE each": sql_counting(_TASKS, deployed=True)},
        (Times(20, "SQL UPDATE each"),),
        unit="increments/s",
    ),
    Row(
        "write_behind: 500 tasks, count, servers as deployed",
        our_counting(_CROWD, deployed=True),
        {"SQL UPDATE each": sql_counting(_CROWD, deployed=True)},
        (Times(20, "SQL UPDATE each"),),
        unit="increments/s",
    ),
    Row(
        "write_behind: 50 tasks, count, no disk",
        our_counting(_TASKS),
        {"SQL UPDATE each": sql_counting(_TASKS)},
        (Times(20, "SQL UPDATE each"),),
        unit="increments/s",
    ),
    Row(
        "write_behind: 500 tasks, count, no disk",
        our_counting(_CROWD),
        {"SQL UPDATE each": sql_counting(_CROWD)},
        (Times(20, "SQL UPDATE each"),),
        unit="increments/s",
    ),
    Row(
        "write_behind: flush of 100,000 records",
        _our_flush(LOGGED, ()),
        {"bare COPY": _bare_copy(LOGGED)},
        (Times(1 / 3, "bare COPY"),),
        unit="ms",
        higher_is_better=False,
    ),
    Row(
        "write_behind: flush of 100,000 records, unique",
        _our_flush(KEYED, ("number",)),
        {"bare COPY": _bare_copy(KEYED)},
        (Times(1 / 3, "bare COPY"),),
        unit="ms",
        higher_is_better=False,
    ),
    Row(
        "write_behind: longest PING during a flush of 1,000,000 counters",
        longest_ping,
        targets=(Absolute(20, "ms", at_most=True),),
        unit="ms",
        higher_is_better=False,
        patience=300,
    ),
)
