"""Authentication by session cookie or API key, with the required role and the plan's rate limit.

    Reader = Annotated[Caller, Depends(RequireRole("viewer"))]

A session is looked up in Redis, a key in SQL; so without Redis keys still work and cookies get 503. Each
request consumes one unit of the user's or the key's limit per minute. The plan is looked up for each request,
so a change is effective from the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import Request, Response, Security
from fastapi.security import APIKeyCookie, APIKeyHeader
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import HTTPConnection

from ephemera import Store
from ephemera.errors import ConnectionFailed
from ephemera.patterns.rate_limits import Claim
from ephemera.web import ClientAddress, Header, RequestSession, Scope, limit_headers, limit_refusal
from ephemera_services.runtime import problem
from ephemera_services.slides.accounts import RoleName
from ephemera_services.slides.keys import BY_KEY, BY_USER, LOGIN, RATES, CachedSession, PlanLimits
from ephemera_services.slides.settings import Settings

if TYPE_CHECKING:
    from ephemera_services.slides.service import Slides

_RANKS = {"viewer": 0, "editor": 1, "admin": 2}
_ACTIVITY_RESOLUTION = timedelta(minutes=1)  # of `last_active`
_COOKIE = APIKeyCookie(name="__Host-session", scheme_name="Session", auto_error=False)
_KEY = APIKeyHeader(name="X-API-Key", scheme_name="ApiKey", auto_error=False)


class Caller(NamedTuple):
    """An authenticated request: its user, their permissions, and the service."""

    user_id: UUID
    organization_id: UUID
    role: str
    limits: PlanLimits
    headers: list[Header]
    service: Slides
    is_authorized: Callable[[], Awaitable[bool]]
    """Whether the caller is still authorized, for long-lived responses."""

    def require_organization(self, organization_id: UUID | str) -> None:
        """Raise 404 unless this is the caller's organization: others must not learn what exists."""
        if str(organization_id) != str(self.organization_id):
            raise problem(404, "Not found, or not in your organization.")


class Gate:
    """Counts requests against rate limits."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._rates = store[RATES]
        self._rates.set_limit(LOGIN, settings.logins_per_minute)
        self._client = ClientAddress(settings.trusted_proxies)

    async def consume(self, claim: Claim) -> list[Header]:
        """Consume one unit; the response headers, or 429."""
        decision = await self._rates.check(claim)
        if not decision.allowed:
            raise limit_refusal(decision)
        return limit_headers(decision)

    async def consume_login(self, scope: Scope) -> list[Header]:
        """Consume one sign-in attempt of the client's address."""
        return await self.consume(LOGIN.on(self._client.network(scope)))

    def address(self, scope: Scope) -> str:
        """The client's address."""
        return self._client.address(scope)


class RequireRole:
    """A dependency: the caller, with at least this role."""

    def __init__(self, role: RoleName) -> None:
        self._role = role

    async def __call__(
        self,
        request: Request,
        response: Response,
        _cookie: Annotated[str | None, Security(_COOKIE)] = None,
        _key: Annotated[str | None, Security(_KEY)] = None,
    ) -> Caller:
        """Authenticate the caller; 401, 403, 429 or 503 otherwise."""
        caller = await authenticate(request, self._role)
        response.raw_headers.extend(caller.headers)
        return caller


async def authenticate(connection: HTTPConnection, role: RoleName) -> Caller:
    """Authenticate the caller of a request or a WebSocket."""
    service: Slides = connection.app.state.service
    key = connection.headers.get("x-api-key")
    if key is not None:
        caller, claim = await _by_key(service, key)
    else:
        caller, claim = await _by_session(service, connection)
    if _RANKS[caller.role] < _RANKS[role]:
        raise problem(403, f"This requires the role {role}; yours is {caller.role}.")
    return caller._replace(headers=await service.gate.consume(claim))


async def _by_key(service: Slides, key: str) -> tuple[Caller, Claim]:
    found = await service.accounts.by_key(key)
    if found is None:
        raise _unauthorized("The API key is not valid.")
    key_id, account = found
    limits = await service.plans.limits(str(account.organization_id))

    async def is_authorized() -> bool:
        try:
            return await service.accounts.by_key(key) is not None
        except SQLAlchemyError:
            return True  # unknown; it is checked again later

    caller = Caller(account.id, account.organization_id, account.role, limits, [], service, is_authorized)
    return caller, BY_KEY.at(limits.requests_per_minute).on(key_id)


async def _by_session(service: Slides, connection: HTTPConnection) -> tuple[Caller, Claim]:
    handle: RequestSession[CachedSession] = RequestSession.of(connection)
    session = await handle.get()
    if session is None:
        raise _unauthorized("Sign in first: there is no valid session.")
    if connection.scope["type"] == "websocket":
        _same_origin(connection)
    limits = await service.plans.limits(session.organization_id)
    now = datetime.now(UTC)
    if now - session.last_active > _ACTIVITY_RESOLUTION:
        await _touch(handle, now)
    user_id, organization_id = UUID(session.user_id), UUID(session.organization_id)
    caller = Caller(user_id, organization_id, session.role, limits, [], service, handle.is_valid)
    return caller, BY_USER.at(limits.requests_per_minute).on(session.user_id)


async def _touch(handle: RequestSession[CachedSession], now: datetime) -> None:
    try:
        await handle.update(last_active=now)  # never revives an ended session
    except ConnectionFailed:
        return  # best effort


def _same_origin(connection: HTTPConnection) -> None:
    """Refuse a WebSocket that another site's page opens with our user's cookie."""
    origin = connection.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != connection.headers.get("host"):
        raise problem(403, "Cross-origin WebSockets are not allowed.")


def _unauthorized(detail: str) -> Exception:
    return problem(401, detail, headers=[(b"www-authenticate", b"Cookie")])
