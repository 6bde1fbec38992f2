"""The rows of pages over HTTP: 304 answers a second, against a bare "hello" under the same uvicorn.

The one is a route of Starlette's, the other one of FastAPI's, each against a hello of the same kind. Fifty
clients that have the page ask for it again and again with its tag, over connections that are kept open. The
page is a copy in the process, so no request of a round goes to the server; the load comes from this process,
as in `benchmarks.web`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.request import urlopen

from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers
from benchmarks.uvicorn_process import serve_app
from benchmarks.web import Requests, connected, served
from benchmarks.web_app import HELLO

_CONNECTIONS = 50


def polled(application: str, end: bytes = b"\r\n\r\n", status: int = 304) -> Opener:
    """An application under uvicorn, and the clients that poll it; how its answers end, and their status."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with serve_app(f"benchmarks.http_cache_app:{application}", servers) as port:
            (await connected(port, b"")).close()  # it is up
            request = _request(await asyncio.to_thread(_tag, port))
            yield Requests([await connected(port, request, end, status) for _ in range(_CONNECTIONS)])

    return opened


def _tag(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/") as response:
        return str(response.headers["etag"])


def _request(tag: str) -> bytes:
    return f"GET / HTTP/1.1\r\nHost: bench\r\nIf-None-Match: {tag}\r\n\r\n".encode()


ROWS = (
    Row(
        "web: 304 of a polled page",
        polled("polled"),
        {"bare Starlette": served("benchmarks.web_app:bare")},
        (Times(0.9, "bare Starlette"),),
        unit="requests/s",
    ),
    Row(
        "web: 304 of a polled page, FastAPI",
        polled("documented"),
        {"bare FastAPI": polled("plain", HELLO.encode(), 200)},
        (Times(0.9, "bare FastAPI"),),
        unit="requests/s",
    ),
)
