"""Limits on wrong passwords for one account, whatever addresses they come from.

    ATTEMPTS = SignInAttempts(catalogue, "login")

    attempts = store[ATTEMPTS]
    attempt = await attempts.begin(email, network)        # 429 if the account's budget is used up
    ...                                                   # check the password; 401 if it is wrong
    await attempts.succeeded(attempt)                     # nothing is counted, and the address is known

A limit by address alone does not stop a guesser with many addresses, and a limit by account alone lets anyone
lock its owner out. So each account has a budget of failures for all addresses from which it was never signed
in to, and a budget of its own for each address from which it was. An attacker can use up the first one. Its
owner still signs in where they usually do, and elsewhere as that budget refills, every few minutes.

An attempt is counted when it begins, so that concurrent guesses count, too; a successful one is given back.
Accounts that do not exist have budgets like those that do, so a refusal says nothing about them. Keys contain
digests, no names or addresses. If Redis loses them, counting starts again and addresses become unknown. While
it is down, each process counts for itself. Use it besides a limit by address, which bounds what one client
may cost.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from typing import NamedTuple

from ephemera import Catalogue, Store, fixed
from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.rate_limits import Claim, Decision, RateLimits, local_share, token_bucket
from ephemera.web import limit_refusal

_HOUR = timedelta(hours=1)
_DIGEST_SIZE = 16  # bytes


class SignInAttempts:
    """The declaration of the limits: `store[ATTEMPTS]` gives the `BoundSignInAttempts` of a store."""

    def __init__(self, catalogue: Catalogue, prefix: str, *, per_hour: int = 10) -> None:
        """Declare the keys, which begin with `prefix`; `per_hour` wrong passwords for one account."""
        self.unknown = token_bucket("account", per_hour, per=_HOUR, when_down=local_share(of=1))
        self.known = token_bucket("account-address", per_hour, per=_HOUR, when_down=local_share(of=1))
        self.limits = RateLimits(catalogue, prefix, self.unknown, self.known, role="queue")
        self.addresses = catalogue.flag(
            f"{prefix}:known:{{subject}}",
            lifetime=fixed(days=90, outlives="the usual time between two sign-ins"),
            role="queue",
            purpose="From which addresses an account was signed in to, as digests",
            if_lost="wrong passwords of others count against its owner until the next sign-in",
        )

    def bind(self, store: Store) -> BoundSignInAttempts:
        """Bind the limits to a store."""
        return BoundSignInAttempts(self, store)


class SignInAttempt(NamedTuple):
    """A sign-in whose password is being checked."""

    subject: str
    decision: Decision


class BoundSignInAttempts:
    """The limits of one store."""

    def __init__(self, declaration: SignInAttempts, store: Store) -> None:
        self._declaration = declaration
        self._limits = store[declaration.limits]
        self._addresses = store[declaration.addresses]

    def set_limit(self, per_hour: int) -> None:
        """Change how many wrong passwords an account may have per hour, for this process."""
        for rule in (self._declaration.unknown, self._declaration.known):
            self._limits.set_limit(rule, per_hour)

    async def begin(self, account: str, address: str) -> SignInAttempt:
        """Count an attempt on an account, by its name in any spelling; 429 if there were too many."""
        name = account.casefold()
        subject = _digest(name, address)
        decision = await self._limits.check(await self._claim(name, subject))
        if not decision.allowed:
            raise limit_refusal(decision)
        return SignInAttempt(subject, decision)

    async def succeeded(self, attempt: SignInAttempt) -> None:
        """Give the attempt back: the password was right. Its address is known from now on."""
        try:
            await self._addresses.set(subject=attempt.subject)
            await self._limits.refund(attempt.decision)
        except (ConnectionFailed, ServerError):
            return  # best effort: the sign-in itself stands

    async def _claim(self, name: str, subject: str) -> Claim:
        try:
            is_known = await self._addresses.is_set(subject=subject)
        except (ConnectionFailed, ServerError):
            is_known = False
        return (
            self._declaration.known.on(subject) if is_known else self._declaration.unknown.on(_digest(name))
        )


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=_DIGEST_SIZE).hexdigest()
