"""Browsers that signed in before, recognized by a signed cookie.

Wrong passwords are counted by address, and an address may be shared: by a proxy that is not configured, by
everyone behind a NAT. A browser that has signed in before is counted by itself, so others' attempts cannot
keep its operator out. The cookie opens nothing: with it, the password is still needed, and each browser has
as many attempts as an address.

The key is derived from the password: a cookie is valid after a restart, and not after the password has
changed.
"""

from __future__ import annotations

import hmac
import secrets
import time
from hashlib import sha256

MAX_AGE = 90 * 86_400
"""Seconds for which a browser is known."""
_PURPOSE = b"a browser that signed in to the console"


class KnownBrowsers:
    """Issues and checks the values of the cookie."""

    def __init__(self, password: str) -> None:
        self._key = hmac.digest(_bytes(password), _PURPOSE, "sha256")

    def issue(self) -> str:
        """A value for a browser that has signed in."""
        name = f"{secrets.token_hex(16)}.{time.time():.0f}"
        return f"{name}.{self._signature(name)}"

    def subject(self, value: str | None) -> str | None:
        """What attempts of the browser are counted by; None for a value that is not ours or too old."""
        name, _, signature = (value or "").rpartition(".")
        if not hmac.compare_digest(_bytes(signature), _bytes(self._signature(name))):
            return None
        browser, _, issued = name.partition(".")
        return f"browser {browser}" if time.time() - int(issued) < MAX_AGE else None

    def _signature(self, name: str) -> str:
        return hmac.new(self._key, _bytes(name), sha256).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
