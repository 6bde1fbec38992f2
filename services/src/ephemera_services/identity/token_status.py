"""Whether a token is active at this moment, and how its holder voids it."""

from __future__ import annotations

from uuid import UUID

from ephemera import Store
from ephemera.errors import InvalidToken
from ephemera.patterns.tokens import Claims, Tokens
from ephemera_services.identity.keys import REVOKED
from ephemera_services.identity.security_log import Origin
from ephemera_services.identity.sign_ins import SignIns

_KINDS = ("access", "refresh")


class TokenStatus:
    """Introspects and revokes tokens of both kinds."""

    def __init__(self, store: Store, tokens: Tokens, sign_ins: SignIns) -> None:
        self._revoked = store[REVOKED]
        self._tokens = tokens
        self._sign_ins = sign_ins

    async def introspect(self, token: str) -> Claims | None:
        """The claims of a token, if it is active. SQL decides about refresh tokens, and without Redis."""
        claims = self._claims(token)
        if claims is None:
            return None
        if claims.kind == "refresh":
            return claims if await self._sign_ins.is_current(claims) else None
        verdict = await self._revoked.check(
            "access", jti=claims.jti, user=claims.sub, issued_at=claims.iat, family=claims.family
        )
        active = not verdict.revoked if verdict.certain else await self._sign_ins.is_valid(claims)
        return claims if active else None

    async def revoke(self, token: str, origin: Origin) -> None:
        """Void a token: an access token alone, a refresh token with its whole sign-in."""
        claims = self._claims(token)
        if claims is None:
            return
        if claims.kind == "access":
            await self._sign_ins.revoke_access(claims)
        else:
            await self._sign_ins.end_by_refresh_token(claims, origin)

    def _claims(self, token: str) -> Claims | None:
        """The claims of a token that we signed and that has not expired."""
        for kind in _KINDS:
            try:
                claims = self._tokens.verify(token, kind=kind)
                UUID(claims.sub), UUID(claims.family)
            except (InvalidToken, ValueError, TypeError):
                continue
            return claims
        return None
