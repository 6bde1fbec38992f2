"""Authentication and rate limits: the bearer's access token is checked on every request.

    Caller = Annotated[Access, Depends(Bearer("profile-read"))]
    Admin = Annotated[Access, Depends(Bearer(admin=True))]

A token's signature is verified once per process and then cached until it expires, in a bounded table that is
cleared when keys change. Whether it is revoked is checked every time, in one round trip: by its id, its user
and its sign-in. When Redis is unavailable, and this process has no record of the revocation, SQL decides, so
a revoked token stays refused. Administrators get 503 meanwhile.
"""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import Request
from starlette.responses import Response

from ephemera import Store
from ephemera.errors import InvalidToken
from ephemera.patterns.rate_limits import Claim
from ephemera.patterns.tokens import Claims, KeyRing, Tokens
from ephemera.web import ClientAddress, Header, Scope, limit_headers, limit_refusal, unavailable
from ephemera_services.identity.keys import ATTEMPTS, HOURLY, REVOKED, SLIDING
from ephemera_services.identity.security_log import Origin
from ephemera_services.identity.settings import Settings
from ephemera_services.identity.sign_ins import SignIns
from ephemera_services.identity.tables import AnyRow
from ephemera_services.runtime import SignInAttempt, problem, unauthorized

if TYPE_CHECKING:
    from ephemera_services.identity.service import Identity

_MAX_VERIFIED = 4096
_MAX_USER_AGENT = 256
_HOW_TO_SIGN_IN = "Send an access token: Authorization: Bearer ..."


class Access(NamedTuple):
    """An authenticated request: its claims, the rate limit headers of the response, and the service."""

    claims: Claims
    headers: list[Header]
    service: Identity

    @property
    def user_id(self) -> UUID:
        """The caller."""
        return UUID(self.claims.sub)

    @property
    def sign_in(self) -> UUID:
        """The sign-in of the caller's token."""
        return UUID(self.claims.family)

    @property
    def is_admin(self) -> bool:
        """Whether the caller is an administrator."""
        return self.claims.extra.get("role") == "admin"

    def require_access_to(self, user_id: str) -> None:
        """Raise 403 unless the caller is this user or an administrator."""
        if self.claims.sub != user_id and not self.is_admin:
            raise problem(403, "This belongs to another user.")


