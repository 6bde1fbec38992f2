"""Processes that flush and die at a given step, started by a fork server that has everything loaded."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from datetime import timedelta
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ephemera import Catalogue, connect
from ephemera.patterns.write_behind import (
    Batch,
    CounterTable,
    DeferredCounters,
    DeferredRecords,
    Flusher,
    RecordTable,
    Sink,
    create_tables,
)
from ephemera.patterns.write_behind._flusher import FlushSource


class Noted(msgspec.Struct):
    """A record with a number."""

    number: int
    text: str


CATALOGUE = Catalogue("fault-write-behind")
COUNTED = DeferredCounters(
    CATALOGUE,
    "counted",
    key=("page",),
    measures=("hits",),
    purpose="Counters to be killed over",
    flush_every=timedelta(milliseconds=20),
    shards=3,
)
NOTED = DeferredRecords(
    CATALOGUE,
    "noted",
    Noted,
    purpose="Records to be killed over",
    flush_every=timedelta(milliseconds=20),
    batch=50,
    shards=3,
)
METADATA = sa.MetaData()
PAGES = sa.Table(
    "fault_pages",
    METADATA,
    sa.Column("page", sa.Text, primary_key=True),
    sa.Column("hits", sa.BigInteger, nullable=False),
)
NOTES = sa.Table(
    "fault_notes", METADATA, sa.Column("number", sa.BigInteger, nullable=False), sa.Column("text", sa.Text)
)
CLAIM_TIMEOUT = timedelta(milliseconds=150)

STEPS = (
    "sealed", "read", "claimed", "written", "committing", "committed", "called",
    "acknowledging", "acknowledged",
)  # fmt: skip
"""Where a flusher can die: after the named step, or in the middle of it."""

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])


def die() -> None:
    """End this process at once, as a crash would."""
    os.kill(os.getpid(), signal.SIGKILL)


def start(kind: str, redis: str, sql: str, step: str | None = None) -> BaseProcess:
    """Return a process that flushes counters or records forever, or once until it dies at a step."""
    process = _forks.Process(target=_main, args=(kind, redis, sql, step), daemon=True)
    process.start()
    return process


def engine_of(sql: str) -> AsyncEngine:
    """Return an engine that does not keep connections of a killed server."""
    return create_async_engine(sql, pool_pre_ping=True)


def sink_of(kind: str, engine: AsyncEngine) -> Sink:
    """Return the table of counters or of records."""
    return CounterTable(engine, PAGES, COUNTED) if kind == "counters" else RecordTable(engine, NOTES)


async def prepare(engine: AsyncEngine) -> None:
    """Create all tables, empty."""
    await create_tables(engine)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
        for table in ("fault_pages", "fault_notes", "write_behind_last_batches", "write_behind_rejected"):
            await connection.execute(sa.text(f"TRUNCATE {table}"))


def _main(kind: str, redis: str, sql: str, step: str | None) -> None:
    asyncio.run(_flush(kind, redis, sql, step))


async def _flush(kind: str, redis: str, sql: str, step: str | None) -> None:
    engine = engine_of(sql)
    async with connect(redis, CATALOGUE, required=False) as store:
        source: FlushSource = store[COUNTED] if kind == "counters" else store[NOTED]
        if step is None:
            await Flusher(
                source, sink_of(kind, engine), claim_timeout=CLAIM_TIMEOUT, write_delay=timedelta(0)
            ).run()
        else:
            await _die_after(step, source, sink_of(kind, engine), engine)


async def _die_after(step: str, source: Any, sink: Any, engine: AsyncEngine) -> None:
    async def called(_: Batch) -> None:
        if step == "called":
            die()

    if step == "sealed":
        source._queue.read = lambda _: die()
    elif step in ("read", "committed"):
        sink.apply = _dying_around(sink.apply, before=step == "read")
    elif step == "claimed":
        _die_after_statement(engine, "INSERT INTO write_behind_last_batches")
    elif step == "written":
        sink._write = _dying_around(sink._write, before=False)
    elif step == "committing":
        event.listen(engine.sync_engine, "commit", _send_commit_and_die)
    elif step == "acknowledging":
        source._queue.acknowledge = _dying_while(source._queue.acknowledge)
    elif step == "acknowledged":
        source._queue.acknowledge = _dying_around(source._queue.acknowledge, before=False)
    await Flusher(
        source, sink, on_applied=called, claim_timeout=CLAIM_TIMEOUT, write_delay=timedelta(0)
    ).flush()


def _dying_around(work: Any, *, before: bool) -> Any:
    async def dying(*arguments: Any) -> Any:
        if not before:
            await work(*arguments)
        die()

    return dying


def _dying_while(work: Any) -> Any:
    async def dying(*arguments: Any) -> Any:
        task = asyncio.create_task(work(*arguments))
        for _ in range(3):  # by now the command is written, and hardly answered
            await asyncio.sleep(0)
        assert not task.done()
        die()

    return dying


def _die_after_statement(engine: AsyncEngine, beginning: str) -> None:
    def executed(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith(beginning):
            die()

    event.listen(engine.sync_engine, "after_cursor_execute", executed)


def _send_commit_and_die(connection: Any) -> None:
    driver = connection.connection.driver_connection
    driver.pgconn.send_query(b"COMMIT")
    while driver.pgconn.flush():
        pass
    die()
