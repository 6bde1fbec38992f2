"""Whether an access token or its sign-in was revoked: identity's list, asked at most every 400 ms.

A token is valid until it expires, unless its sign-in ended before, by a sign-out, a role change or a reused
refresh token, or its holder revoked it alone. Identity publishes the ids of both (`GET
/.well-known/ended-sign-ins`, see its README). Requests with a token wait for a new list if the known one is
older than `_MAX_AGE`; all waiting requests share one fetch. So a demotion holds here within a second, at the
cost of two or three small requests per second and process.

*When identity cannot be asked*, administrators are refused with 503 after a second, because a demotion might
be unknown here. Other tokens are accepted for `revocations_grace` after the last list, and then refused with
503, too. Without a token nothing changes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from hashlib import sha256

import httpx
import msgspec

from ephemera.patterns.tokens import Claims
from ephemera.web import unavailable
from ephemera_services.runtime import unauthorized
from ephemera_services.scripture.settings import Settings

_MAX_AGE = 0.4  # seconds
_RETRY_AFTER = 0.4  # seconds after a failed fetch
_TIMEOUT = 1.0  # seconds
_RETENTION = 16 * 60.0  # seconds: longer than an access token is valid


class _List(msgspec.Struct):
    cursor: str
    ended: list[str]


class Revocations:
    """The ended sign-ins and revoked tokens that this process knows."""

    def __init__(self, settings: Settings, http: httpx.AsyncClient) -> None:
        self._url = settings.revocations_url()
        self._grace = settings.revocations_grace.total_seconds()
        self._http = http
        self._ended: set[str] = set()
        self._order: deque[tuple[float, str]] = deque()  # when an entry can be dropped
        self._cursor = "0"
        self._read_at = self._failed_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def check(self, claims: Claims, *, admin: bool) -> None:
        """Raise 401 if the sign-in or the token has ended, and 503 if that cannot be known."""
        if self._url is None:
            return
        if time.monotonic() - self._read_at > _MAX_AGE:
            await self._refresh()
        age = time.monotonic() - self._read_at
        if age > (_TIMEOUT if admin else max(_TIMEOUT, self._grace)):
            raise unavailable("Whether you are still signed in cannot be checked; please try again.")
        if claims.family is None or not self._ended.isdisjoint(map(_digest, (claims.family, claims.jti))):
            raise unauthorized("The access token was revoked: sign in again.")

    async def aclose(self) -> None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))

    async def _refresh(self) -> None:
        """Fetch the list, together with others who wait for it, unless that has just failed."""
        if time.monotonic() - self._failed_at < _RETRY_AFTER:
            return
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch(), name="scripture-revocations")
        await asyncio.wait((self._fetching,))  # a request that is cancelled leaves it to the others

    async def _fetch(self) -> None:
        began = time.monotonic()
        try:
            answer = await self._http.get(str(self._url), params={"after": self._cursor}, timeout=_TIMEOUT)
            found = msgspec.json.decode(answer.raise_for_status().content, type=_List)
        except (httpx.HTTPError, msgspec.MsgspecError):
            self._failed_at = time.monotonic()
            return
        while self._order and self._order[0][0] < began:
            self._ended.discard(self._order.popleft()[1])
        for digest in found.ended:
            if digest not in self._ended:
                self._ended.add(digest)
                self._order.append((began + _RETENTION, digest))
        self._cursor, self._read_at = found.cursor, began


def _digest(revoked: str) -> str:
    return sha256(revoked.encode()).hexdigest()[:32]
