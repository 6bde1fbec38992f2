"""CORE5: the mark of a revoked token expired with the token, which verifies for a few seconds longer."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue
from ephemera.patterns.revocation import BoundRevocation, Revocation, TokenKind
from ephemera.patterns.tokens import Claims, KeyRing, Tokens

CATALOGUE = Catalogue("core5")
REVOKED = Revocation(
    CATALOGUE, tokens={"access": TokenKind("gone:{jti}", lifetime=timedelta(minutes=15))}, users="u:{user_id}"
)


async def _is_revoked(server: Valkey, jti: str) -> bool:
    """Ask a process that knows of no revocation yet."""
    async with connect(server.url, CATALOGUE) as store:
        return (await store[REVOKED].check("access", jti=jti)).revoked


async def test_core5_a_revoked_token_stays_void_as_long_as_it_verifies(server: Valkey) -> None:
    """A token that is past its expiry and still accepted can be revoked, and is void in every process."""
    tokens = Tokens(KeyRing.generate(overlap=timedelta(hours=1)), issuer="i", audience="a")
    expired = time.time() - 1
    text = tokens.sign(Claims(sub="u", jti="t1", kind="access", iat=expired - 60, exp=expired))
    claims = tokens.verify(text, kind="access")  # within `Tokens.leeway`
    async with connect(server.url, CATALOGUE) as store:
        revoked: BoundRevocation = store[REVOKED]
        assert await revoked.revoke_token("access", claims.jti, until=claims.exp)
        assert await revoked.revoke_token("access", "t2", until=datetime.fromtimestamp(claims.exp, UTC))
        assert await revoked.spend("access", "t3", until=claims.exp) == "spent"
        assert await revoked.spend("access", "t3", until=claims.exp) == "reused"
        assert not await revoked.revoke_token("access", "t4", until=expired - 120)
    for jti in ("t1", "t2", "t3"):
        assert await _is_revoked(server, jti)
    left = server.ask("PTTL", "gone:t1")
    assert int(str(left)) > tokens.leeway.total_seconds() * 1000
