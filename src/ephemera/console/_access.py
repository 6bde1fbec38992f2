"""Access to the console: accounts with roles, their sign-ins, and the limit on password attempts.

All of it is kept in this process, because the console is needed most when Redis is down. A restart signs
everyone out. A sign-in expires after twelve hours, or after one hour without a request or an open page; the
pages it opened in a browser end with it, see `SignIn.when_ended`.

Passwords are compared as digests in constant time. After ten wrong ones within five minutes from one address
(for IPv6: one network), its further attempts wait for a turn, one a second in random order, until the five
minutes are over (`_waiting_attempts`). A browser that has signed in before, or that was opened by the link in
the log, is counted by itself (`_known_browsers`), because an address may be shared, and no flood from there
delays it. A right password
forgives the wrong ones for the same account only, so no account gives more guesses at another one.
"""

from __future__ import annotations

import hmac
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple, TypeAlias, get_args

from ephemera.console._known_browsers import KnownBrowsers, browser_secret
from ephemera.console._waiting_attempts import WaitingAttempts

AccountRole: TypeAlias = Literal["view", "operate", "administer"]
"""What an account may do: look; act on sessions, limits, jobs and streams; change and delete keys as well."""
ROLES: tuple[AccountRole, ...] = get_args(AccountRole)
"""All roles, each including those before it."""

MAX_LIFETIME = 12 * 3600.0
"""Seconds that a sign-in lasts at most."""
IDLE_TIMEOUT = 3600.0
"""Seconds that a sign-in lasts without a request or an open page."""

_WINDOW = 300.0  # seconds
_MAX_ATTEMPTS = 10  # wrong passwords in a window, from one address
_MAX_ADDRESSES = 10_000  # with wrong passwords; beyond that the oldest is forgotten
_MAX_SIGN_INS = 1000  # beyond that the oldest is ended


@dataclass(frozen=True)
class Account:
    """Who may sign in."""

    user: str
    password: str = field(repr=False)
    role: AccountRole = "administer"


class _Failure(NamedTuple):
    """A failed sign-in."""

    at: float
    user: bytes
    """The digest of the name that was given."""


class SignIn:
    """One browser that signed in."""

    def __init__(self, user: str, now: float, role: AccountRole = "administer") -> None:
        self.user = user
        self.role = role
        self.started = self.used = now
        self.ended = False
        self.dark: bool | None = None
        """The chosen theme; None follows the system."""
        self._callbacks: list[Callable[[], None]] = []

    @property
    def valid(self) -> bool:
        """Whether it has neither ended nor expired."""
        return not self.ended and not self.has_expired(monotonic())

    def has_expired(self, now: float) -> bool:
        """Whether it has expired."""
        return now - self.started > MAX_LIFETIME or now - self.used > IDLE_TIMEOUT

    def when_ended(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call something when it ends; returns a function that unregisters it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def end(self) -> None:
        """End it, and every page that it opened."""
        self.ended = True
        while self._callbacks:
            self._callbacks.pop()()


class ConsoleAccess:
    """The accounts, their sign-ins, and failed attempts.

    `user` and `password` are the account that administers; `accounts` are further ones. `secret_file` has
    what known browsers are recognized by, so that they stay known after a restart.
    """

    def __init__(
        self, user: str, password: str, accounts: Sequence[Account] = (), secret_file: Path | None = None
    ) -> None:
        every = (Account(user, password), *accounts)
        self.suggested_user = "" if accounts else user
        """The user that the form is filled with, if there is only one."""
        self.browsers = KnownBrowsers(
            {each.user: each.password for each in every}, browser_secret(secret_file)
        )
        self.waiting = WaitingAttempts()
        self._accounts = [(_digest(each.user), _digest(each.password), each) for each in every]
        self._sign_ins: dict[bytes, SignIn] = {}  # by the digest of their token
        self._failed: dict[str, deque[_Failure]] = {}  # by address or known browser

    def wait(self, address: str) -> float:
        """Seconds for which attempts of this address wait for a turn; 0: they are checked at once."""
        now = monotonic()
        attempts = _drop_old(self._failed.get(address, deque()), now)
        return attempts[0].at + _WINDOW - now if len(attempts) >= _MAX_ATTEMPTS else 0.0

    def sign_in(self, user: str, password: str, address: str) -> str | None:
        """A token for the right password; otherwise None, and the attempt is counted against the address."""
        # All of them are always compared, so that the time taken reveals nothing.
        given = _digest(user), _digest(password)
        account = None
        for known_user, known_password, each in self._accounts:
            is_user = hmac.compare_digest(given[0], known_user)
            if hmac.compare_digest(given[1], known_password) and is_user:
                account = each
        now = monotonic()
        if account is None:
            self._count_failure(address, _Failure(now, given[0]))
            return None
        self._forget_failures(address, given[0])
        token = secrets.token_urlsafe(32)
        while len(self._sign_ins) >= _MAX_SIGN_INS:
            self._sign_ins.pop(next(iter(self._sign_ins))).end()
        self._sign_ins[_digest(token)] = SignIn(account.user, now, account.role)
        return token

    def find(self, token: str | None) -> SignIn | None:
        """The valid sign-in of a token, if any; this counts as a use."""
        signed_in = self._sign_ins.get(_digest(token)) if token else None
        if signed_in is None or not signed_in.valid:
            return None
        signed_in.used = monotonic()
        return signed_in

    def used(self, signed_in: SignIn) -> None:
        """Count an open page as a use."""
        if signed_in.valid:
            signed_in.used = monotonic()

    def sign_out(self, token: str | None) -> None:
        """End the sign-in of a token."""
        if token and (signed_in := self._sign_ins.pop(_digest(token), None)):
            signed_in.end()

    def remove_expired(self) -> None:
        """End expired sign-ins; called every few seconds."""
        now = monotonic()
        for digest, signed_in in list(self._sign_ins.items()):
            if signed_in.has_expired(now):
                del self._sign_ins[digest]
                signed_in.end()
        for address in [each for each, attempts in self._failed.items() if not _drop_old(attempts, now)]:
            del self._failed[address]

    def _count_failure(self, address: str, failure: _Failure) -> None:
        if address not in self._failed and len(self._failed) >= _MAX_ADDRESSES:
            del self._failed[next(iter(self._failed))]
        self._failed.setdefault(address, deque()).append(failure)

    def _forget_failures(self, address: str, user: bytes) -> None:
        """Forget those of a user who signed in, not guesses at another account's password."""
        others = deque(each for each in self._failed.pop(address, ()) if each.user != user)
        if others:
            self._failed[address] = others


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _drop_old(attempts: deque[_Failure], now: float) -> deque[_Failure]:
    while attempts and now - attempts[0].at > _WINDOW:
        attempts.popleft()
    return attempts
