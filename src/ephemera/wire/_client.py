"""The client of any kind of server, and how to open one from a URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from ephemera.errors import InvalidUrl
from ephemera.wire._cluster import ClusterClient
from ephemera.wire._commands import Arg
from ephemera.wire._connection import ReplyHandler
from ephemera.wire._credentials import CredentialProvider, CredentialSource
from ephemera.wire._node_client import Invalidations, NodeClient, standalone
from ephemera.wire._scripts import Script
from ephemera.wire._sentinel import SentinelClient
from ephemera.wire._subscriptions import ChannelKind, Subscription
from ephemera.wire._url import Credentials, parse_url


class Client(Protocol):
    """A server, the master that Sentinels name, or a cluster: the same methods for all of them."""

    @property
    def is_cluster(self) -> bool:
        """Whether keys are spread over several servers by slot."""

    @property
    def up(self) -> bool:
        """Whether it is connected; on a cluster, to a master of every slot."""

    @property
    def connection_count(self) -> int:
        """How often its servers were connected to.

        When it has changed, the latest writes may be lost: a server restarted without them, or a replica that
        did not have them yet was promoted.
        """

    def call(self, *args: Arg, timeout: float | None = None) -> Awaitable[Any]:
        """Send a command and return the future of its reply; calls of one loop tick share one write.

        After `timeout` seconds it fails with `DeadlineExceeded`. One that is longer than the URL's `timeout`
        makes it a slow call, which may occupy the server that long.
        """

    def run(
        self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = (), *, timeout: float | None = None
    ) -> Awaitable[Any]:
        """Run a script atomically on its keys; `timeout` is that of `call`."""

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """Send a packed command: a `PreparedScript`, or one for which `is_multiplexed` holds."""

    def send_to(self, reply: ReplyHandler, packed: bytes) -> None:
        """As `send`, but the outcome goes to `reply`, even that the server is down; it never raises that."""

    def subscribe(self, *names: str | bytes, kind: ChannelKind = "channel") -> Subscription:
        """Subscribe to channels, patterns or shard channels."""

    async def track(self, listener: Callable[[Invalidations], None], prefixes: Sequence[str] = ()) -> None:
        """Notify the listener of keys that change; None when any may have, as after a lost connection."""

    def nodes(self) -> Sequence[NodeClient]:
        """The masters, for commands about one server (SCAN, INFO)."""

    def read_nodes(self) -> Sequence[NodeClient]:
        """The nodes that reads go to: as `nodes`, or replicas if the URL asks for them and they are up."""

    async def aclose(self) -> None:
        """Disconnect, after waiting at most one timeout for what is in flight."""


@asynccontextmanager
async def open_client(
    url: str,
    *,
    required: bool = True,
    modules: Collection[str] | None = None,
    credentials: CredentialProvider | None = None,
) -> AsyncIterator[Client]:
    """A connected client for a URL; with `required=False` the server may be down at first.

    A server with other modules than these is refused, whenever it is connected to. `credentials` is called
    for the user name and password, in place of those in the URL.
    """
    target = parse_url(url)
    if credentials is not None:
        if target.credentials != Credentials():
            raise InvalidUrl("credentials come from the provider; take user name and password out of the URL")
        target = replace(target, source=CredentialSource(credentials))
    if modules is not None:
        target = replace(target, modules=frozenset(name.lower() for name in modules))
    client: NodeClient | ClusterClient
    if target.kind == "cluster":
        client = ClusterClient(target)
    else:
        client = SentinelClient(target) if target.kind == "sentinel" else standalone(target)
    await client.start(required=required)
    try:
        yield client
    finally:
        await _uninterrupted(client.aclose())


async def _uninterrupted(closing: Coroutine[Any, Any, None]) -> None:
    """Close in spite of a cancellation, which waits: closing takes some timeouts at most."""
    task = asyncio.ensure_future(closing)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
