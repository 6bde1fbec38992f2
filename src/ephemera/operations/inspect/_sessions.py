"""Signed-in users, their sessions, and revoked tokens.

Sessions are declared sensitive, so their contents are not even read: shown are an id that is not a
credential, the last use or start, and the expiry. A page of users or revocations costs a bounded search
(`KeyFinder`) and one round trip. When Redis is down, every call raises `ConnectionFailed`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec

from ephemera._stored_numbers import stored_time
from ephemera.keyspace import Keyspace, Sliding, Store
from ephemera.operations.inspect._key_finder import KeyFinder
from ephemera.patterns.revocation import Revocation
from ephemera.patterns.sessions import Sessions


class SessionSummary(msgspec.Struct, frozen=True):
    """One session of a user."""

    id: str
    """Not a credential; `end_by_id` ends the session by it."""
    since: datetime
    """Last use, or start if use does not extend the session; within a minute."""
    slides: bool
    ends: datetime


class SignedInUser(msgspec.Struct, frozen=True):
    """A user, and the number of sessions."""

    user: str
    sessions: int


class RevocationEntry(msgspec.Struct, frozen=True):
    """One revocation: of a token, a token family, or all tokens of a user issued before a moment."""

    kind: str
    id: str
    expires_in: float
    """Seconds until everything that it revokes has expired anyway."""


class UserFinder:
    """Finds users with sessions by repeated searches."""

    def __init__(self, store: Store, sessions: Sessions[Any], limit: int = 200) -> None:
        self._client = store.client(sessions.index.role)
        self._index = sessions.index
        self.finder = KeyFinder(self._client, sessions.index, limit)

    async def search(self) -> list[SignedInUser]:
        """Continue the search, and return the users known by now, sorted by id."""
        keys = await self.finder.search()
        # Scores are expiry times, and infinite for a session that is being created.
        counts = await asyncio.gather(*(self._client.call("ZCOUNT", key, "-inf", "(+inf") for key in keys))
        found = ((_only_field(self._index, key), count) for key, count in zip(keys, counts, strict=True))
        return [SignedInUser(user, count) for user, count in found if count]


async def list_sessions(
    store: Store, sessions: Sessions[Any], user: str, limit: int = 200
) -> list[SessionSummary]:
    """A user's sessions, the latest expiry first; this neither extends nor reads them."""
    client = store.client(sessions.keyspace.role)
    newest = ("(+inf", "-inf", "BYSCORE", "REV", "LIMIT", 0, limit, "WITHSCORES")
    clock, listed = await asyncio.gather(
        client.call("TIME"), client.call("ZRANGE", sessions.keys.index_key(user), *newest)
    )
    now = int(clock[0]) * 1000 + int(clock[1]) // 1000
    ends = {
        session_id.decode(): float(score)
        for session_id, score in listed
        if float(score) > now and session_id.isascii() and stored_time(float(score) / 1000)
    }
    there = await asyncio.gather(
        *(client.call("EXISTS", sessions.keys.session_key(user, each)) for each in ends)
    )
    lifetime = sessions.keyspace.lifetime
    return [
        SessionSummary(
            session_id,
            datetime.fromtimestamp((end - (lifetime.milliseconds or 0)) / 1000, UTC),
            isinstance(lifetime, Sliding),
            datetime.fromtimestamp(end / 1000, UTC),
        )
        for (session_id, end), exists in zip(ends.items(), there, strict=True)
        if exists
    ]


async def tokens_revoked_until(store: Store, revocation: Revocation, user: str) -> datetime | None:
    """The moment up to which issued tokens of a user are revoked; None when there is no such revocation."""
    (field,) = revocation.users.template.fields
    named: dict[str, Any] = {field: user}
    instant = await store[revocation.users].get(**named)
    return None if instant is None else stored_time(instant / 1e6) or datetime.max.replace(tzinfo=UTC)


class RevocationFinder:
    """Finds revocations by repeated searches."""

    def __init__(self, store: Store, revocation: Revocation, limit: int = 100) -> None:
        keyspaces: dict[str, Keyspace[Any]] = {
            **{f"{kind} token": keyspace for kind, keyspace in revocation.tokens.items()},
            "family": revocation.families,
            "user": revocation.users,
        }
        self._client = store.client(revocation.users.role)
        self._finders = [
            (kind, keyspace, KeyFinder(self._client, keyspace, limit)) for kind, keyspace in keyspaces.items()
        ]

    async def search(self) -> list[RevocationEntry]:
        """Continue the search, and return the revocations known by now, the latest expiry first."""
        entries: list[RevocationEntry] = []
        for kind, keyspace, finder in self._finders:
            keys = await finder.search()
            ttls = await asyncio.gather(*(self._client.call("PTTL", key) for key in keys))
            entries += (
                RevocationEntry(kind, _only_field(keyspace, key), ttl / 1000)
                for key, ttl in zip(keys, ttls, strict=True)
                if ttl > 0
            )
        return sorted(entries, key=lambda entry: -entry.expires_in)


def _only_field(keyspace: Keyspace[Any], key: str) -> str:
    (value,) = (keyspace.template.parse_text(key) or {"": key}).values()
    return value
