"""The server's time, known to this process without a round trip.

`store[SERVER_CLOCK].now()` adds this process's monotonic clock to the offset that the server's last answer
gave. Scripts that return the time keep it current; otherwise it is asked for once a minute.
"""

from __future__ import annotations

import asyncio
import math
from time import monotonic, time

from ephemera._futures import discard
from ephemera.errors import ServerError
from ephemera.keyspace import Store
from ephemera.wire import Client

_MAX_AGE = 60.0  # seconds after which the server is asked for the time again


class ServerClock:
    """The clock of one server."""

    def __init__(self, client: Client) -> None:
        self._call = client.call
        self._offset = (time() - monotonic()) * 1000  # milliseconds; this machine's until the server answers
        self._synced_at = -math.inf
        self._request: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Return the server's time in milliseconds since 1970."""
        return monotonic() * 1000 + self._offset

    def set(self, server_now: float) -> None:
        """Take the time from a reply that contains it."""
        self._synced_at = monotonic()
        self._offset = server_now - self._synced_at * 1000

    def is_outdated(self) -> bool:
        """Whether the server has not sent its time for a minute."""
        return monotonic() >= self._synced_at + _MAX_AGE

    async def sync(self) -> None:
        """Ask the server for its time; concurrent callers share one request."""
        if self._request is None or self._request.done():
            # A task of its own: cancelling one caller must not leave the others without an answer.
            self._request = asyncio.create_task(self._sync(), name="ephemera-clock")
            self._request.add_done_callback(discard)
        await asyncio.shield(self._request)

    async def _sync(self) -> None:
        try:
            seconds, microseconds = await self._call("TIME")
        except ServerError:
            self._synced_at = monotonic()
            return  # not permitted: use this machine's clock until a script returns the time
        self.set(int(seconds) * 1000 + int(microseconds) / 1000)


class _ServerClockDeclaration:
    def bind(self, store: Store) -> ServerClock:
        """Return the clock of the store's cache server."""
        return ServerClock(store.client("cache"))


SERVER_CLOCK = _ServerClockDeclaration()
"""`store[SERVER_CLOCK]` is the clock of the store's cache server."""
