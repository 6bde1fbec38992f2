"""Revocation: signed tokens that stop being valid before they expire.

    REVOKED = Revocation(
        catalogue,
        tokens={
            "access": TokenKind("blacklist:access:{jti}", lives=timedelta(minutes=15), when_down="local"),
            "refresh": TokenKind("blacklist:refresh:{jti}", lives=timedelta(days=7)),
        },
    )
    revoked = store[REVOKED]
    await revoked.revoke_token("access", jti, until=exp)
    verdict = await revoked.check("access", jti=jti, user=sub, issued_at=iat, family=fam)

Keys: a flag for each revoked token, until that token expires; for a user the instant before which
everything issued is void; a flag for each revoked family of refresh tokens; and a channel on which
revocations are told.
Lifetimes: no mark ends before the tokens it revokes. Users' and families' marks live as long as the longest
kind of token and an hour, for tokens that were being issued at that moment. A token that has expired needs
no mark: revoking it does nothing and says so. Role `queue`: an evicted mark would make a revoked token
valid again.
Atomic: each revocation is one write, by the server's clock; an instant never moves back. A check reads up
to three marks in one trip. Issue tokens with `iat=await revoked.now(user)` and the comparison with a user's
instant is exact; tokens whose `iat` comes from other clocks need `skew`, the most that those are ahead.
Down or hung: the policy of each check decides. `closed`: void until somebody can tell (the default).
`local`: void if this process knows of a revocation, or has not been able to hear of any since it started;
valid otherwise. `open`: valid. The verdict says that it is not certain. Revoking raises `ConnectionFailed`,
and what was to be revoked is remembered here at least. Restarted without its data, or failed over: what was
revoked here in the last five minutes is written again; older marks that are lost make revoked tokens valid
until they expire, as does evicting; so keep them on a server with persistence.
"""

from ephemera.patterns.revocation._checks import RevocationChecks, Verdict, WhenDown
from ephemera.patterns.revocation._declaration import Revocation, TokenKind

__all__ = ["Revocation", "RevocationChecks", "TokenKind", "Verdict", "WhenDown"]
