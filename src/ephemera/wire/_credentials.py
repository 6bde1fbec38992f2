"""Credentials that change: a provider is called for a user name and password, again before they expire.

A provider is a function or a coroutine function that returns `Credentials`. With `expires_in` they are used
for every connection until three quarters of that time have passed; then the provider is called again, and the
live connections authenticate with what it returns. Without, it is called once for each new connection.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from ephemera.wire._url import Credentials

log = logging.getLogger("ephemera.wire")

CredentialProvider = Callable[[], Credentials | Awaitable[Credentials]]
"""Returns the credentials to use now; a plain function runs in a thread."""

_RENEW_AFTER = 0.75  # of the time that credentials are valid
_RETRY = 1.0  # seconds, when the provider failed


class CredentialSource:
    """The present credentials of one provider."""

    def __init__(self, provider: CredentialProvider) -> None:
        self._provider = provider
        self._current: Credentials | None = None
        self._renew_at = 0.0
        self._lock = asyncio.Lock()

    @property
    def seconds_until_renewal(self) -> float:
        """How long the present credentials are used; infinite when they do not expire."""
        return self._renew_at - monotonic()

    async def for_new_connection(self) -> Credentials:
        """Credentials that a connection may start with."""
        if self._current is None or self._current.expires_in is None:
            self._renew_at = 0.0
        return await self.renewed()

    async def renewed(self) -> Credentials:
        """The present credentials, from the provider if it is time; the old ones if it fails."""
        async with self._lock:
            if self._current is None or monotonic() >= self._renew_at:
                try:
                    self._current = await self._ask()
                except Exception as error:
                    if self._current is None:
                        raise
                    self._renew_at = monotonic() + _RETRY
                    log.warning("the credential provider failed: %s; trying again", type(error).__name__)
            return self._current

    async def _ask(self) -> Credentials:
        asked_at = monotonic()
        if inspect.iscoroutinefunction(self._provider):
            credentials = await self._provider()
        else:
            credentials = await asyncio.to_thread(self._provider)
            if inspect.isawaitable(credentials):
                credentials = await credentials
        if not isinstance(credentials, Credentials):
            raise TypeError(
                f"a credential provider returns ephemera.Credentials, not {type(credentials).__name__}"
            )
        valid = credentials.expires_in
        self._renew_at = float("inf") if valid is None else asked_at + _RENEW_AFTER * valid
        return credentials
