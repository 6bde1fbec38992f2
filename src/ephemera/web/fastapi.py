"""Everything that a FastAPI service needs of `ephemera.web`. Needs FastAPI (the extra `web`).

    app.add_middleware(SessionMiddleware, sessions=lambda scope: scope["state"]["store"][SESSIONS])
    app.add_exception_handler(Problem, send_problem)
    signed_in = SignedIn(Session)
    limited = Limited(lambda scope: store[LIMITS], lambda scope: [ASK.on(CLIENT.network(scope))])

    @app.get("/me")
    async def me(session: Annotated[Session, Depends(signed_in)]) -> Profile: ...

    @app.post("/login")
    async def login(handle: Annotated[RequestSession[Session], Depends(request_session)]) -> None: ...

    @app.post("/ask", dependencies=[Depends(limited)], responses=LIMIT_RESPONSES)
    async def ask() -> Answer: ...

`SignedIn` and `request_session` need `SessionMiddleware` above them, which also sends the problems that are
raised here. The OpenAPI document of an application shows the cookie as its security scheme.

A denial of `Limited` is raised as a `Problem`, which `send_problem` turns into the response, and so does
`SessionMiddleware`. Several `Limited` on one route are checked one after the other: to take all or none of
their rules, claim them in one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec
from fastapi.openapi.models import APIKey, APIKeyIn
from fastapi.security.base import SecurityBase
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ephemera.errors import InvalidCookie
from ephemera.patterns.rate_limits import BoundRateLimits, Decision
from ephemera.web._asgi import Problem, Scope, unavailable
from ephemera.web._client_address import ClientAddress
from ephemera.web._cookies import DEFAULT_COOKIE, Cookie
from ephemera.web._endpoints import HealthEndpoint, MetricsEndpoint, PrewarmEndpoint
from ephemera.web._fastapi_routes import add_prewarm, add_resource
from ephemera.web._gc_tuning import tune_gc
from ephemera.web._limits import LimitMiddleware, RequestClaims, check_request, limit_headers, limit_refusal
from ephemera.web._sessions import RequestSession, SessionMiddleware
from ephemera.web._starlette import EVENT_RESPONSES, ProgressResponse, fanout_websocket, progress_websocket
from ephemera.web._streams import Allowed, last_event_id

__all__ = [
    "EVENT_RESPONSES",
    "LIMIT_RESPONSES",
    "Allowed",
    "ClientAddress",
    "Cookie",
    "HealthEndpoint",
    "InvalidCookie",
    "LimitMiddleware",
    "Limited",
    "MetricsEndpoint",
    "PrewarmEndpoint",
    "Problem",
    "ProgressResponse",
    "RequestSession",
    "SessionMiddleware",
    "SignedIn",
    "add_prewarm",
    "add_resource",
    "fanout_websocket",
    "last_event_id",
    "limit_headers",
    "limit_refusal",
    "progress_websocket",
    "request_session",
    "send_problem",
    "tune_gc",
    "unavailable",
]

S = TypeVar("S", bound=msgspec.Struct)

_CHALLENGE = (b"www-authenticate", b"Cookie")
_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}
_DOCUMENT = {"application/problem+json": {"schema": {"type": "object"}}}

LIMIT_RESPONSES: dict[int | str, dict[str, Any]] = {
    429: {"description": "A limit is used up", "headers": _RETRY_AFTER, "content": _DOCUMENT},
    503: {
        "description": "Limits cannot be counted at the moment",
        "headers": _RETRY_AFTER,
        "content": _DOCUMENT,
    },
}
"""For a route's `responses`: those of a denied request."""


class Limited:
    """A dependency that checks the claims of a request before its route runs, and returns the decision."""

    def __init__(
        self, limits: Callable[[Scope], BoundRateLimits], claims: Callable[[Scope], RequestClaims]
    ) -> None:
        self._limits = limits
        self._claims = claims

    async def __call__(self, request: Request, response: Response) -> Decision | None:
        """Return the decision, or None without claims; raise a denial as a problem."""
        decision = await check_request(request.scope, self._limits, self._claims)
        if decision is None:
            return None
        if not decision.allowed:
            raise limit_refusal(decision)
        for name, value in limit_headers(decision):
            response.headers.append(name.decode(), value.decode())
        return decision


async def send_problem(_request: Request, problem: Exception) -> Response:
    """Handle problems for an application: a `Problem` is its own response."""
    return cast("Response", problem)


async def request_session(connection: HTTPConnection) -> RequestSession[Any]:
    """A dependency: the session of a request, signed in or not, to read, start, change or end."""
    return RequestSession.of(connection)


class SignedIn(SecurityBase, Generic[S]):
    """A dependency: the session of a signed-in user; 401 without one, 503 when that is unknown."""

    def __init__(self, record: type[S], *, cookie: Cookie = DEFAULT_COOKIE) -> None:
        self.record = record
        self.model = APIKey.model_validate({"in": APIKeyIn.cookie, "name": cookie.name})
        self.scheme_name = "Session"

    async def __call__(self, connection: HTTPConnection) -> S:
        """Return the session."""
        handle: RequestSession[S] = RequestSession.of(connection)
        session = await handle.get()
        if not handle.known:
            raise unavailable("Your session cannot be checked at the moment; please try again.")
        if not isinstance(session, self.record):
            detail = "Sign in first: there is no valid session."
            raise Problem(401, "Unauthorized", detail, headers=[_CHALLENGE])
        return session
