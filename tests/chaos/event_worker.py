"""A process that consumes events, for tests that kill it.

It sends `ready`, and then consumes until it is killed or its pipe is closed, when it stops cleanly. The mode
`file` appends a line to a file for each handled event; `sql` writes one row per event to a database.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import psycopg

from ephemera import Catalogue, connect
from ephemera.patterns.events import Delivery, DeliveryPolicy, Events, Handler, OnceGuard

CATALOGUE = Catalogue("fault-events")


class Happened(msgspec.Struct):
    """An event with a number; a poisoned one cannot be handled."""

    number: int
    poisoned: bool = False


EVENTS = Events(
    CATALOGUE,
    "fault:events",
    Happened,
    purpose="Events whose consumers are killed",
    delivery=DeliveryPolicy(
        max_deliveries=8, first_retry=timedelta(milliseconds=50), lease=timedelta(seconds=1.5)
    ),
)
GROUP = "campaign"
ONCE = OnceGuard("fault_handled")
EFFECTS = "CREATE TABLE IF NOT EXISTS fault_effects (number int NOT NULL)"


@asynccontextmanager
async def to_file(place: str) -> AsyncIterator[Handler[Happened]]:
    """A handler that appends to a file, which outlives the process."""
    file = os.open(Path(place), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def handle(event: Happened, _delivery: Delivery) -> None:
        if event.number % 7 == 0:
            await asyncio.sleep(0.002)
        if event.poisoned:
            raise ValueError(f"{event.number} is poisoned")
        os.write(file, b"%d\n" % event.number)

    try:
        yield handle
    finally:
        os.close(file)


@asynccontextmanager
async def to_sql(place: str) -> AsyncIterator[Handler[Happened]]:
    """A handler whose row in SQL must exist once, however often the event is delivered."""
    async with await psycopg.AsyncConnection.connect(place, autocommit=True) as sql:
        alone = asyncio.Lock()

        async def handle(event: Happened, delivery: Delivery) -> None:
            async with alone, sql.transaction():
                claimed = await sql.execute(ONCE.pyformat, ONCE.values(delivery))
                if ONCE.is_first(await claimed.fetchone()):
                    await sql.execute("INSERT INTO fault_effects VALUES (%s)", (event.number,))

        yield handle


async def main(mode: str, url: str, place: str, line: Connection) -> None:
    """Consume until the pipe is closed."""
    opened = {"file": to_file, "sql": to_sql}[mode](place)
    async with connect(url, CATALOGUE) as store, opened as handle:
        async with store[EVENTS].consume(GROUP, handle):
            line.send("ready")
            with suppress(EOFError):
                await asyncio.to_thread(line.recv)


def work(mode: str, url: str, place: str, line: Connection) -> None:
    """The entry point of the process."""
    asyncio.run(main(mode, url, place, line))
