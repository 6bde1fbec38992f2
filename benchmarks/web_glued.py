"""The application of `benchmarks.web` that is put together from what is used today: starsessions and limits.

Each is set up as it is fastest, as far as we know (`benchmarks.sessions`, `benchmarks.rate_limits`):
sessions that roll in JSON on redis-py, a fixed window on valkey-py, and middlewares of pure ASGI. Its
responses say nothing of the limit, which would cost it another round trip.
"""

from __future__ import annotations

import os
from importlib import import_module

from limits import RateLimitItemPerMinute
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starsessions import SessionAutoloadMiddleware, SessionMiddleware
from starsessions.stores.redis import RedisStore

from benchmarks.web_app import HELLO
from ephemera.web import ASGIApp, Receive, Scope, Send


class Limited:
    """Counts every request by its client's address."""

    def __init__(self, app: ASGIApp, url: str) -> None:
        self._app = app
        self._limiter = FixedWindowRateLimiter(RedisStorage(f"async+{url}", implementation="valkey"))
        self._rule = RateLimitItemPerMinute(100_000_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or run the application."""
        app = self._app
        if scope["type"] == "http" and not await self._limiter.hit(self._rule, scope["client"][0]):
            app = PlainTextResponse("Too many requests", 429)
        await app(scope, receive, send)


async def hello(request: Request) -> PlainTextResponse:
    """Greet the signed-in user."""
    if "user_id" not in request.session:
        return PlainTextResponse("Who are you?", 401)
    return PlainTextResponse(HELLO)


_URL = os.environ["BENCH_URL"]
_REDIS = import_module("redis.asyncio")
_POOL = _REDIS.ConnectionPool.from_url(_URL, protocol=3, max_connections=100, socket_timeout=None)
STORE = RedisStore(connection=_REDIS.Redis.from_pool(_POOL))
ROLLING = {"lifetime": 86_400, "rolling": True, "cookie_name": "__Host-session"}

glued = Starlette(routes=[Route("/", hello)])
glued.add_middleware(SessionAutoloadMiddleware)
glued.add_middleware(SessionMiddleware, store=STORE, **ROLLING)
glued.add_middleware(Limited, url=_URL)
