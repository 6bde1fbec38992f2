"""The middlewares in a Litestar application, which has no part in Starlette or FastAPI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
from litestar import Litestar, Request, Response, get, post
from litestar.middleware import DefineMiddleware
from litestar.params import FromPath

from ephemera import Catalogue, RateLimits, Sessions, Store, connect, sliding, sliding_window
from ephemera.embedded import Valkey, valkey
from ephemera.web import ClientAddress, LimitMiddleware, Problem, RequestSession, Scope, SessionMiddleware
from tests.patterns.session_fixtures import Session, new_user

CATALOGUE = Catalogue("litestar_shop")
SESSIONS = Sessions(CATALOGUE, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=1))
LOGINS = sliding_window("logins", 2, per=timedelta(hours=1))
LIMITS = RateLimits(CATALOGUE, "limits", LOGINS)
CLIENT = ClientAddress()

LitestarRequest = Request[Any, Any, Any]


def store_of(scope: Scope) -> Store:
    """The store, where the lifespan has put it."""
    store: Store = scope["litestar_app"].state.store
    return store


def claims(scope: Scope) -> list[Any]:
    """What a request claims of the limits."""
    return [LOGINS.on(CLIENT.network(scope))] if scope["path"].startswith("/login/") else []


@get("/me")
async def me(request: LitestarRequest) -> dict[str, str]:
    """Who is signed in."""
    handle: RequestSession[Session] = request.scope["state"]["session"]
    session = await handle.get()
    if session is None:
        raise Problem(401, "Unauthorized", "Sign in first.")
    return {"user_id": session.user_id}


@post("/login/{user_id:str}")
async def login(user_id: FromPath[str], request: LitestarRequest) -> None:
    """Sign in."""
    handle: RequestSession[Session] = request.scope["state"]["session"]
    await handle.start(Session(user_id))


@get("/open")
async def anybody() -> str:
    """A route that needs neither."""
    return "open"


def send_problem(_: LitestarRequest, problem: Problem) -> Response[Any]:
    """Litestar handles exceptions inside of its middlewares, so it needs to know what a problem is."""
    headers = {name.decode(): value.decode() for name, value in problem.headers}
    return Response(
        problem.document, status_code=problem.status, headers=headers, media_type="application/problem+json"
    )


@asynccontextmanager
async def browser(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on the application, whose lifespan runs in the meantime."""

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        async with connect(url, CATALOGUE, required=False) as store:
            app.state.store = store
            yield

    app = Litestar(
        route_handlers=[me, login, anybody],
        lifespan=[lifespan],
        middleware=[
            DefineMiddleware(
                cast("Any", SessionMiddleware), sessions=lambda scope: store_of(scope)[SESSIONS]
            ),
            DefineMiddleware(
                cast("Any", LimitMiddleware), limits=lambda scope: store_of(scope)[LIMITS], claims=claims
            ),
        ],
        exception_handlers={Problem: send_problem},
    )
    transport = httpx.ASGITransport(app=cast("Any", app))  # Litestar has types of ASGI of its own
    async with app.lifespan(), httpx.AsyncClient(transport=transport, base_url="https://shop") as client:
        yield client


async def test_litestar_has_sessions_and_limits(server: Valkey) -> None:
    """A sign-in sets the cookie that authenticates, and the third one within the hour is refused."""
    user = new_user()
    async with browser(server.url) as client:
        refused = await client.get("/me")
        assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
        signed_in = await client.post(f"/login/{user}")
        assert signed_in.status_code == 201
        assert signed_in.headers["ratelimit"].startswith('"logins";r=1;t=')
        assert (await client.get("/me")).json() == {"user_id": user}
        await client.post(f"/login/{user}")
        denied = await client.post(f"/login/{user}")
        assert (denied.status_code, denied.json()["violated-policies"]) == (429, ["logins"])
        assert int(denied.headers["retry-after"]) > 0


@pytest.mark.standalone("it stops the one server")
async def test_litestar_without_its_server() -> None:
    """What needs the session is 503; other routes are not affected, and no cookie is cleared."""
    with valkey() as own:
        async with browser(own.url) as client:
            await client.post(f"/login/{new_user()}")
            own.stop()
            refused = await client.get("/me")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "set-cookie" not in refused.headers
            assert (await client.get("/open")).text == "open"
