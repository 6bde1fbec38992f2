"""A server for synchronous libraries that cache: commands by URL, and addresses in the parts they know.

Commands run in the calling thread, on an event loop's thread too: a synchronous library in an async view then
blocks the loop for a round trip, as it does on any client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from ephemera.adapters._key_scan import delete_keys, escaped
from ephemera.blocking import BlockingStore, connect
from ephemera.keyspace import Catalogue
from ephemera.wire import Arg, Client


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
