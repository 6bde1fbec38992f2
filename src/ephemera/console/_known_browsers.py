"""Browsers that signed in before, recognized by a signed cookie.

Wrong passwords are counted by address, and an address may be shared: by a proxy that is not configured, by
everyone behind a NAT. A browser that has signed in before is counted by itself, so others' attempts cannot
keep its operator out. The cookie opens nothing: with it, the password is still needed, and each browser has
as many attempts as an address. It is for one account, so that none gives further guesses at another one.

The key is derived from the account's own password: a cookie is valid after a restart, and not after the
password has changed. It is derived slowly, so that a stolen cookie is of little use to guess the password,
and from no other account's password, so that none can check guesses at another one against its own cookie.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Mapping
from hashlib import scrypt, sha256

MAX_AGE = 90 * 86_400
"""Seconds for which a browser is known."""
_PURPOSE = b"a browser that signed in to the console: "


class KnownBrowsers:
    """Issues and checks the values of the cookie, for accounts given as passwords by user."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._keys = {
            user: scrypt(_bytes(password), salt=_PURPOSE + _bytes(user), n=2**14, r=8, p=1)
            for user, password in passwords.items()
        }
        self._unknown = secrets.token_bytes()

    def issue(self, user: str) -> str:
        """A value for a browser in which this user has signed in."""
        name = f"{secrets.token_hex(16)}.{time.time():.0f}"
        return f"{name}.{self._signature(name, user)}"

    def subject(self, value: str | None, user: str) -> str | None:
        """What a user's attempts in the browser are counted by; None if it is not theirs or too old."""
        name, _, signature = (value or "").rpartition(".")
        if not hmac.compare_digest(_bytes(signature), _bytes(self._signature(name, user))):
            return None
        browser, _, issued = name.partition(".")
        return f"browser {browser}" if time.time() - int(issued) < MAX_AGE else None

    def _signature(self, name: str, user: str) -> str:
        return hmac.new(self._keys.get(user, self._unknown), _bytes(name), sha256).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
