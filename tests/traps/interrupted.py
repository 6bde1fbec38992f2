"""Deterministic races: a client that runs other code between two of its commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ephemera.wire import Arg, Client, Script


class Interrupted:
    """A client that runs a callback once, after the server has answered `after` of its commands."""

    def __init__(self, client: Client, meanwhile: Callable[[], Awaitable[object]], after: int = 1) -> None:
        self._client = client
        self._meanwhile = meanwhile
        self._left = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def call(self, *args: Arg) -> Awaitable[Any]:
        """Forward a command."""
        return asyncio.ensure_future(self._then(self._client.call(*args)))

    def run(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Awaitable[Any]:
        """Forward a script."""
        return asyncio.ensure_future(self._then(self._client.run(script, keys, args)))

    async def _then(self, reply: Awaitable[Any]) -> Any:
        answer = await reply
        self._left -= 1
        if self._left == 0:
            await self._meanwhile()
        return answer
