"""Authentication, plans and rate limits, for readers with a token and without.

    caller = await admit(request, "passages")       # anyone, within the limits of their plan
    Admin = Annotated[Caller, Depends(Bearer(admin=True))]

Limits count by user if there is a token, and otherwise by client address (`EPHEMERA_TRUSTED_PROXIES`). An
invalid token is refused, not ignored. Tokens are issued by another service, which may revoke one before it
expires; here it is refused within a second (`revocations`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import Request

from ephemera import Store
from ephemera.patterns.rate_limits import Decision
from ephemera.web import ClientAddress, Header, Scope, limit_headers, limit_refusal
from ephemera_services.runtime import problem, unauthorized
from ephemera_services.scripture.key_set import KeySet
from ephemera_services.scripture.keys import LIMITS
from ephemera_services.scripture.revocations import Revocations
from ephemera_services.scripture.settings import Settings
from ephemera_services.scripture.users import FREE, Users

if TYPE_CHECKING:
    from ephemera_services.scripture.service import Scripture

_SCHEME = "AccessToken"
OPTIONAL_TOKEN: dict[str, Any] = {"security": [{}, {_SCHEME: []}]}
"""The `openapi_extra` of a route with an optional token."""


class Caller(NamedTuple):
    """A request within its limits: its user, their plan, and the limit's decision."""

    user_id: str | None
    plan: str
    is_admin: bool
    service: Scripture
    decision: Decision | None = None

    @property
    def headers(self) -> list[Header]:
        """The rate limit headers of the response."""
        return [] if self.decision is None else limit_headers(self.decision)

    async def require_feature(self, feature: str) -> None:
        """Raise 403 unless the caller's plan has a feature."""
        if not await self.service.users.has(self.plan, feature):
            raise problem(403, f"The plan {self.plan!r} does not include {feature}.")


class Gate:
    """Checks tokens and limits for one running service."""

    def __init__(
        self, store: Store, keys: KeySet, revocations: Revocations, users: Users, settings: Settings
    ) -> None:
        self._limits = store[LIMITS]
        for name, tiers in settings.limits().items():
            for tier, limit in tiers.items():
                self._limits.set_limit(LIMITS[name], limit, tier=tier)
        self._keys = keys
        self._revocations = revocations
        self._users = users
        self._client = ClientAddress(settings.trusted_proxies)

    async def identify(self, scope: Scope, service: Scripture) -> Caller:
        """Identify the caller; without a token the plan is free."""
        token = _bearer(scope)
        if token is None:
            return Caller(None, FREE, False, service)
        claims = await self._keys.verify(token)
        is_admin = claims.extra.get("role") == "admin"
        await self._revocations.check(claims, admin=is_admin)
        try:
            user_id = str(UUID(claims.sub))
        except ValueError:
            raise unauthorized("The access token is not valid: its subject is not a user id.") from None
        plan = await self._users.plan_of(user_id)
        return Caller(user_id, plan, is_admin, service)

    async def consume(self, rule: str, caller: Caller, scope: Scope) -> Decision:
        """Consume one unit of the caller's limit, or raise 429."""
        subject = f"ip-{self._client.network(scope)}" if caller.user_id is None else f"user-{caller.user_id}"
        tier = caller.plan if rule == "ai" or caller.plan == FREE else "paid"
        decision = await self._limits.check(LIMITS[rule][tier].on(subject))
        if not decision.allowed:
            raise limit_refusal(decision)
        return decision

    async def refund(self, decision: Decision) -> None:
        """Give a unit back after a failure on our side."""
        await self._limits.refund(decision)


async def admit(request: Request, rule: str) -> Caller:
    """Identify the caller and consume one unit of a limit; 401 or 429 otherwise."""
    service: Scripture = request.app.state.service
    caller = await service.gate.identify(request.scope, service)
    return caller._replace(decision=await service.gate.consume(rule, caller, request.scope))


class Bearer(SecurityBase):
    """A dependency that requires a token of an administrator, or of a user within the limit of accounts."""

    def __init__(self, *, admin: bool = False) -> None:
        self._admin = admin
        self.model = HTTPBearer(bearerFormat="JWT")
        self.scheme_name = _SCHEME

    async def __call__(self, request: Request) -> Caller:
        """Identify the caller; 401, 403 or 429 otherwise."""
        service: Scripture = request.app.state.service
        caller = await service.gate.identify(request.scope, service)
        if caller.user_id is None:
            raise unauthorized("Send an access token: Authorization: Bearer ...", token=False)
        if not self._admin:
            await service.gate.consume("account", caller, request.scope)
        elif not caller.is_admin:
            raise problem(403, "This is for administrators.")
        return caller


def _bearer(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.partition(b" ")
            if kind.lower() == b"bearer" and token:
                return str(token.strip().decode("latin-1"))
            raise unauthorized("Send an access token: Authorization: Bearer ...", token=False)
    return None
