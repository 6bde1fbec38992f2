"""What the log says of an outage: that the server is lost, and that it is back, and nothing in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from time import monotonic

import msgspec
import pytest
import socketio

from ephemera import Cache, Catalogue, Events, LocalCache, Store, connect
from ephemera.adapters.socketio import AsyncRedisManager
from ephemera.embedded import Postgres, Valkey, free_ports, valkey
from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.events import Delivery
from ephemera.patterns.jobs import WorkerSettings
from ephemera.patterns.jobs._sql_worker import SqlWorker
from ephemera.patterns.jobs._supervisor import Pulse
from tests.patterns.job_fixtures import JOBS
from tests.patterns.job_store import opened

pytestmark = pytest.mark.standalone("it stops the one server, or closes its connections")

CATALOGUE = Catalogue("outage_log")
NUMBER = Cache(
    CATALOGUE, "number:{n}", int, fresh=timedelta(minutes=1), local=LocalCache(), purpose="A number"
)


class Happened(msgspec.Struct):
    """An event."""


EVENTS = Events(CATALOGUE, "happened", Happened, purpose="What happened")


def lines(logged: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The level and the logger of every line of ours."""
    return [
        (each.levelname, each.name)
        for each in logged.records
        if each.name.startswith("ephemera") and each.levelno >= logging.INFO
    ]


async def load(n: int) -> int:
    """Load a number."""
    return n


async def use(store: Store) -> None:
    """Whatever a service does, even while the server is down."""
    with suppress(ConnectionFailed, ServerError):
        await store.call("SET", "greeting", "hello")
    with suppress(ConnectionFailed, ServerError):
        await store.call("KEYS", "*")  # on the second lane
    assert await store[NUMBER].get_or_load(load, n=7) == 7


async def used_until(store: Store, condition: Callable[[], bool], seconds: float = 30) -> None:
    """Use the store until something has happened."""
    deadline = monotonic() + seconds
    while not condition() and monotonic() < deadline:
        await use(store)
        await asyncio.sleep(0.02)


async def test_an_outage_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Some seconds without the server, with a subscription and two lanes: one WARNING and one INFO."""
    caplog.set_level(logging.INFO, logger="ephemera")
    with valkey() as own:
        async with connect(own.url, CATALOGUE) as store, store.subscribe("news"):
            await use(store)
            own.kill()
            await used_until(store, lambda: False, seconds=2.5)
            assert lines(caplog) == [("WARNING", "ephemera.wire")]
            own.restart()
            await used_until(store, lambda: len(lines(caplog)) > 1)
            await used_until(store, lambda: False, seconds=1.5)
    assert lines(caplog) == [("WARNING", "ephemera.wire"), ("INFO", "ephemera.wire")]
    lost, back = (each.getMessage() for each in caplog.records if each.name == "ephemera.wire")
    assert lost.endswith("; reconnecting")
    assert back.endswith(": connected again")


async def test_a_store_that_opens_without_its_server_says_when_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The WARNING is that of the start, and the INFO follows when the server does."""
    caplog.set_level(logging.INFO, logger="ephemera")
    (port,) = free_ports(1)
    async with connect(f"redis://127.0.0.1:{port}", CATALOGUE, required=False) as store:
        await used_until(store, lambda: False, seconds=1.2)
        with valkey(port=port, password=""):
            await used_until(store, lambda: len(lines(caplog)) > 1)
            assert lines(caplog) == [("WARNING", "ephemera.wire"), ("INFO", "ephemera.wire")]
            await store.aclose()


async def test_connections_that_do_not_last_are_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    """A server that closes every connection after a moment is lost once, until one lasts."""
    caplog.set_level(logging.INFO, logger="ephemera")
    with valkey() as own:
        async with connect(own.url, CATALOGUE) as store:
            await used_until(store, lambda: _close_all(own), seconds=2.5)
            assert lines(caplog) == [("WARNING", "ephemera.wire")]
            await used_until(store, lambda: len(lines(caplog)) > 1)
            assert lines(caplog)[1:] == [("INFO", "ephemera.wire")]


def _close_all(own: Valkey) -> bool:
    own.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    return False


@asynccontextmanager
async def consumer(own: Valkey, _: Postgres) -> AsyncIterator[str]:
    """A consumer of events; yields its logger."""

    async def handle(event: Happened, delivery: Delivery) -> None:
        """Nothing."""

    async with (
        connect(own.url, CATALOGUE, required=False) as store,
        store[EVENTS].consume("group", handle),
    ):
        yield "ephemera.events"


@asynccontextmanager
async def worker(own: Valkey, postgres: Postgres) -> AsyncIterator[str]:
    """A worker with SQL delivery, which is also the reaper."""
    sql = postgres.database("outage_log")
    async with opened(own.url, sql, required=False):
        process = SqlWorker(JOBS, WorkerSettings(own.url, sql), JOBS.queues, 1, "token", for_suspects=False)
        running = asyncio.create_task(process.run(Pulse(), None))
        yield "ephemera.jobs"
        process._stop()
        await running


@asynccontextmanager
async def manager(own: Valkey, _: Postgres) -> AsyncIterator[str]:
    """A client manager of python-socketio that listens."""
    made = AsyncRedisManager(own.url, logger=logging.getLogger("ephemera.socketio"))
    socketio.AsyncServer(client_manager=made)
    made.initialize()
    yield "ephemera.socketio"
    made.thread.cancel()
    await asyncio.gather(made.thread, return_exceptions=True)
    await made.aclose()


@pytest.mark.parametrize(
    ("user", "warnings", "back"),
    [(consumer, 2, 1), (worker, 2, 2), (manager, 1, 1)],
    ids=["consumer", "worker", "manager"],
)
async def test_what_waits_for_the_server_says_so_once(
    user: Callable[[Valkey, Postgres], AbstractAsyncContextManager[str]],
    warnings: int,
    back: int,
    postgres: Postgres,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each task that tries again and again logs that it cannot, and that it can again.

    A worker has two of them, for wake-ups and for the reaper; a consumer says first that it has no group yet.
    """
    caplog.set_level(logging.INFO, logger="ephemera")
    with valkey() as own:
        own.kill()
        async with user(own, postgres) as name:
            await logged(caplog, name, "WARNING", warnings)
            await asyncio.sleep(2.5)
            assert levels(caplog, name) == ["WARNING"] * warnings
            own.restart()
            await logged(caplog, name, "INFO", back)
    assert levels(caplog, name) == ["WARNING"] * warnings + ["INFO"] * back


def levels(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """The levels of a logger's lines about the server itself, not about what it has lost."""
    others = ("missed", "was lost", "initialized")
    return [
        each.levelname
        for each in caplog.records
        if each.name == name and not any(word in each.msg for word in others)
    ]


async def logged(caplog: pytest.LogCaptureFixture, name: str, level: str, count: int) -> None:
    """Wait for lines of a level."""
    async with asyncio.timeout(30):
        while levels(caplog, name).count(level) < count:
            await asyncio.sleep(0.02)
