"""A FastAPI service with limits, and raw ASGI requests to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fastapi import Depends, FastAPI, WebSocket

from ephemera.keyspace import Store
from ephemera.patterns.rate_limits import (
    Claim,
    Decision,
)
from ephemera.web import ASGIApp, ClientAddress, LimitMiddleware, Message, Problem, Scope
from ephemera.web.fastapi import LIMIT_RESPONSES, Limited, send_problem
from tests.patterns.limit_fixtures import BRIEF, BUCKET, CLOSED, LIMITS, LOG, WINDOW

CLIENT = ClientAddress(trusted=["10.0.0.0/8", "fd00::/8", "192.0.2.1"])


def application(store: Store) -> ASGIApp:
    """Searches are limited by address and API key in the middleware, questions by the route."""

    def claims(scope: Scope) -> Iterable[Claim]:
        if scope["path"] not in ("/search", "/closed", "/ws"):
            return
        yield (CLOSED if scope["path"] == "/closed" else WINDOW).on(CLIENT.network(scope))
        for name, value in scope["headers"]:
            if name == b"x-api-key":
                yield LOG.on(value)

    async def asked(scope: Scope) -> list[Claim]:
        return [BUCKET.on(CLIENT.network(scope)), BRIEF.on(CLIENT.network(scope)).with_cost(1)]

    limited = Depends(Limited(lambda _: store[LIMITS], asked))
    app = FastAPI()
    app.add_middleware(LimitMiddleware, limits=lambda _: store[LIMITS], claims=claims)
    app.add_exception_handler(Problem, send_problem)

    @app.get("/search")
    @app.get("/closed")
    @app.get("/free")
    async def found() -> str:
        return "found"

    @app.get("/ask", responses=LIMIT_RESPONSES)
    async def ask(decision: Decision | None = limited) -> int | None:
        return None if decision is None else decision.remaining

    @app.get("/idle", dependencies=[Depends(Limited(lambda _: store[LIMITS], lambda _: []))])
    async def idle() -> str:
        return "idle"

    @app.websocket("/ws")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    return app


class Reply(NamedTuple):
    """A response as a client sees it; `headers` by name in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


async def get(
    app: ASGIApp, path: str, client: str | None = None, *, headers: Iterable[tuple[bytes, bytes]] = ()
) -> Reply:
    """Send a GET request from an address."""
    sent = await exchange(app, "http", path, client, headers)
    start = sent[0]
    found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Reply(start["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))


async def exchange(
    app: ASGIApp, kind: str, path: str, client: str | None, headers: Iterable[tuple[bytes, bytes]] = ()
) -> list[Message]:
    """Return the messages of an application for a request without a body."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request" if kind == "http" else "websocket.connect", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http" if kind == "http" else "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": list(headers),
        "client": None if client is None else (client, 40_000),
        "server": ("test", 80),
        "subprotocols": [],
    }
    await app(scope, receive, send)
    return sent