class Gate:
    """Checks tokens and limits for one running service."""

    def __init__(
        self, store: Store, ring: KeyRing, tokens: Tokens, sign_ins: SignIns, settings: Settings
    ) -> None:
        self._revoked = store[REVOKED]
        self._sign_ins = sign_ins
        limits = SLIDING if settings.windows == "sliding" else HOURLY
        self._rules = limits.rules
        self._limits = store[limits]
        for rule in limits.rules.values():
            self._limits.set_limit(rule, settings.per_hour(rule.name))
        self.attempts = store[ATTEMPTS]
        self.attempts.set_limit(settings.wrong_passwords_per_hour)
        self._tokens = tokens
        self._verified: dict[str, Claims] = {}
        self._ring, self._keys = ring, ring.keys
        self._client = ClientAddress(settings.trusted_proxies)

    async def authenticate(self, scope: Scope, *, admin: bool) -> Claims:
        """Return the token's claims; 401 if it is not valid, 503 if an administrator's cannot be checked."""
        claims = self._verify(_bearer(scope))
        verdict = await self._revoked.check(
            "access",
            jti=claims.jti,
            user=claims.sub,
            issued_at=claims.iat,
            family=claims.family,
        )
        if admin and not verdict.certain:
            raise unavailable("Your permissions cannot be checked at the moment; please try again.")
        revoked = verdict.revoked if verdict.certain else not await self._sign_ins.is_valid(claims)
        if revoked:
            raise unauthorized("The access token was revoked: sign in again.")
        if admin and claims.extra.get("role") != "admin":
            raise problem(403, "This is for administrators.")
        return claims

    async def consume(self, rule: str, subject: str) -> list[Header]:
        """Consume one unit of a limit; the response headers, or 429."""
        return await self._consume(self._rules[rule].on(subject))

    async def consume_sign_in(self, scope: Scope, email: str) -> tuple[SignInAttempt, list[Header]]:
        """Count a sign-in against the limits of the address and of the account; or 429."""
        address = self._client.network(scope)
        headers = await self.consume("login", address)
        return await self.attempts.begin(email, address), headers

    async def consume_registration(self, scope: Scope, email: str) -> list[Header]:
        """Count a registration against the limits of the client's address, of all, and of mails; or 429."""
        by_address = self._rules["register"].on(self._client.network(scope))
        return await self._consume(by_address, self._rules["register-total"].on("all"), self._mail(email))

    async def consume_refresh(self, scope: Scope, sid: str) -> list[Header]:
        """Count a refresh against the limits of the sign-in and of the client's address; or 429."""
        by_address = self._rules["refresh-address"].on(self._client.network(scope))
        return await self._consume(self._rules["refresh"].on(sid), by_address)

    async def consume_revocation_list(self, scope: Scope) -> list[Header]:
        """Count a read of everything that was revoked against the limit of the client's address; or 429."""
        return await self.consume("revocation-list", self._client.network(scope))

    async def consume_mail(self, scope: Scope, email: str) -> list[Header]:
        """Count a request for a mail against the limits of the address and of the account; or 429."""
        return await self._consume(
            self._rules["mail-request"].on(self._client.network(scope)), self._mail(email)
        )

    async def consume_confirmation(self, scope: Scope) -> list[Header]:
        """Count a code that is tried against the limit of the client's address; or 429."""
        return await self.consume("confirm", self._client.network(scope))

    async def reauthenticate(self, access: Access, scope: Scope, password: str) -> AnyRow:
        """The caller's account, if this is its password; 403 or 429 otherwise."""
        user = await access.service.accounts.by_id(access.user_id)
        attempt = await self.attempts.begin(user.email, self._client.network(scope))
        if not await access.service.passwords.verify(password, user.password_hash):
            raise problem(403, "This is not your password.")
        await self.attempts.succeeded(attempt)
        return user

    def _mail(self, email: str) -> Claim:
        digest = blake2b(email.casefold().encode(), digest_size=16).hexdigest()
        return self._rules["mail"].on(digest)

    async def _consume(self, *claims: Claim) -> list[Header]:
        decision = await self._limits.check(*claims)
        if not decision.allowed:
            raise limit_refusal(decision)
        return limit_headers(decision)

    def origin(self, request: Request, *, by_admin: bool = False) -> Origin:
        """The address and user agent of a request."""
        agent = "".join(filter(str.isprintable, request.headers.get("user-agent", "")))
        return Origin(self._client.address(request.scope), agent[:_MAX_USER_AGENT], by_admin)

    def _verify(self, token: str) -> Claims:
        if self._keys is not self._ring.keys:
            self._keys = self._ring.keys
            self._verified.clear()
        known = self._verified.get(token)
        if known is not None and known.exp > time.time():
            return known
        try:
            claims = self._tokens.verify(token, kind="access")
        except InvalidToken as invalid:
            raise unauthorized(f"The access token is not valid: {invalid.reason}.") from None
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified[token] = claims
        return claims


class Bearer(SecurityBase):
    """A dependency that requires a token, optionally of an administrator, and consumes a limit."""

    def __init__(self, rule: str | None = None, *, admin: bool = False) -> None:
        self._rule = rule
        self._admin = admin
        self.model = HTTPBearer(bearerFormat="JWT")
        self.scheme_name = "AccessToken"

    @property
    def required(self) -> dict[str, Any]:
        """The `openapi_extra` of a route that calls `admit` itself."""
        return {"security": [{self.scheme_name: []}]}

    async def __call__(self, request: Request, response: Response) -> Access:
        """Authenticate the caller, as a dependency."""
        access = await self.admit(request)
        response.raw_headers.extend(access.headers)
        return access

    async def admit(self, request: Request) -> Access:
        """Authenticate the caller; 401, 403, 429 or 503 otherwise."""
        service: Identity = request.app.state.service
        claims = await service.gate.authenticate(request.scope, admin=self._admin)
        headers = [] if self._rule is None else await service.gate.consume(self._rule, claims.sub)
        return Access(claims, headers, service)


def _bearer(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.partition(b" ")
            if kind.lower() == b"bearer" and token:
                return str(token.strip().decode("latin-1"))
    raise unauthorized(_HOW_TO_SIGN_IN, token=False)
