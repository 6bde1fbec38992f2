"""FastAPI dependencies for sessions: who is signed in, or 401 as a problem document. Needs FastAPI.

    signed_in = SignedIn(Session)

    @app.get("/me")
    async def me(session: Annotated[Session, Depends(signed_in)]) -> Profile: ...

    @app.post("/login")
    async def login(handle: Annotated[RequestSession[Session], Depends(request_session)]) -> None: ...

Both need `SessionMiddleware` above them, which also sends the problems that are raised here. The OpenAPI
document of an application shows the cookie as its security scheme.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from fastapi.openapi.models import APIKey, APIKeyIn
from fastapi.security.base import SecurityBase
from starlette.requests import HTTPConnection

from ephemera.web._cookies import Cookie
from ephemera.web._problems import Problem, unavailable
from ephemera.web._sessions import RequestSession

S = TypeVar("S", bound=msgspec.Struct)

_CHALLENGE = (b"www-authenticate", b"Cookie")


async def request_session(connection: HTTPConnection) -> RequestSession[Any]:
    """The session of a request, there or not, to read, start, change or end."""
    return RequestSession.of(connection)


class SignedIn(SecurityBase, Generic[S]):
    """The session of whoever is signed in; 401 for strangers, 503 when nobody can tell."""

    def __init__(self, record: type[S], *, cookie: Cookie = Cookie()) -> None:  # noqa: B008 - it is frozen
        self.record = record
        self.model = APIKey.model_validate({"in": APIKeyIn.cookie, "name": cookie.name})
        self.scheme_name = "Session"

    async def __call__(self, connection: HTTPConnection) -> S:
        """The session itself."""
        handle: RequestSession[S] = RequestSession.of(connection)
        session = await handle.get()
        if not handle.known:
            raise unavailable("Whether you are signed in cannot be told at the moment; please try again.")
        if not isinstance(session, self.record):
            detail = "Sign in first: there is no valid session."
            raise Problem(401, "Unauthorized", detail, headers=[_CHALLENGE])
        return session
