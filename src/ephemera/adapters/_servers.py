"""Servers as libraries use them: by URL, from any thread or event loop, and their keys that match a pattern.

*Libraries whose objects outlive a loop.* `asyncio.run`, Django's `async_to_sync` and test runners create a
loop, use it and close it. A connection belongs to one loop, so each loop gets a client when it first needs
one. A loop that is shut down properly, as `asyncio.run` does by `loop.shutdown_asyncgens`, closes its client.

*Synchronous libraries.* Commands run in the calling thread, on an event loop's thread too: a synchronous
library in an async view then blocks the loop for a round trip, as it does on any client.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import quote

from ephemera.blocking import BlockingStore, connect
from ephemera.keyspace import Catalogue
from ephemera.wire import Arg, Client, open_client

PAGE = 1000
"""About how many keys the server looks at in one step of a scan."""
_SPECIAL = re.compile(r"([\\*?\[])")


async def find_keys(client: Client, pattern: str, page: int = PAGE) -> list[bytes]:
    """The keys that match a pattern."""
    return list(dict.fromkeys([key async for keys in _pages(client, pattern, page) for key in keys]))


async def delete_keys(client: Client, pattern: str, page: int = PAGE) -> int:
    """Delete the keys that match a pattern, and return how many."""
    deleted = 0
    async for keys in _pages(client, pattern, page):
        deleted += sum(await asyncio.gather(*[client.call("UNLINK", key) for key in keys]))
    return deleted


def escaped(text: str) -> str:
    """A text as a pattern that matches it alone."""
    return _SPECIAL.sub(r"\\\1", text)


async def _pages(client: Client, pattern: str, page: int) -> AsyncIterator[list[bytes]]:
    for node in client.nodes():
        cursor: Any = b"0"
        while True:
            cursor, keys = await node.call("SCAN", cursor, "MATCH", pattern, "COUNT", page)
            yield keys
            if cursor == b"0":
                break


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
        for loop in list(self._clients):  # other threads add theirs in the meantime
            if loop.is_closed():
                self._clients.pop(loop, None)
                self._contexts.pop(loop, None)


def url_of(host: str, port: int, db: int, username: str | None, password: str | None) -> str:
    """The URL of a server whose parts are given one by one."""
    who = (
        f"{quote(username or '', safe='')}:{quote(password or '', safe='')}@" if username or password else ""
    )
    return f"redis://{who}[{host}]:{port}/{db}" if ":" in host else f"redis://{who}{host}:{port}/{db}"


class SynchronousServer:
    """A server that is connected to when it is first used; a forked process connects by itself."""

    def __init__(self, url: str, *catalogues: Catalogue) -> None:
        self.store: BlockingStore = connect(url, *catalogues, required=False)

    def call(self, *command: Arg) -> Any:
        """Send a command and return its reply."""
        return self.store.complete(_call(self.store.client, command))

    def call_all(self, commands: Iterable[tuple[Arg, ...]]) -> list[Any]:
        """Send commands in one write and return their replies; each has one key, so it works on a cluster."""
        return self.store.complete(_call_all(self.store.client, commands))

    def delete_prefix(self, prefix: str) -> int:
        """Delete all keys with a prefix, and return how many there were."""
        return self.store.wait_regardless(delete_keys(self.store.aio.client(), f"{escaped(prefix)}*"))

    def flush(self) -> None:
        """Delete all keys of the database, on all nodes."""
        self.store.wait_regardless(_flush(self.store.aio.client()))

    def close(self) -> None:
        """Disconnect."""
        self.store.close()


async def _call(client: Any, command: tuple[Arg, ...]) -> Any:
    return await client.call(*command)


async def _call_all(client: Any, commands: Iterable[tuple[Arg, ...]]) -> list[Any]:
    sent = [client.call(*command) for command in commands]
    return [await reply for reply in sent]


async def _flush(client: Client) -> None:
    for node in client.nodes():
        await node.call("FLUSHDB")
