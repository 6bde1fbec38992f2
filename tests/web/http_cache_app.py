"""The league of `tests.patterns.league_site` as a FastAPI application, and requests to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, FastAPI

from ephemera.keyspace import Store
from ephemera.web import ASGIApp, Message, Scope
from ephemera.web.fastapi import add_prewarm, add_resource
from tests.patterns.league_site import League

TOKEN = "a-token-of-some-length"


def user_of(scope: Scope) -> str | None:
    """The signed-in user, by a header instead of a session."""
    return next((value.decode() for name, value in scope["headers"] if name == b"x-user"), None)


def application(league: League, store: Store) -> FastAPI:
    """The league's resources as routes."""
    app, router = FastAPI(), APIRouter()
    here: dict[str, Any] = {"store": lambda _: store}
    variants = {"season": league.seasons}
    add_resource(app, "/table", league.table, tags=["league"], variants=variants, **here)
    add_resource(app, "/results", league.results, **here)
    add_resource(router, "/live/{match_id}", league.live, **here)
    add_resource(app, "/live", league.live, query={"match_id": "1"}, **here)
    add_resource(app, "/mine", league.picks, user=user_of, **here)
    add_resource(app, "/brief", league.brief, **here)
    add_prewarm(app, "/prewarm", league.site, token=TOKEN, **here)
    app.include_router(router, prefix="/md")
    return app


class Reply(NamedTuple):
    """A response as a client sees it; `headers` by name in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


async def ask(
    app: ASGIApp, target: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> Reply:
    """Send a request without a body."""
    path, _, query = target.partition("?")
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": None,
        "server": ("test", 80),
        "state": {},
    }
    await app(scope, receive, send)
    found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return Reply(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))
