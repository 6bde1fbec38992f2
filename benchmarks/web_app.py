"""The applications that `benchmarks.web` serves: a bare Starlette "hello", and the same behind middleware.

The server to use is in the environment variable `BENCH_URL`. Sessions are those of `benchmarks.sessions`.
`guarded` looks at its own before it says hello; `wrapped` is the bare hello itself behind the middlewares,
which read the session, let it slide and count the request all the same. The limit is by client address, and
so high that it is never reached: every request pays what is measured. The session's read is sent first and
awaited last, so it shares its round trip with the limit's check. `settled` and `settled_bare` are `wrapped`
and `bare` with `tune_gc()` at their start, as the documentation says to.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from benchmarks.sessions import CATALOGUE, JSON
from ephemera.keyspace import connect
from ephemera.patterns.rate_limits import RateLimits, token_bucket
from ephemera.web import ClientAddress, LimitMiddleware, RequestSession, SessionMiddleware, tune_gc

HELLO = "Hello, world!"
REQUESTS = token_bucket("requests", 100_000_000, per=timedelta(minutes=1))
LIMITS = RateLimits(CATALOGUE, "bench:limit", REQUESTS)
CLIENT = ClientAddress()


async def hello(_: Request) -> PlainTextResponse:
    """Say hello."""
    return PlainTextResponse(HELLO)


async def hello_again(request: Request) -> PlainTextResponse:
    """Greet the signed-in user."""
    if await RequestSession.of(request).get() is None:
        return PlainTextResponse("Who are you?", 401)
    return PlainTextResponse(HELLO)


@asynccontextmanager
async def _with_store(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with connect(os.environ["BENCH_URL"], CATALOGUE) as store:
        yield {"store": store}


@asynccontextmanager
async def _settled(_: Starlette) -> AsyncIterator[None]:
    tune_gc()
    yield


@asynccontextmanager
async def _settled_with_store(application: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with _with_store(application) as state:
        tune_gc()
        yield state


def _behind_both(route: Route, lifespan: Any = _with_store) -> Starlette:
    application = Starlette(routes=[route], lifespan=lifespan)
    application.add_middleware(
        LimitMiddleware,
        limits=lambda scope: scope["state"]["store"][LIMITS],
        claims=lambda scope: [REQUESTS.on(CLIENT.network(scope))],
    )
    application.add_middleware(SessionMiddleware, sessions=lambda scope: scope["state"]["store"][JSON])
    return application


bare = Starlette(routes=[Route("/", hello)])
guarded = _behind_both(Route("/", hello_again))
wrapped = _behind_both(Route("/", hello))
settled_bare = Starlette(routes=[Route("/", hello)], lifespan=_settled)
settled = _behind_both(Route("/", hello), _settled_with_store)
