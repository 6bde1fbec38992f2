"""Limits by the signed-in user and their plan, read from the session."""

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
from ephemera.web import ASGIApp, ClientAddress, LimitMiddleware, Scope, SessionMiddleware
from tests.patterns.session_fixtures import Session, new_user
from tests.web.limited_app import get

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
ANONYMOUS = sliding_window("anonymous", 1, per=timedelta(hours=1))
LIMITS = RateLimits(CATALOGUE, "planned-limit", API, ANONYMOUS)
CLIENT = ClientAddress()


async def claims(scope: Scope) -> list[Claim]:
    """A unit of the user's plan, or of the address of an anonymous client."""
    session = await scope["state"]["session"].get()
    if session is None:
        return [ANONYMOUS.on(CLIENT.network(scope))]
    return [API[session.plan].on(session.user_id)]


def application(store: Store) -> ASGIApp:
    """An application with the session middleware above the limits."""

    async def hello(_: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/", hello)])
    app.add_middleware(LimitMiddleware, limits=lambda _: store[LIMITS], claims=claims)
    app.add_middleware(SessionMiddleware, sessions=lambda _: store[SESSIONS])
    return app


async def test_a_limit_is_that_of_the_users_plan(server: Valkey) -> None:
    """Each user has their plan's units from any address, and anonymous clients those of their address."""
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
