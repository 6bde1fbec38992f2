"""Authentication by session cookie, and the administrator's role."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from ephemera.web import RequestSession, Scope
from ephemera.web.fastapi import SignedIn, request_session
from ephemera_services.league.keys import Session
from ephemera_services.league.service import League
from ephemera_services.runtime import problem

_signed_in = SignedIn(Session)


async def league(connection: HTTPConnection) -> League:
    """The running service."""
    found: League = connection.app.state.service
    return found


async def administrator(session: Annotated[Session, Depends(_signed_in)]) -> Session:
    """The session of an administrator; 403 for others."""
    if session.role != "admin":
        raise problem(403, "This is for administrators.")
    return session


async def signed_in_user(scope: Scope) -> str:
    """The user whose private page is requested; 401 without a session."""
    session = await _signed_in(HTTPConnection(scope))
    return session.user_id


Service = Annotated[League, Depends(league)]
Caller = Annotated[Session, Depends(_signed_in)]
Admin = Annotated[Session, Depends(administrator)]
Handle = Annotated[RequestSession[Session], Depends(request_session)]
SECURED: dict[str, Any] = {"security": [{_signed_in.scheme_name: []}]}
"""The `openapi_extra` of a private resource."""
