"""Who is signed in, and which tokens are revoked: found by user, or a page of whoever is there.

Sessions are declared sensitive, so what is in them is not even read: shown are an id that opens nothing, when
it was used or begun, and when it ends. A page of users or of marks comes from a bounded search (`finding`)
and one trip. With Redis down every call raises `ConnectionFailed`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec

from ephemera.keyspace import Keyspace, Sliding, Store
from ephemera.operations.inspect._finder import Finder
from ephemera.patterns.revocation import Revocation
from ephemera.patterns.sessions import Sessions


class SessionSeen(msgspec.Struct, frozen=True):
    """One session of a user."""

    id: str
    """It opens nothing, and ends the session by `end_by_id`."""
    since: datetime
    """When it was used last, or began if using it does not prolong it; to within a minute."""
    slides: bool
    ends: datetime


class SignedIn(msgspec.Struct, frozen=True):
    """A user with sessions."""

    user: str
    sessions: int


class RevokedMark(msgspec.Struct, frozen=True):
    """One thing that is revoked: a token, a family of tokens, or all tokens of a user until some moment."""

    what: str
    id: str
    lapses_in: float
    """Seconds until everything that it revokes has expired by itself."""


class SignedInUsers:
    """Users with sessions, by looking again and again."""

    def __init__(self, store: Store, sessions: Sessions[Any], most: int = 200) -> None:
        self._client = store.client(sessions.index.role)
        self._index = sessions.index
        self.finder = Finder(self._client, sessions.index, most)

    async def look(self) -> list[SignedIn]:
        """Those known by now, by their ids."""
        keys = await self.finder.look()
        # An index holds an infinite score while somebody signs in, and ends of sessions otherwise.
        counts = await asyncio.gather(*(self._client.call("ZCOUNT", key, "-inf", "(+inf") for key in keys))
        found = ((_only_field(self._index, key), count) for key, count in zip(keys, counts, strict=True))
        return [SignedIn(user, count) for user, count in found if count]


async def sessions_of(store: Store, sessions: Sessions[Any], user: str, most: int = 200) -> list[SessionSeen]:
    """A user's sessions, the one that ends last first; looking does not let them slide, nor read them."""
    client = store.client(sessions.keyspace.role)
    newest = ("(+inf", "-inf", "BYSCORE", "REV", "LIMIT", 0, most, "WITHSCORES")
    clock, listed = await asyncio.gather(
        client.call("TIME"), client.call("ZRANGE", sessions.keys.index_key(user), *newest)
    )
    now = int(clock[0]) * 1000 + int(clock[1]) // 1000
    ends = {session_id.decode(): float(score) for session_id, score in listed if float(score) > now}
    there = await asyncio.gather(
        *(client.call("EXISTS", sessions.keys.session_key(user, each)) for each in ends)
    )
    lifetime = sessions.keyspace.lifetime
    return [
        SessionSeen(
            session_id,
            datetime.fromtimestamp((end - (lifetime.milliseconds or 0)) / 1000, UTC),
            isinstance(lifetime, Sliding),
            datetime.fromtimestamp(end / 1000, UTC),
        )
        for (session_id, end), exists in zip(ends.items(), there, strict=True)
        if exists
    ]


async def tokens_void_until(store: Store, revocation: Revocation, user: str) -> datetime | None:
    """Up to when a user's tokens are void; None when they never were revoked, or all have expired."""
    (field,) = revocation.users.template.fields
    named: dict[str, Any] = {field: user}
    instant = await store[revocation.users].get(**named)
    return None if instant is None else datetime.fromtimestamp(instant / 1e6, UTC)


class RevokedMarks:
    """What is revoked, by looking again and again."""

    def __init__(self, store: Store, revocation: Revocation, most: int = 100) -> None:
        spaces: dict[str, Keyspace[Any]] = {
            **{f"{kind} token": space for kind, space in revocation.tokens.items()},
            "family": revocation.families,
            "user": revocation.users,
        }
        self._client = store.client(revocation.users.role)
        self._finders = [(what, space, Finder(self._client, space, most)) for what, space in spaces.items()]

    async def look(self) -> list[RevokedMark]:
        """Those known by now; the one that lapses last first."""
        marks: list[RevokedMark] = []
        for what, space, finder in self._finders:
            keys = await finder.look()
            lives = await asyncio.gather(*(self._client.call("PTTL", key) for key in keys))
            marks += (
                RevokedMark(what, _only_field(space, key), life / 1000)
                for key, life in zip(keys, lives, strict=True)
                if life > 0
            )
        return sorted(marks, key=lambda mark: -mark.lapses_in)


def _only_field(space: Keyspace[Any], key: str) -> str:
    (value,) = (space.parse(key) or {"": key}).values()
    return value
