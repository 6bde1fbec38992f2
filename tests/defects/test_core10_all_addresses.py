"""CORE10: only the first DNS address was tried; a dead first one was `CannotConnect`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import CannotConnect
from ephemera.wire import open_client

NAME = "cache.internal"


@pytest.fixture
def silent(server: Valkey) -> Iterator[str]:
    """An address on the server's port whose connections are neither accepted nor refused: a full backlog."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.9", server.port))
        listener.listen(0)
        for _ in range(4):
            filler = opened.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.9", server.port))
        yield "127.0.0.9"


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let `NAME` have these addresses, in this order."""

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        hosts = addresses if host == NAME else (host,)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_core10_a_silent_first_address(
    server: Valkey, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second address is connected to within the time limit of a connection."""
    resolve(monkeypatch, silent, "127.0.0.1")
    async with open_client(f"redis://:{server.password}@{NAME}:{server.port}") as client:
        assert await client.call("PING") == b"PONG"


async def test_core10_many_silent_addresses(
    server: Valkey, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With seven dead addresses before it, the eighth still gets its turn."""
    resolve(monkeypatch, *[silent] * 7, "127.0.0.1")
    async with open_client(f"redis://:{server.password}@{NAME}:{server.port}") as client:
        assert await client.call("PING") == b"PONG"


async def test_core10_refused_addresses(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses that refuse are passed over at once; when all do, the error says so."""
    resolve(monkeypatch, "127.0.0.7", "127.0.0.8", "127.0.0.1")
    async with open_client(f"redis://:{server.password}@{NAME}:{server.port}") as client:
        assert await client.call("PING") == b"PONG"
    resolve(monkeypatch, "127.0.0.7", "127.0.0.8")
    with pytest.raises(CannotConnect, match="connection refused"):
        async with open_client(f"redis://:{server.password}@{NAME}:{server.port}"):
            pass
