"""SEC12: services accepted 200 MB of headers, and kept 120 half-open requests for as long as they liked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from ephemera.embedded import Postgres, Valkey
from tests.console.console_process import RunningConsole, running_console
from tests.services.services import Served, serving

TIMEOUT = 1.0  # seconds for a head
MEGABYTE = 1_000_000
KINDS = (
    b"",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
    b"POST /auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
)


@pytest.fixture(scope="module")
def identity(
    server: Valkey, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service as `ephemera serve` starts it, with a shorter timeout."""
    variables = {
        "EPHEMERA_URL": server.url,
        "EPHEMERA_DATABASE_URL": postgres.database("sec12"),
        "EPHEMERA_REQUEST_TIMEOUT": f"{TIMEOUT}s",
    }
    with serving("identity", tmp_path_factory.mktemp("logs"), **variables) as served:
        yield served


@pytest.fixture(scope="module")
def console(server: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console as `ephemera console` starts it."""
    with running_console(tmp_path_factory.mktemp("console"), server.url) as running:
        yield running


def _port(served: Served | RunningConsole) -> int:
    return int(served.url.rpartition(":")[2])


async def _half_open(port: int, data: bytes) -> None:
    """Return when the server has closed a connection on which a request is never completed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        while await reader.read(MEGABYTE):
            pass
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_sec12_half_open_requests_end(identity: Served) -> None:
    """Of 120 connections without a request, with half a head or with half a body, none is kept."""
    async with asyncio.timeout(30):
        await asyncio.gather(*(_half_open(_port(identity), KINDS[n % len(KINDS)]) for n in range(120)))
    assert identity.client.get("/healthz").status_code == 200


@pytest.mark.campaign  # the console's timeouts are 10 s for a head and 10 s for a body
async def test_sec12_half_open_requests_of_the_console_end(console: RunningConsole) -> None:
    """The console is served within the same limits."""
    async with asyncio.timeout(60):
        await asyncio.gather(*(_half_open(_port(console), KINDS[n % len(KINDS)]) for n in range(120)))
    assert httpx.get(f"{console.url}/sign-in").status_code == 200


@pytest.mark.parametrize("name", ["identity", "console"])
async def test_sec12_a_large_head_is_refused(name: str, request: pytest.FixtureRequest) -> None:
    """A client that sends headers without end is disconnected after a fraction of the first megabytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", _port(request.getfixturevalue(name)))
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
    sent = 0
    try:
        while sent < 200 and not reader.at_eof():
            writer.write(b"x: " + b"y" * MEGABYTE + b"\r\n")
            await writer.drain()
            sent += 1
    except ConnectionError:
        pass
    finally:
        writer.close()
    assert sent < 20
