"""What the log says of an outage: that the server is lost, and that it is back, and nothing in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic

import pytest

from ephemera import Cache, Catalogue, LocalCache, Store, connect
from ephemera.embedded import Valkey, free_ports, valkey
from ephemera.errors import ConnectionFailed, ServerError

pytestmark = pytest.mark.standalone("it stops the one server, or closes its connections")

CATALOGUE = Catalogue("outage_log")
NUMBER = Cache(
    CATALOGUE, "number:{n}", int, fresh=timedelta(minutes=1), local=LocalCache(), purpose="A number"
)


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
    """Whatever a service does, also while the server is down."""
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
