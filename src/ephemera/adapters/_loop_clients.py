"""One client for each event loop that uses a server, for libraries whose objects outlive a loop.

`asyncio.run`, Django's `async_to_sync` and test runners create a loop, use it and close it. A connection
belongs to one loop, so each loop gets a client when it first needs one. A loop that is shut down properly, as
`asyncio.run` does by `loop.shutdown_asyncgens`, closes its client.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from ephemera.wire import Client, open_client


class LoopClients:
    """The clients of one server, by event loop; a server that is down is connected to in the background."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._clients: dict[asyncio.AbstractEventLoop, Client] = {}
        # Kept, because a context manager that is freed closes its client.
        self._contexts: dict[asyncio.AbstractEventLoop, AbstractAsyncContextManager[Client]] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[Client]] = {}

    def current(self) -> Client | None:
        """The client of the running loop, if it is open."""
        return self._clients.get(asyncio.get_running_loop())

    async def get(self) -> Client:
        """The client of the running loop, opened at its first use."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is not None:
            return client
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._open(loop))
            opening.add_done_callback(lambda _: self._opening.pop(loop, None))
        return await asyncio.shield(opening)

    async def aclose(self) -> None:
        """Close the client of the running loop; its next use opens another."""
        loop = asyncio.get_running_loop()
        self._clients.pop(loop, None)
        context = self._contexts.pop(loop, None)
        if context is not None:
            await context.__aexit__(None, None, None)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Client:
        self._forget_closed_loops()
        context = open_client(self._url, required=False)
        client = await context.__aenter__()
        self._contexts[loop], self._clients[loop] = context, client
        return client

    def _forget_closed_loops(self) -> None:
        for loop in list(self._clients):  # other threads add theirs meanwhile
            if loop.is_closed():
                self._clients.pop(loop, None)
                self._contexts.pop(loop, None)
