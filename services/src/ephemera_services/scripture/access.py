"""Who asks, on which plan, and how often they may: for readers with a token and for those without.

    caller = await admitted(request, "passages")       # anybody, within the limits of their plan
    Admin = Annotated[Caller, Depends(Bearer(admin=True))]

A limit counts by user where there is a token, by address otherwise, as trusted proxies tell it. A token that
is not valid is refused, and not taken for none. Tokens are another service's, which may revoke one before it
expires; here it is good until then, a quarter of an hour at most with identity's.
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
from ephemera_services.scripture.people import FREE, People
from ephemera_services.scripture.settings import Settings

if TYPE_CHECKING:
    from ephemera_services.scripture.service import Scripture

_SCHEME = "AccessToken"
ANYBODY: dict[str, Any] = {"security": [{}, {_SCHEME: []}]}
"""For the `openapi_extra` of a route that takes a token, and does without."""


class Caller(NamedTuple):
    """An admitted request: whose it is, on which plan, and what the response should say about limits."""

    user_id: str | None
    plan: str
    is_admin: bool
    service: Scripture
    decision: Decision | None = None

    @property
    def headers(self) -> list[Header]:
        """What the response says about limits."""
        return [] if self.decision is None else limit_headers(self.decision)

    async def must_have(self, feature: str) -> None:
        """Raise 403 unless the caller's plan has a feature."""
        if not await self.service.people.has(self.plan, feature):
            raise problem(403, f"The plan {self.plan!r} does not have {feature}.")


class Gate:
    """Checks tokens and limits of one running service."""

    def __init__(self, store: Store, keys: KeySet, people: People, settings: Settings) -> None:
        self._limits = store[LIMITS]
        for name, tiers in settings.limits().items():
            for tier, limit in tiers.items():
                self._limits.set_limit(LIMITS[name], limit, tier=tier)
        self._keys = keys
        self._people = people
        self._client = ClientAddress(settings.trusted_proxies)

    async def who(self, scope: Scope, service: Scripture) -> Caller:
        """Whose request it is; somebody without a token is on the free plan."""
        token = _bearer(scope)
        if token is None:
            return Caller(None, FREE, False, service)
        claims = await self._keys.verify(token)
        try:
            user_id = str(UUID(claims.sub))
        except ValueError:
            raise unauthorized("The access token is not valid: its subject is no user's id.") from None
        plan = await self._people.plan_of(user_id)
        return Caller(user_id, plan, claims.extra.get("role") == "admin", service)

    async def take(self, rule: str, caller: Caller, scope: Scope) -> Decision:
        """Take one unit of the caller's limit, or raise 429."""
        subject = f"ip-{self._client.network(scope)}" if caller.user_id is None else f"user-{caller.user_id}"
        tier = caller.plan if rule == "ai" or caller.plan == FREE else "paid"
        decision = await self._limits.check(LIMITS[rule][tier].on(subject))
        if not decision.allowed:
            raise limit_refusal(decision)
        return decision

    async def give_back(self, decision: Decision) -> None:
        """Undo what was taken for something that could not be done."""
        await self._limits.refund(decision)


async def admitted(request: Request, rule: str) -> Caller:
    """The caller, with one unit of a limit taken; 401 or 429 otherwise."""
    service: Scripture = request.app.state.service
    caller = await service.gate.who(request.scope, service)
    return caller._replace(decision=await service.gate.take(rule, caller, request.scope))


class Bearer(SecurityBase):
    """A dependency: the caller, who must have a token, and perhaps be an administrator."""

    def __init__(self, *, admin: bool = False) -> None:
        self._admin = admin
        self.model = HTTPBearer(bearerFormat="JWT")
        self.scheme_name = _SCHEME

    async def __call__(self, request: Request) -> Caller:
        """The caller; 401 or 403 otherwise."""
        service: Scripture = request.app.state.service
        caller = await service.gate.who(request.scope, service)
        if caller.user_id is None:
            raise unauthorized("Send an access token: Authorization: Bearer ...", token=False)
        if self._admin and not caller.is_admin:
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
