"""Dependencies for FastAPI routes: the session of a request, and limits. Needs FastAPI.

Annotations are not postponed here: FastAPI 0.115, the oldest supported, cannot evaluate those of an object.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from fastapi.openapi.models import APIKey, APIKeyIn
from fastapi.security.base import SecurityBase
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ephemera.keyspace import record_class
from ephemera.patterns.rate_limits import BoundRateLimits, Decision
from ephemera.web._asgi import Problem, Scope, unavailable
from ephemera.web._cookies import DEFAULT_COOKIE, Cookie
from ephemera.web._limits import RequestClaims, check_request, limit_headers, limit_refusal
from ephemera.web._openapi import OPTIONAL_SESSION_MARKER, SESSION_SCHEME, Marked
from ephemera.web._sessions import RequestSession

S = TypeVar("S")

_CHALLENGE = (b"www-authenticate", b"Cookie")


class Limited:
    """A dependency that checks the claims of a request before its route runs, and returns the decision."""

    def __init__(
        self, limits: Callable[[Scope], BoundRateLimits], claims: Callable[[Scope], RequestClaims]
    ) -> None:
        self._limits = limits
        self._claims = claims

    async def __call__(self, connection: HTTPConnection, response: Response) -> Decision | None:
        """Return the decision, or None without claims; raise a denial as a problem."""
        decision = await check_request(connection.scope, self._limits, self._claims)
        if decision is None:
            return None
        if not decision.allowed:
            raise limit_refusal(decision)
        response.raw_headers.extend(limit_headers(decision))
        return decision


async def send_problem(_request: Request, problem: Exception) -> Response:
    """Handle problems for an application: a `Problem` is its own response."""
    return cast("Response", problem)


async def request_session(connection: HTTPConnection) -> RequestSession[Any]:
    """A dependency: the session of a request, signed in or not, to read, start, change or end."""
    return RequestSession.of(connection)


class SessionHandle(Marked, Generic[S]):
    """A dependency: the session of a request, signed in or not, to start, change or end it."""

    def __init__(self) -> None:
        super().__init__(OPTIONAL_SESSION_MARKER)

    async def __call__(self, connection: HTTPConnection) -> RequestSession[S]:
        """Return the handle of the session."""
        return RequestSession.of(connection)


class OptionalSession(Marked, Generic[S]):
    """A dependency: the session of a signed-in user, or None."""

    def __init__(self) -> None:
        super().__init__(OPTIONAL_SESSION_MARKER)

    async def __call__(self, connection: HTTPConnection) -> S | None:
        """Return the session."""
        handle: RequestSession[S] = RequestSession.of(connection)
        return await handle.get()


class SignedIn(SecurityBase, Generic[S]):
    """A dependency: the session of a signed-in user; 401 without one, 503 when that is unknown.

    `cookie` is that of the sessions, for the OpenAPI document.
    """

    def __init__(self, record: type[S], *, cookie: Cookie = DEFAULT_COOKIE) -> None:
        self.record = record
        self._class = record_class(record)
        self.model = APIKey.model_validate({"in": APIKeyIn.cookie, "name": cookie.name})
        self.scheme_name = SESSION_SCHEME

    async def __call__(self, connection: HTTPConnection) -> S:
        """Return the session."""
        handle: RequestSession[S] = RequestSession.of(connection)
        session = await handle.get()
        if not handle.known:
            raise unavailable("Your session cannot be checked at the moment; please try again.")
        if not isinstance(session, self._class):
            detail = "Sign in first: there is no valid session."
            raise Problem(401, "Unauthorized", detail, headers=[_CHALLENGE])
        return cast("S", session)
