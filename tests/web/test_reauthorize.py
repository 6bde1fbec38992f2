"""Reauthorization: a long-lived connection is closed when its user is no longer allowed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera.errors import Unavailable
from ephemera.web import _streams
from tests.patterns.progress_fixtures import JobDatabase
from tests.web.streaming_app import CATALOGUES, application, serving


class Permission:
    """Whether a connection may stay open, and how often that was checked."""

    def __init__(self) -> None:
        self.answer: bool | Exception = True
        self.asked = 0
        self.often = asyncio.Event()

    async def allowed(self) -> bool:
        """The check behind `allowed=`."""
        self.asked += 1
        if self.asked >= 3:
            self.often.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture(autouse=True)
def _checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_streams, "REAUTHORIZE_EVERY", 0.01)


@asynccontextmanager
async def _served(server: Valkey, permission: Permission) -> AsyncIterator[int]:
    async with (
        connect(server.url, *CATALOGUES) as store,
        serving(application(store, JobDatabase(), permission.allowed)) as port,
    ):
        yield port


@pytest.mark.parametrize("path", ["/notifications?user=reauthorized", "/jobs/reauthorized/ws"])
async def test_a_websocket_is_closed_when_it_is_no_longer_allowed(server: Valkey, path: str) -> None:
    """It stays open while the answer is yes or unknown, and is closed at the first no."""
    permission = Permission()
    async with _served(server, permission) as port, open_socket(f"ws://127.0.0.1:{port}{path}") as socket:
        for answer in (True, Unavailable("127.0.0.1:1", "it is down")):
            permission.answer, permission.asked = answer, 0
            permission.often.clear()
            await permission.often.wait()
        permission.answer = False
        with pytest.raises(ConnectionClosed):
            await _read_on(socket)
    assert socket.close_code == 1012


async def _read_on(socket: ClientConnection) -> None:
    while True:
        await socket.recv()


async def test_server_sent_events_end_when_they_are_no_longer_allowed(server: Valkey) -> None:
    """The response ends without `end`, so that the browser reconnects and is refused."""
    permission = Permission()
    async with (
        _served(server, permission) as port,
        httpx.AsyncClient() as client,
        client.stream("GET", f"http://127.0.0.1:{port}/jobs/reauthorized/events", timeout=30) as stream,
    ):
        await permission.often.wait()
        permission.answer = False
        received = b"".join([piece async for piece in stream.aiter_raw()])
    assert b"event: end" not in received


async def test_a_check_that_fails_closes_the_connection(
    server: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """A check that raises closes the connection, and the log has the error."""
    permission = Permission()
    permission.answer = ValueError("a mistake")
    with caplog.at_level(logging.ERROR, "ephemera.web"):
        async with (
            _served(server, permission) as port,
            open_socket(f"ws://127.0.0.1:{port}/notifications?user=reauthorized") as socket,
        ):
            with pytest.raises(ConnectionClosed):
                await socket.recv()
    assert "checking whether a connection may stay open failed" in caplog.text
