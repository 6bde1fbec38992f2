"""The keys that verify access tokens: another service's key set (JWKS), from a URL or a file.

It is fetched with the first token, again when a token does not verify (at most every few seconds), and in the
background every few minutes, so that a withdrawn key stops verifying. While it cannot be fetched the last one
is used; if there is none yet, tokens cannot be verified, and requests with a token get 503.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from ephemera.errors import InvalidToken
from ephemera.patterns.tokens import Claims, Tokens
from ephemera.web import unavailable
from ephemera_services.runtime import unauthorized
from ephemera_services.scripture.settings import Settings

_MIN_INTERVAL = 5.0  # seconds between two fetches
_MAX_AGE = 300.0  # seconds
_TIMEOUT = 5.0  # seconds
_MAX_VERIFIED = 10_000


class _Set(msgspec.Struct):
    keys: list[dict[str, Any]]


class KeySet:
    """Verifies tokens with another service's keys; a verified token is cached until it expires."""

    def __init__(self, settings: Settings, http: httpx.AsyncClient) -> None:
        self._source = settings.jwks
        self._http = http
        self._tokens = Tokens({"keys": []}, settings.issuer, settings.audience)
        self._verified: dict[str, Claims] = {}
        self._tried_at = self._fetched_at = -_MAX_AGE
        self._fetching = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[KeySet]:
        """The key set of the settings."""
        async with httpx.AsyncClient(timeout=_TIMEOUT) as http:
            keys = cls(settings, http)
            try:
                yield keys
            finally:
                if keys._renewing is not None:
                    keys._renewing.cancel()
                    await asyncio.wait((keys._renewing,))

    async def verify(self, token: str) -> Claims:
        """Return the claims of a token; 401 if it is not valid, 503 if no key was ever fetched."""
        if self._source is None:
            raise unauthorized("No key set is configured, so access tokens cannot be used here.")
        if time.monotonic() - self._fetched_at > _MAX_AGE:
            self._renew()
        known = self._verified.get(token)
        if known is not None and known.exp > time.time():
            return known
        try:
            claims = self._tokens.verify(token, kind="access")
        except InvalidToken as invalid:
            claims = await self._verify_with_new_keys(token, invalid)
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    async def _verify_with_new_keys(self, token: str, invalid: InvalidToken) -> Claims:
        """Verify with newer keys: the token may be signed with a key that was just published."""
        tried = self._tokens
        await self._fetch()
        if self._tokens is not tried:
            try:
                return self._tokens.verify(token, kind="access")
            except InvalidToken as still:
                invalid = still
        if not self._tokens.keys["keys"]:  # type: ignore[index] # not a KeyRing here
            raise unavailable(
                "The keys that verify tokens cannot be fetched; please try again.", retry_after=5
            )
        raise unauthorized(f"The access token is not valid: {invalid.reason}.") from None

    def _renew(self) -> None:
        """Fetch in the background; the keys are probably unchanged."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._fetch(), name="scripture-key-set")

    async def _fetch(self) -> None:
        """Fetch the keys, unless that was just tried; changed keys make a new `_tokens`."""
        async with self._fetching:
            if time.monotonic() - self._tried_at < _MIN_INTERVAL:
                return
            try:
                found = msgspec.json.decode(await self._read(), type=_Set)
            except (httpx.HTTPError, OSError, msgspec.MsgspecError):
                self._tried_at = time.monotonic()  # not before: a cancelled fetch must not count
                return
            self._tried_at = self._fetched_at = time.monotonic()
            fresh = {"keys": found.keys}
            if fresh != self._tokens.keys:
                self._tokens = Tokens(fresh, self._tokens.issuer, self._tokens.audience)
                self._verified.clear()

    async def _read(self) -> bytes:
        source = str(self._source)
        if source.startswith(("http://", "https://")):
            return (await self._http.get(source)).raise_for_status().content
        return await asyncio.to_thread(Path(source).read_bytes)
