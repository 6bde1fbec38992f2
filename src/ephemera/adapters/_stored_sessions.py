"""Sessions for frameworks whose session is a dictionary: its owner, its storage, and when its token changes.

The dictionary is JSON in one field of a `Sessions` record, so every guarantee of that pattern holds: the
token is random and Redis never sees it, one call ends all sessions of a user, and nothing written late
revives an ended session. The other field is the user. Frameworks mark a sign-in by writing the user's id into
the session, so a session whose user differs from its record's gets a new token and replaces the old one.

A session without a user belongs to a made-up one, with a random id, until its visitor signs in.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import msgspec

from ephemera.errors import InvalidValue
from ephemera.keyspace import DECODE_ERRORS, Catalogue, Fixed, Sliding
from ephemera.patterns.sessions import ListedSession, Sessions
from ephemera.sync import SyncStore

_ANONYMOUS = "anonymous/"

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class SessionRecord(msgspec.Struct):
    """A framework's session, as Redis holds it."""

    user: str
    data: str
    """A JSON object."""
    expires_at: float = 0
    """Seconds since 1970, for a session that ends before its lifetime does; 0 otherwise."""


class LoadedSession(msgspec.Struct):
    """A session that was read."""

    user: str
    data: dict[str, Any]
    text: str
    """The data as it is stored, to notice changes."""


def declare_sessions(catalogue: Catalogue, lifetime: Sliding | Fixed) -> Sessions[SessionRecord]:
    """Declare the sessions of an application."""
    return Sessions(
        catalogue,
        "session:{session_id}",
        SessionRecord,
        user="user",
        lifetime=lifetime,
        purpose="What a visitor's session holds, and who is signed in",
        saves="a signed cookie with all of it, or a SQL read on every request",
    )


class StoredSessions:
    """The sessions of an application on its store."""

    def __init__(self, store: SyncStore, declaration: Sessions[SessionRecord]) -> None:
        self._declared = declaration
        self._sessions = store[declaration]
        self._pattern = declaration.keyspace.pattern

    @property
    def lifetime(self) -> float:
        """Seconds; of a sliding session from its last use."""
        return (self._declared.keyspace.lifetime.milliseconds or 0) / 1000

    def read(self, token: str, *, extend: bool) -> LoadedSession | None:
        """Read a session, and extend it if it slides and this is a use of it; None when there is none."""
        record = self._sessions.get(token) if extend else self._sessions.peek(token)
        if record is None or 0 < record.expires_at <= time.time():
            return None
        try:
            return LoadedSession(record.user, _decode(record.data), record.data)
        except DECODE_ERRORS:  # another program wrote it
            return None

    def create(
        self,
        user: str | None,
        text: str,
        *,
        replacing: str | None = None,
        sign_in: str | None = None,
        expires_at: float = 0,
    ) -> tuple[str, str]:
        """Store a new session, and return its token and its user, which is made up if there is none."""
        owner = user or _ANONYMOUS + secrets.token_hex(16)
        record = SessionRecord(owner, text, expires_at)
        token = self._sessions.create(record, replacing=replacing, sign_in=sign_in)
        return token, owner

    def update(self, token: str, text: str, *, expires_at: float = 0) -> bool:
        """Replace the data of a session; False, and nothing written, when it has ended."""
        return self._sessions.update(token, data=text, expires_at=expires_at)

    def rotate(self, token: str) -> str | None:
        """Replace the token of a session, and return the new one; None when it has ended."""
        return self._sessions.rotate(token)

    def end(self, token: str) -> None:
        """End a session."""
        self._sessions.end(token)

    def end_all(self, user: str, *, keep: str | None = None) -> int:
        """End all sessions of a user, except that of the token `keep`, and return how many."""
        return self._sessions.end_all(user, keep=keep)

    def of_user(self, user: str) -> list[ListedSession[SessionRecord]]:
        """List a user's sessions by expiry."""
        return self._sessions.of_user(user)

    def begin_sign_in(self, user: str) -> str:
        """Announce a sign-in before the account is read, for `create(..., sign_in=...)`."""
        return self._sessions.begin_sign_in(user)

    def encode(self, data: dict[str, Any]) -> str:
        """The data as JSON; `InvalidValue` names the key whose value JSON cannot express."""
        try:
            return _encoded(data)
        except DECODE_ERRORS:
            for key, value in data.items():
                try:
                    _encoded({key: value})
                except DECODE_ERRORS:
                    given = f"{key!r}: a {type(value).__name__}"
                    raise InvalidValue(self._pattern, "what JSON can express", given) from None
            raise


def is_owner(owner: str, user: str | None) -> bool:
    """Whether a session's record belongs to the user that its data names, or both to no user."""
    return owner.startswith(_ANONYMOUS) if user is None else owner == user


def user_in(data: dict[str, Any], key: str) -> str | None:
    """The user that is signed in by a session's data."""
    found = data.get(key)
    return None if found is None or found == "" else str(found)


def _encoded(data: dict[str, Any]) -> str:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    _decode(text)  # a lone surrogate can be written, but not read
    return text
