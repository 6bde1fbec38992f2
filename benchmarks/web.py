"""The rows of the web adapters: what sessions and limits leave of a bare "hello" under uvicorn.

In one the application behind the middlewares is the bare one itself; in another it calls `tune_gc()`, which
avoids most garbage collection, against the bare one as it is and settled as well; in the last it also asks
who is signed in, so the session is decoded and awaited. All applications run in uvicorn processes of their
own (uvloop, httptools, no access log), on a core of their own (see `benchmarks.uvicorn_process`), and take
the same requests, each with a session's cookie, over 50 connections that are kept open. The load comes from
this process, by a protocol that writes a fixed request and waits for the fixed body, so that it costs as
little as Python can; on two cores it shares one with Valkey. The speed of a shared machine changes from one
second to the next by more than what is measured here, so there are many short turns: two hundred in five
rounds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

from benchmarks.load import Load
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers
from benchmarks.sessions import CATALOGUE, JSON, Session, starsessions
from benchmarks.uvicorn_process import serve_app
from benchmarks.web_app import HELLO
from ephemera.keyspace import connect
from ephemera.patterns.sessions import Sessions

_CONNECTIONS = 50
_STARTS_WITHIN = 20.0  # seconds
_TURNS = 40
_TURN = 0.2


class Browser(asyncio.Protocol):
    """One connection that asks the same again as soon as it is answered."""

    def __init__(self, request: bytes, end: bytes, status: int) -> None:
        self._request = request
        self._end = end
        self._status = b"HTTP/1.1 %d" % status
        self._left = 0
        self._received = b""
        self._done: asyncio.Future[None]
        self._transport: asyncio.WriteTransport

    def ask(self, times: int) -> asyncio.Future[None]:
        """Done when this many requests were answered."""
        self._left = times
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        return self._done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Ask again when the answer is complete and right."""
        self._received += data
        if not self._received.endswith(self._end) and self._received.startswith(self._status):
            return
        if not self._received.startswith(self._status):
            self._done.set_exception(RuntimeError(self._received.partition(b"\r\n")[0].decode()))
            return
        self._received = b""
        self._left -= 1
        if self._left:
            self._transport.write(self._request)
        else:
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a round that cannot be finished."""
        if self._left and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the application closed the connection"))

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


_END = HELLO.encode()


class Requests(Load):
    """This many browsers, each with one request under way."""

    def __init__(self, browsers: list[Browser]) -> None:
        super().__init__(len(browsers))
        self._browsers = browsers

    async def perform(self, each: int) -> float:
        """Let every browser ask so often."""
        began = time.perf_counter()
        await asyncio.gather(*(browser.ask(each) for browser in self._browsers))
        return time.perf_counter() - began


SignedIn = Callable[[Servers], Awaitable[list[str]]]
"""The tokens of as many sessions as there are browsers, each of another user."""


async def signed_in(servers: Servers, declared: Sessions[Session] = JSON) -> list[str]:
    """Those of our own sessions."""
    users = [Session(f"018e9a1f-b3c2-7654-9abc-{number:012x}") for number in range(_CONNECTIONS)]
    async with connect(servers.valkey.url, CATALOGUE) as store:
        return [await store[declared].create(user) for user in users]


async def signed_in_elsewhere(servers: Servers) -> list[str]:
    """Those of starsessions."""
    async with starsessions(servers) as (_, tokens):
        return tokens[:_CONNECTIONS]


def served(
    application: str, signed_in: SignedIn = signed_in, *, path: str = "/", end: bytes = _END
) -> Opener:
    """An application under uvicorn, and the browsers that ask it; `end` is how its answer ends."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        tokens = await signed_in(servers)
        async with serve_app(application, servers) as port:
            yield Requests([await connected(port, _request(token, path), end) for token in tokens])

    return opened


def _request(token: str, path: str) -> bytes:
    lines = (f"GET {path} HTTP/1.1", "Host: bench", f"Cookie: theme=dark; __Host-session={token}")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


async def connected(port: int, request: bytes, end: bytes = _END, status: int = 200) -> Browser:
    """A connected browser, once the application is up; `end` is how the answer's body ends."""
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    while True:
        try:
            _, browser = await loop.create_connection(
                lambda: Browser(request, end, status), "127.0.0.1", port
            )
        except ConnectionRefusedError:
            if time.perf_counter() - began > _STARTS_WITHIN:
                raise
            await asyncio.sleep(0.05)
        else:
            return browser


_BARE = served("benchmarks.web_app:bare")

ROWS = (
    Row(
        "web: both middlewares on the same hello",
        served("benchmarks.web_app:wrapped"),
        {"bare Starlette": _BARE},
        (Times(0.75, "bare Starlette"),),
        unit="requests/s",
        turns=_TURNS,
        turn=_TURN,
    ),
    Row(
        "web: both middlewares on the same hello, settled",
        served("benchmarks.web_app:settled"),
        {"bare Starlette": _BARE, "bare and settled": served("benchmarks.web_app:settled_bare")},
        (Times(0.75, "bare Starlette"), Times(0.75, "bare and settled")),
        unit="requests/s",
        turns=_TURNS,
        turn=_TURN,
    ),
    Row(
        "web: sessions and limits on a hello",
        served("benchmarks.web_app:guarded"),
        {
            "starsessions and limits": served("benchmarks.web_glued:glued", signed_in_elsewhere),
            "bare Starlette": _BARE,
        },
        (Times(2, "starsessions and limits"), Times(0.75, "bare Starlette")),
        unit="requests/s",
        turns=_TURNS,
        turn=_TURN,
    ),
)
