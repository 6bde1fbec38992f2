"""Who asks: a session's cookie or an API key, with the role and the plan's limit that the request needs.

    Reader = Annotated[Caller, Depends(Needs("viewer"))]

A session is looked up in Redis, a key in SQL; so when Redis is away keys still work and cookies are 503. Each
request takes one unit of the user's or the key's minute. Plans are asked for with each request, and so a new
one holds from the next.
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
from ephemera.web._asgi import Header, Scope
from ephemera.web._client_address import ClientAddress
from ephemera.web._limit_headers import limit_headers, refusal
from ephemera.web._sessions import RequestSession
from ephemera_services.runtime import problem
from ephemera_services.slides.accounts import RoleName
from ephemera_services.slides.keys import BY_KEY, BY_USER, LOGIN, RATES, CachedSession, PlanLimits
from ephemera_services.slides.settings import Settings

if TYPE_CHECKING:
    from ephemera_services.slides.service import Slides

_RANKS = {"viewer": 0, "editor": 1, "admin": 2}
_ACTIVE = timedelta(minutes=1)  # how exact `last_active` is
_COOKIE = APIKeyCookie(name="__Host-session", scheme_name="Session", auto_error=False)
_KEY = APIKeyHeader(name="X-API-Key", scheme_name="ApiKey", auto_error=False)


class Caller(NamedTuple):
    """An admitted request: whose it is, what they may do, and the service."""

    user_id: UUID
    organization_id: UUID
    role: str
    limits: PlanLimits
    headers: list[Header]
    service: Slides
    remains: Callable[[], Awaitable[bool]]
    """Whether they may still be served, for what goes on for long."""

    def of(self, organization_id: UUID | str) -> None:
        """Raise 404 unless something belongs to the caller's organization: others need not know of it."""
        if str(organization_id) != str(self.organization_id):
            raise problem(404, "There is no such thing, or it is not yours.")


class Gate:
    """Counts requests against limits."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._rates = store[RATES]
        self._rates.set_limit(LOGIN, settings.logins_per_minute)
        self._client = ClientAddress(settings.trusted_proxies)

    async def take(self, claim: Claim) -> list[Header]:
        """Take one unit; what the response should say about it, or 429."""
        decision = await self._rates.check(claim)
        if not decision.allowed:
            raise refusal(decision)
        return limit_headers(decision)

    async def take_login(self, scope: Scope) -> list[Header]:
        """The same of an address that signs in."""
        return await self.take(LOGIN.on(self._client.counted(scope)))

    def address(self, scope: Scope) -> str:
        """Where a request comes from."""
        return self._client.of(scope)


class Needs:
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
        """The caller; 401, 403, 429 or 503 when there is none."""
        caller = await admitted(request, self._role)
        response.raw_headers.extend(caller.headers)
        return caller


async def admitted(connection: HTTPConnection, role: RoleName) -> Caller:
    """The caller of a request or a WebSocket."""
    service: Slides = connection.app.state.service
    key = connection.headers.get("x-api-key")
    if key is not None:
        caller, claim = await _by_key(service, key)
    else:
        caller, claim = await _by_session(service, connection)
    if _RANKS[caller.role] < _RANKS[role]:
        raise problem(403, f"This needs the role {role}; yours is {caller.role}.")
    return caller._replace(headers=await service.gate.take(claim))


async def _by_key(service: Slides, key: str) -> tuple[Caller, Claim]:
    found = await service.accounts.by_key(key)
    if found is None:
        raise _stranger("The API key is not valid.")
    key_id, account = found
    limits = await service.plans.limits(str(account.organization_id))

    async def remains() -> bool:
        try:
            return await service.accounts.by_key(key) is not None
        except SQLAlchemyError:
            return True  # nobody knows; it is asked again

    caller = Caller(account.id, account.organization_id, account.role, limits, [], service, remains)
    return caller, BY_KEY.at(limits.requests_per_minute).on(key_id)


async def _by_session(service: Slides, connection: HTTPConnection) -> tuple[Caller, Claim]:
    handle: RequestSession[CachedSession] = RequestSession.of(connection)
    session = await handle.get()
    if session is None:
        raise _stranger("Sign in first: there is no valid session.")
    if connection.scope["type"] == "websocket":
        _same_origin(connection)
    limits = await service.plans.limits(session.organization_id)
    now = datetime.now(UTC)
    if now - session.last_active > _ACTIVE:
        await _touch(handle, now)
    user_id, organization_id = UUID(session.user_id), UUID(session.organization_id)
    caller = Caller(user_id, organization_id, session.role, limits, [], service, handle.lives)
    return caller, BY_USER.at(limits.requests_per_minute).on(session.user_id)


async def _touch(handle: RequestSession[CachedSession], now: datetime) -> None:
    try:
        await handle.update(last_active=now)  # never brings an ended session back
    except ConnectionFailed:
        return  # nobody depends on it


def _same_origin(connection: HTTPConnection) -> None:
    """Refuse a WebSocket that another site's page opens with our user's cookie."""
    origin = connection.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != connection.headers.get("host"):
        raise problem(403, "This page is of another site.")


def _stranger(detail: str) -> Exception:
    return problem(401, detail, headers=[(b"www-authenticate", b"Cookie")])
