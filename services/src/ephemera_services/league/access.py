"""Authentication by session cookie, and the roles of administrators and of helpers of matches."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Response
from starlette.requests import HTTPConnection

from ephemera.patterns.rate_limits import Claim
from ephemera.web import RequestSession, Scope, limit_headers, limit_refusal
from ephemera.web.fastapi import SignedIn, request_session
from ephemera_services.league.keys import LIMITS, Session
from ephemera_services.league.service import League
from ephemera_services.runtime import problem

STAFF = ("admin", "helper")
_signed_in = SignedIn(Session)


async def league(connection: HTTPConnection) -> League:
    """The running service."""
    found: League = connection.app.state.service
    return found


async def staff(
    session: Annotated[Session, Depends(_signed_in)],
    service: Annotated[League, Depends(league)],
    response: Response,
) -> Session:
    """The session of an administrator or a helper; 403 for others."""
    if session.role not in STAFF:
        raise problem(403, "This is for administrators and helpers of matches.")
    response.headers["cache-control"] = "no-store"
    await consume(service, response, LIMITS["admin"].on(session.user_id))
    return session


async def administrator(session: Annotated[Session, Depends(staff)]) -> Session:
    """The session of an administrator; 403 for others."""
    if session.role != "admin":
        raise problem(403, "This is for administrators.")
    return session


async def consume(service: League, response: Response, *claims: Claim) -> None:
    """Consume one unit of each limit; 429 if one has none left."""
    decision = await service.store[LIMITS].check(*claims)
    if not decision.allowed:
        raise limit_refusal(decision)
    response.raw_headers.extend(limit_headers(decision))


async def signed_in_user(scope: Scope) -> str:
    """The user whose private page is requested; 401 without a session."""
    session = await _signed_in(HTTPConnection(scope))
    return session.user_id


Service = Annotated[League, Depends(league)]
Caller = Annotated[Session, Depends(_signed_in)]
Admin = Annotated[Session, Depends(administrator)]
Staff = Annotated[Session, Depends(staff)]
Handle = Annotated[RequestSession[Session], Depends(request_session)]
SECURED: dict[str, Any] = {"security": [{_signed_in.scheme_name: []}]}
"""The `openapi_extra` of a private resource."""
