"""Counting round trips: a client that passes everything on, and notes when a command follows a reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from ephemera.wire import Arg, Client, Script


class Counting:
    """Counts the bursts of commands that were sent after a reply had come."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._was_read = True
        self.trips = 0
        self.commands = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def call(self, *args: Arg, timeout: float | None = None) -> Awaitable[Any]:
        """Count a command."""
        return self._counted(self._client.call(*args, timeout=timeout))

    def run(
        self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = (), *, timeout: float | None = None
    ) -> Awaitable[Any]:
        """Count a script."""
        return self._counted(self._client.run(script, keys, args, timeout=timeout))

    async def aclose(self) -> None:
        """The client is another's."""

    def _counted(self, reply: Awaitable[Any]) -> Awaitable[Any]:
        self.commands += 1
        if self._was_read:
            self._was_read = False
            self.trips += 1
        future = asyncio.ensure_future(reply)
        future.add_done_callback(self._hear)
        return future

    def _hear(self, _: object) -> None:
        self._was_read = True
