"""Who may use the console: one account, its sign-ins, and how often a password may be tried.

All of it is kept in this process, because the console is needed most when Redis is down. Restarting it signs
everybody out. A sign-in ends after twelve hours, or after one without a request or an open page; what is
shown in a browser ends with it, see `SignIn.when_ended`.

Passwords are compared as digests in constant time. After ten wrong ones within five minutes from one address,
or a hundred from all, further tries are refused unread until those five minutes are over.
"""

from __future__ import annotations

import hmac
import secrets
from collections import defaultdict, deque
from collections.abc import Callable
from hashlib import sha256
from time import monotonic

LONGEST = 12 * 3600.0
"""Seconds that a sign-in lasts at most."""
IDLE = 3600.0
"""Seconds that it lasts without a request or an open page."""

_WINDOW = 300.0  # seconds
_TRIES = 10  # wrong passwords in a window, from one address
_TRIES_IN_ALL = 100
_MOST_SIGN_INS = 1000  # the oldest goes when there are more


class SignIn:
    """One browser that signed in."""

    def __init__(self, user: str, now: float) -> None:
        self.user = user
        self.began = self.used = now
        self.ended = False
        self.dark: bool | None = None
        """What this browser wants to see; None is what its system says."""
        self._farewells: list[Callable[[], None]] = []

    @property
    def valid(self) -> bool:
        """Whether it still holds."""
        return not self.ended and not self.over(monotonic())

    def over(self, now: float) -> bool:
        """Whether its time is over."""
        return now - self.began > LONGEST or now - self.used > IDLE

    def when_ended(self, farewell: Callable[[], None]) -> Callable[[], None]:
        """Have something done when it ends; returns what takes that back."""
        self._farewells.append(farewell)
        return lambda: self._farewells.remove(farewell) if farewell in self._farewells else None

    def end(self) -> None:
        """End it, here and in every page that it opened."""
        self.ended = True
        while self._farewells:
            self._farewells.pop()()


class Access:
    """The account, its sign-ins, and wrong tries."""

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._digest = _digest(password)
        self._sign_ins: dict[bytes, SignIn] = {}  # by the digest of their token
        self._wrong: defaultdict[str, deque[float]] = defaultdict(deque)
        self._wrong_in_all: deque[float] = deque()

    def wait(self, address: str) -> float:
        """Seconds until this address may try a password again; 0 when it may now."""
        now = monotonic()
        known = self._wrong.get(address, deque())
        for tries, most in ((known, _TRIES), (self._wrong_in_all, _TRIES_IN_ALL)):
            _forget(tries, now)
            if len(tries) >= most:
                return tries[0] + _WINDOW - now
        return 0.0

    def sign_in(self, user: str, password: str, address: str) -> str | None:
        """A token for who knows the password; None, and a mark against the address, for others."""
        # Both are compared, whatever the first comes to: the time it takes tells nothing.
        known = hmac.compare_digest(_digest(user), _digest(self.user))
        right = hmac.compare_digest(_digest(password), self._digest)
        now = monotonic()
        if not (known and right):
            self._mark(address, now)
            return None
        self._wrong.pop(address, None)
        token = secrets.token_urlsafe(32)
        while len(self._sign_ins) >= _MOST_SIGN_INS:
            self._sign_ins.pop(next(iter(self._sign_ins))).end()
        self._sign_ins[_digest(token)] = SignIn(self.user, now)
        return token

    def find(self, token: str | None) -> SignIn | None:
        """The sign-in of a token, which counts as a use of it; None when there is none any more."""
        signed_in = self._sign_ins.get(_digest(token)) if token else None
        if signed_in is None or not signed_in.valid:
            return None
        signed_in.used = monotonic()
        return signed_in

    def used(self, signed_in: SignIn) -> None:
        """An open page counts as a use."""
        if signed_in.valid:
            signed_in.used = monotonic()

    def sign_out(self, token: str | None) -> None:
        """End the sign-in of a token."""
        if token and (signed_in := self._sign_ins.pop(_digest(token), None)):
            signed_in.end()

    def tidy(self) -> None:
        """End what is over; asked every few seconds."""
        now = monotonic()
        for digest, signed_in in list(self._sign_ins.items()):
            if signed_in.over(now):
                del self._sign_ins[digest]
                signed_in.end()
        for address in [each for each, tries in self._wrong.items() if not _forget(tries, now)]:
            del self._wrong[address]

    def _mark(self, address: str, now: float) -> None:
        self._wrong[address].append(now)
        self._wrong_in_all.append(now)


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _forget(tries: deque[float], now: float) -> deque[float]:
    while tries and now - tries[0] > _WINDOW:
        tries.popleft()
    return tries
