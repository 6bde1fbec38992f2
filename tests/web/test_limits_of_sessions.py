"""Limits by who is signed in and at what plan: the session that the other middleware reads is asked."""

from __future__ import annotations

from datetime import timedelta

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Store, connect, sliding
from ephemera.patterns.rate_limits import Claim, RateLimits, sliding_window
from ephemera.patterns.sessions import Sessions
from ephemera.web._asgi import ASGIApp, Scope
from ephemera.web._client_address import ClientAddress
from ephemera.web._limits import LimitMiddleware
from ephemera.web._sessions import SessionMiddleware
from tests.patterns.session_fixtures import Session, new_user
from tests.web.gateway import get

CATALOGUE = Catalogue("plans")
SESSIONS = Sessions(
    CATALOGUE,
    "planned:{session_id}",
    Session,
    user="user_id",
    lifetime=sliding(hours=1),
    index="planned-of:{user_id}",
)
API = sliding_window("api", {"free": 2, "pro": 4}, per=timedelta(hours=1))
STRANGERS = sliding_window("strangers", 1, per=timedelta(hours=1))
LIMITS = RateLimits(CATALOGUE, "planned-limit", API, STRANGERS)
CLIENT = ClientAddress()


async def claims(scope: Scope) -> list[Claim]:
    """A unit of the user's plan, or of the address of who is nobody."""
    session = await scope["state"]["session"].get()
    if session is None:
        return [STRANGERS.on(CLIENT.counted(scope))]
    return [API[session.plan].on(session.user_id)]


def application(store: Store) -> ASGIApp:
    """Says hello to whoever has units left; the session is read above the limit."""

    async def hello(_: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/", hello)])
    app.add_middleware(LimitMiddleware, limits=lambda _: store[LIMITS], claims=claims)
    app.add_middleware(SessionMiddleware, sessions=lambda _: store[SESSIONS])
    return app


async def test_a_limit_is_that_of_the_plan_of_who_is_signed_in(server: Valkey) -> None:
    """Each user has their plan's units wherever they come from, and strangers those of their address."""
    async with connect(server.url, CATALOGUE) as store:
        app = application(store)
        for plan, limit in (("free", 2), ("pro", 4)):
            user = new_user()
            tokens = [await store[SESSIONS].create(Session(user, plan=plan)) for _ in range(2)]
            statuses = []
            for number in range(limit + 2):
                cookie = (b"cookie", f"__Host-session={tokens[number % 2]}".encode())
                statuses.append((await get(app, "/", f"192.0.2.{number}", headers=[cookie])).status)
            assert statuses == [200] * limit + [429] * 2
        assert [(await get(app, "/", "203.0.113.9")).status for _ in range(3)] == [200, 429, 429]
