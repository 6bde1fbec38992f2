"""What goes on for long ends when who it is for may not have it any more."""

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
from ephemera.web import _reauthorize as standing
from tests.patterns.progress_fixtures import Truth
from tests.web.generating import CATALOGUES, application, serving


class Door:
    """Whether somebody may stay, and how often that was asked."""

    def __init__(self) -> None:
        self.answer: bool | Exception = True
        self.asked = 0
        self.often = asyncio.Event()

    async def allowed(self) -> bool:
        """What `allowed` of a socket is."""
        self.asked += 1
        if self.asked >= 3:
            self.often.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture(autouse=True)
def _asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "EVERY", 0.01)


@asynccontextmanager
async def _served(server: Valkey, door: Door) -> AsyncIterator[int]:
    async with (
        connect(server.url, *CATALOGUES) as store,
        serving(application(store, Truth(), door.allowed)) as port,
    ):
        yield port


@pytest.mark.parametrize("path", ["/notifications?user=standing", "/jobs/standing/ws"])
async def test_a_socket_ends_when_it_is_not_allowed_any_more(server: Valkey, path: str) -> None:
    """It goes on while the answer is yes, or cannot be had, and ends with the first no."""
    door = Door()
    async with _served(server, door) as port, open_socket(f"ws://127.0.0.1:{port}{path}") as socket:
        for answer in (True, Unavailable("127.0.0.1:1", "it is away")):
            door.answer, door.asked = answer, 0
            door.often.clear()
            await door.often.wait()
        door.answer = False
        with pytest.raises(ConnectionClosed):
            await _read_on(socket)
    assert socket.close_code == 1012


async def _read_on(socket: ClientConnection) -> None:
    while True:
        await socket.recv()


async def test_server_sent_events_end_when_they_are_not_allowed_any_more(server: Valkey) -> None:
    """The response is complete, so that the browser comes back and is refused."""
    door = Door()
    async with (
        _served(server, door) as port,
        httpx.AsyncClient() as client,
        client.stream("GET", f"http://127.0.0.1:{port}/jobs/standing/events", timeout=30) as stream,
    ):
        await door.often.wait()
        door.answer = False
        told = b"".join([piece async for piece in stream.aiter_raw()])
    assert b"event: end" not in told


async def test_a_question_that_fails_ends_it(server: Valkey, caplog: pytest.LogCaptureFixture) -> None:
    """Closed by default: what cannot be judged does not go on, and the log says why."""
    door = Door()
    door.answer = ValueError("a mistake")
    with caplog.at_level(logging.ERROR, "ephemera.web"):
        async with (
            _served(server, door) as port,
            open_socket(f"ws://127.0.0.1:{port}/notifications?user=standing") as socket,
        ):
            with pytest.raises(ConnectionClosed):
                await socket.recv()
    assert "whether a connection may go on could not be told" in caplog.text
