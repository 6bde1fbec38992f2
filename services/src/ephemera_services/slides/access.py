"""Authentication by session cookie or API key, with the required role and the plan's rate limit.

    Reader = Annotated[Caller, Depends(RequireRole("viewer"))]

A session is looked up in Redis, a key in SQL; so without Redis keys still work and cookies get 503. Each
request consumes one unit of its user's limit per minute, whatever key or session it comes with. The plan is
looked up for each request, so a change is effective from the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, NamedTuple
from uuid import UUID

from fastapi import Request, Response, Security
from fastapi.security import APIKeyCookie, APIKeyHeader
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import HTTPConnection

from ephemera import Store
from ephemera.errors import ConnectionFailed
from ephemera.patterns.rate_limits import Claim
from ephemera.web import ClientAddress, Header, RequestSession, Scope, limit_headers, limit_refusal
from ephemera_services.runtime import SignInAttempt, problem
from ephemera_services.slides.accounts import RoleName
from ephemera_services.slides.keys import (
    BY_KEY,
    BY_USER,
    LOGIN,
    RATES,
    SHARED,
    SIGN_INS,
    CachedSession,
    PlanLimits,
)
from ephemera_services.slides.settings import Settings

if TYPE_CHECKING:
    from ephemera_services.slides.service import Slides

API_ACCESS = "api_access"
"""The feature of a plan that API keys need."""
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
    key_id: UUID | None = None
    """The API key of the request; None with a session."""

    def require_active(self) -> None:
        """Raise 402 if the subscription does not allow new work."""
        if (reason := self.limits.refusal(datetime.now(UTC))) is not None:
            raise problem(402, reason)

    def require_organization(self, organization_id: UUID | str) -> None:
        """Raise 404 unless this is the caller's organization: others must not learn what exists."""
        if str(organization_id) != str(self.organization_id):
            raise problem(404, "Not found, or not in your organization.")


class Gate:
    """Counts requests against rate limits."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._rates = store[RATES]
        self._rates.set_limit(LOGIN, settings.logins_per_minute)
        self._rates.set_limit(SHARED, settings.shared_reads_per_minute)
        self._sign_ins = store[SIGN_INS]
        self._sign_ins.set_limit(settings.wrong_passwords_per_hour)
        self._client = ClientAddress(settings.trusted_proxies)

    async def consume(self, *claims: Claim) -> list[Header]:
        """Consume one unit of each; the response headers, or 429."""
        decision = await self._rates.check(*claims)
        if not decision.allowed:
            raise limit_refusal(decision)
        return limit_headers(decision)

    async def consume_login(self, scope: Scope) -> list[Header]:
        """Consume one sign-in attempt of the client's address."""
        return await self.consume(LOGIN.on(self._client.network(scope)))

    async def consume_shared_read(self, scope: Scope) -> list[Header]:
        """Consume one read of a shared presentation of the client's address."""
        return await self.consume(SHARED.on(self._client.network(scope)))

    async def begin_sign_in(self, account: str, scope: Scope) -> SignInAttempt:
        """Count a sign-in of an account, which may exist or not; 429 if too many had a wrong password."""
        return await self._sign_ins.begin(account, self._client.network(scope))

    async def sign_in_succeeded(self, attempt: SignInAttempt) -> None:
        """Give a sign-in back: its password was right."""
        await self._sign_ins.succeeded(attempt)

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
        caller = await _by_key(service, key)
    else:
        caller = await _by_session(service, connection)
    if _RANKS[caller.role] < _RANKS[role]:
        raise problem(403, f"This requires the role {role}; yours is {caller.role}.")
    return caller._replace(headers=await service.gate.consume(*_claims(caller)))


def _claims(caller: Caller) -> list[Claim]:
    """A user's limit, which all their sessions and keys share, and that of the key."""
    limit = caller.limits.requests_per_minute
    claims = [BY_USER.at(limit).on(str(caller.user_id))]
    return claims if caller.key_id is None else [*claims, BY_KEY.at(limit).on(str(caller.key_id))]


async def _by_key(service: Slides, key: str) -> Caller:
    found = await service.api_keys.find(key)
    account = None if found is None else await service.accounts.active(found[1])
    if found is None or account is None:
        raise _unauthorized("The API key is not valid: it is wrong, expired or revoked.")
    limits = await service.plans.limits(str(account.organization_id))
    if API_ACCESS not in limits.features:
        raise _unauthorized(f"The API key is not valid: the plan {limits.plan_name} has no API access.")

    async def is_authorized() -> bool:
        try:
            return await service.api_keys.find(key) is not None and (
                await service.accounts.active(account.id) is not None
            )
        except SQLAlchemyError:
            return True  # unknown; it is checked again later

    ids = (account.id, account.organization_id)
    return Caller(*ids, account.role, limits, [], service, is_authorized, found[0])


async def _by_session(service: Slides, connection: HTTPConnection) -> Caller:
    handle: RequestSession[CachedSession] = RequestSession.of(connection)
    session = await handle.get()
    if session is None:
        raise _unauthorized("Sign in first: there is no valid session.")
    limits = await service.plans.limits(session.organization_id)
    now = datetime.now(UTC)
    if now - session.last_active > _ACTIVITY_RESOLUTION:
        await _touch(handle, now)
    user_id, organization_id = UUID(session.user_id), UUID(session.organization_id)
    return Caller(user_id, organization_id, session.role, limits, [], service, handle.is_valid)


async def _touch(handle: RequestSession[CachedSession], now: datetime) -> None:
    try:
        await handle.update(last_active=now)  # never revives an ended session
    except ConnectionFailed:
        return  # best effort


def _unauthorized(detail: str) -> Exception:
    return problem(401, detail, headers=[(b"www-authenticate", b"Cookie")])
