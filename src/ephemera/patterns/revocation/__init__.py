"""Revocation: signed tokens that stop being valid before they expire.

    REVOKED = Revocation(
        catalogue,
        tokens={
            "access": TokenKind("blacklist:access:{jti}", lifetime=timedelta(minutes=15), when_down="local"),
            "refresh": TokenKind("blacklist:refresh:{jti}", lifetime=timedelta(days=7)),
        },
    )
    revoked = store[REVOKED]
    await revoked.revoke_token("access", jti, until=exp)
    status = await revoked.check("access", jti=jti, user=sub, issued_at=iat, family=fam)

*Keys.* A flag for each revoked token; for a user the instant up to which all issued tokens are void; a flag
for each revoked family of refresh tokens; and a channel on which revocations are published.

*Lifetimes.* No mark expires before the tokens it revokes: that of a token `leeway` after the token, because a
verifier may accept it for that long, those of users and families after the longest lifetime of a token plus
an hour, for tokens that were being issued at that moment.
An expired token needs no mark: revoking it does nothing and returns False. Role `queue`: an evicted mark
would make a revoked token valid again.

*Atomicity.* Each revocation is one write, by the server's clock; an instant never moves back. A check reads
up to three marks in one round trip. If you issue tokens with `iat=await revoked.now(user)`, the comparison
with a user's instant is exact; tokens whose `iat` comes from other clocks need `skew`, the most that those
clocks may be ahead.

*When Redis is down.* The policy of each check decides. `closed`: void (the default). `local`: void if this
process knows of a revocation, or has not been subscribed to revocations since it started; valid otherwise.
`open`: valid. The status is marked as not certain. Revoking raises `ConnectionFailed`, and this process
remembers the revocation. After a restart without data or a failover, each process writes its revocations of
the last five minutes again; older marks that are lost make revoked tokens valid until they expire, as does an
eviction. So keep them on a server with persistence.
"""

from ephemera.patterns.revocation._revocation import (
    BoundRevocation,
    Revocation,
    TokenKind,
    TokenStatus,
    WhenDown,
)

__all__ = ["BoundRevocation", "Revocation", "TokenKind", "TokenStatus", "WhenDown"]
