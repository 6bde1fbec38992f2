"""Browsers that signed in before, or that the operator opened by a link of the log, recognized by a cookie.

Wrong passwords are counted by address, and an address may be shared: by a proxy that is not configured, by
everyone behind a NAT. A known browser is counted by itself, so others' attempts cannot keep its operator out.
The cookie opens nothing: with it, the password is still needed, and each browser has as many attempts as an
address. It is for one account, so that none gives further guesses at another one.

A cookie is signed with a random secret that never leaves the console. A key made of the password alone would
let everyone make the cookie of a guessed password, and so check guesses without a limit. The secret is kept
in a file if there is one: a cookie is then valid after a restart, and never after the password has changed.

A browser that is not known yet may be at an address from which others flood the form. The console's log has a
link that makes it known, which those others cannot read. All who open it are counted as one browser.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

MAX_AGE = 90 * 86_400
"""Seconds for which a browser is known."""
_SECRET_BYTES = 32
_INVITED = "browser of the link"

log = logging.getLogger(__name__)


class KnownBrowsers:
    """Issues and checks the values of the cookie, for accounts given as passwords by user."""

    def __init__(self, passwords: Mapping[str, str], secret: bytes) -> None:
        self._keys = {
            user: _digest(secret, _digest(_bytes(user), _bytes(password)))
            for user, password in passwords.items()
        }
        self._unknown = secrets.token_bytes()
        self.invitation = secrets.token_urlsafe()
        """The value for one browser of any account, until the process ends; shown in the log."""

    def issue(self, user: str) -> str:
        """A value for a browser in which this user has signed in."""
        name = f"{secrets.token_hex(16)}.{time.time():.0f}"
        return f"{name}.{self._signature(name, user)}"

    def is_invitation(self, value: str) -> bool:
        """Whether this is the value of the link."""
        return hmac.compare_digest(_bytes(value), _bytes(self.invitation))

    def subject(self, value: str | None, user: str) -> str | None:
        """What a user's attempts in the browser are counted by; None if it is not theirs or too old."""
        if self.is_invitation(value or ""):
            return _INVITED
        name, _, signature = (value or "").rpartition(".")
        if not hmac.compare_digest(_bytes(signature), _bytes(self._signature(name, user))):
            return None
        browser, _, issued = name.partition(".")
        return f"browser {browser}" if time.time() - int(issued) < MAX_AGE else None

    def _signature(self, name: str, user: str) -> str:
        return _digest(self._keys.get(user, self._unknown), _bytes(name)).hex()


def browser_secret(path: Path | None) -> bytes:
    """The secret in a file that only its owner can read, made at first; without a file, a new one."""
    made = secrets.token_bytes(_SECRET_BYTES)
    if path is None:
        return made
    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise PermissionError(0, "another user may know it")
            kept = file.read(_SECRET_BYTES)
            if len(kept) == len(made):
                return kept
            file.seek(0)
            file.write(made)
    except OSError as error:
        log.warning("known browsers are forgotten at a restart", extra={"because": error.strerror})
    return made


def _digest(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, sha256)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
