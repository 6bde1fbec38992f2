"""The connection that all callers of a pool, or of a cluster's node, share: one for each event loop.

It is opened by the first command that may use it. It ends with its pool (`disconnect`, `aclose`, or when the
pool is collected), and with its event loop: a task of its own closes it when `asyncio.run` cancels the tasks
that are left. After a fork a child opens its own, and its pool forgets the connections of the parent.

A server or a setting that the wire does not serve is not an error: `open` then returns None, and the command
runs on a connection of redis-py's, which either works or raises what it always has.
"""

from __future__ import annotations

import asyncio
import os
import re
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import (
    BlockingConnectionPool,
    Connection,
    ConnectionPool,
    DefaultParser,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.auth.token import TokenInterface
from redis.credentials import StreamingCredentialProvider
from redis.exceptions import RedisError
from redis.observability import get_observability_instance

from ephemera._futures import discard
from ephemera.adapters.redis_py._commands import Decode, Pack, decoder, packer
from ephemera.errors import CannotConnect, EphemeraError
from ephemera.wire import (
    Address,
    CredentialProvider,
    Credentials,
    NodeClient,
    Target,
    TlsFiles,
    node_client,
    pack_command,
)

CONNECTION_CLASSES = (Connection, SSLConnection, UnixDomainSocketConnection)
"""Those whose connections the wire can replace."""
_NO_LIMIT = 365 * 86400.0  # seconds

LINKS = "_ephemera_links"
"""The attribute of a pool that has its `Links`."""
_SHORTEST_PAUSE = 1.0  # seconds until a server that could not be connected to is tried again
_LONGEST_PAUSE = 60.0
_PATIENCE = 5.0  # seconds that closing may wait for replies that are in transit
_NO_PATIENCE = 0.05

_all_links: weakref.WeakSet[Links] = weakref.WeakSet()
_ending_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
"""Loops that have cancelled their tasks: one that began now, to close a connection, would never run."""
_pools: weakref.WeakSet[Any] = weakref.WeakSet()
_parents: list[Any] = []


def target_of(template: Any) -> Target | None:
    """Where a connection of redis-py's would connect to, or None if the wire cannot do what it does."""
    if not _is_supported(template):
        return None
    try:
        tls = TlsFiles(context=template.ssl_context.get()) if type(template) is SSLConnection else None
    except (OSError, RedisError):
        return None  # redis-py says what is wrong with its TLS options
    is_unix = type(template) is UnixDomainSocketConnection
    address = Address("", 0, template.path) if is_unix else Address(template.host, int(template.port))
    return Target(
        kind="standalone",
        addresses=(address,),
        credentials=Credentials(template.username or None, template.password or None),
        database=int(template.db or 0),
        tls=tls,
        client_name=template.client_name or "ephemera",
        timeout=template.socket_timeout or _NO_LIMIT,
        connect_timeout=template.socket_connect_timeout or _NO_LIMIT,
        protocol=2 if template.protocol == 2 else 3,
    )


def _is_supported(template: Any) -> bool:
    """Whether the connection is of redis-py's own, without hooks into its bytes or its handshake."""
    return (
        type(template) in CONNECTION_CLASSES
        and type(template._parser) is DefaultParser
        and type(template.encoder).__module__ == "redis._parsers.encoders"
        and is_known_hook(template.redis_connect_func)
        and not isinstance(template.credential_provider, StreamingCredentialProvider)
        and re.fullmatch("[!-~]*", template.client_name or "") is not None
        and get_observability_instance().get_provider_manager() is None
    )


def driver_info_of(template: Any) -> list[tuple[str, ...]]:
    """The commands by which a connection names its library to the server."""
    driver = template.driver_info
    facts = {} if driver is None else {"LIB-NAME": driver.formatted_name, "LIB-VER": driver.lib_version}
    return [("CLIENT", "SETINFO", name, value) for name, value in facts.items() if value]


def is_known_hook(hook: Any) -> bool:
    """Whether a `redis_connect_func` is unset, or the one by which a cluster reads from replicas."""
    return hook is None or getattr(hook, "__func__", None) is RedisCluster.on_connect


def credentials_of(template: Any) -> CredentialProvider | None:
    """The wire's form of a connection's credential provider."""
    provider = template.credential_provider
    if provider is None:
        return None

    async def credentials() -> Credentials:
        found = await provider.get_credentials_async()
        if isinstance(found, TokenInterface):
            return Credentials(found.try_get("oid"), found.get_value())
        return Credentials(None, found[0]) if len(found) == 1 else Credentials(found[0], found[1])

    return credentials


class SharedConnection:
    """One multiplexed connection, in one event loop."""

    def __init__(self, client: NodeClient, links: Links) -> None:
        self.send = client.send
        self.pack: Pack = links.pack
        self.decode: Decode | None = links.decode
        self._client = client
        self._loop = asyncio.get_running_loop()
        self.is_running = self._loop.is_running
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.links = links
        self._keeper = self._loop.create_task(self._keep(), name="ephemera-redis-py")

    @property
    def up(self) -> bool:
        """Whether the server is connected."""
        return self._client.up

    async def exchange(self, commands: Sequence[bytes]) -> list[Any]:
        """Send commands without any other between them, and return their replies, errors among them.

        A caller that is cancelled takes none of them back: a MULTI whose EXEC is missing would swallow the
        commands of all others.
        """
        replies = [self.send(packed) for packed in commands]
        for reply in replies:
            discard(reply)
        for reply in reversed(replies):
            if not reply.done():
                await asyncio.wait((reply,))
        return [reply.exception() or reply.result() for reply in replies]

    async def aclose(self) -> None:
        """Close it, after waiting a little for replies that are in transit."""
        self.end()
        await asyncio.wait((self._keeper,))

    def end(self) -> None:
        """Have it closed by its own task."""
        if not self._ended.done():
            self._ended.set_result(None)

    def abandon(self) -> None:
        """As `end`, from any thread, and whether its loop still runs or not."""
        with suppress(RuntimeError):  # the loop is closed, and the connection with it
            self._loop.call_soon_threadsafe(self.end)

    async def _keep(self) -> None:
        patience = _PATIENCE
        try:
            await self._ended
        except asyncio.CancelledError:  # by a loop that ends, and has cancelled the callers, too
            patience = _NO_PATIENCE
            _ending_loops.add(self._loop)
            raise
        finally:
            self.links.forget(self._loop, self)
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._client.aclose()


class Links:
    """The shared connections of one pool or of one node of a cluster."""

    def __init__(self, template: Any, setup: Sequence[tuple[str, ...]] = ()) -> None:
        self.by_loop: dict[asyncio.AbstractEventLoop, SharedConnection] = {}
        self.latest: SharedConnection | None = None
        """The one that was asked for last."""
        self.template = template
        """A connection of redis-py's that is never opened: it has the settings and the retry policy."""
        self.is_stock = False
        """Whether all commands go by connections of redis-py's from now on."""
        self.pack = packer(template.encoder)
        self.decode = decoder(template.encoder)
        self._setup = setup
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[SharedConnection | None]] = {}
        self._not_before, self._pause = 0.0, _SHORTEST_PAUSE
        _all_links.add(self)

    async def open(self) -> SharedConnection | None:
        """The connection of the running loop, opened if there is none; None if there cannot be one."""
        loop = asyncio.get_running_loop()
        shared = self.latest = self.by_loop.get(loop)
        if shared is not None or self.is_stock or loop.time() < self._not_before or loop in _ending_loops:
            return shared
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._connect(loop))
            opening.add_done_callback(lambda _: self._opening.pop(loop, None))
        return await asyncio.shield(opening)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> SharedConnection | None:
        target = target_of(self.template)
        if target is None:
            self.is_stock = True
            return None
        client = node_client(target, credentials_of(self.template))
        try:
            for words in self._setup:
                await client.add_setup(*words)
            await client.start()
        except CannotConnect:
            self._not_before = loop.time() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            return None
        if self.is_stock:  # since it began: no one would close the connection
            await client.aclose()
            return None
        self._pause = _SHORTEST_PAUSE
        for words in driver_info_of(self.template):
            discard(client.send(pack_command(words)))  # for CLIENT LIST; as in redis-py, it may be refused
        shared = self.by_loop[loop] = self.latest = SharedConnection(client, self)
        return shared

    def forget(self, loop: asyncio.AbstractEventLoop, shared: SharedConnection) -> None:
        """Note that a connection is being closed: the next command opens another."""
        if self.latest is shared:
            self.latest = None
        if self.by_loop.get(loop) is shared:
            del self.by_loop[loop]

    async def aclose(self) -> None:
        """Close the connection of the running loop, and have those of other loops closed."""
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is not None:
            with suppress(EphemeraError):
                await asyncio.shield(opening)
        own = self.by_loop.pop(loop, None)
        self.abandon()
        if own is not None:
            await own.aclose()

    def retire(self) -> None:
        """Have every connection closed, and open no other: the pool or node is gone."""
        self.is_stock = True
        self.abandon()

    def abandon(self) -> None:
        """Have every connection closed by its own loop."""
        for shared in list(self.by_loop.values()):
            shared.abandon()
        self.by_loop.clear()
        self.latest = None


def links_of(pool: Any) -> Links | None:
    """The shared connections of a pool, which are closed with it; None if it is another kind of pool."""
    attributes = pool.__dict__
    if LINKS not in attributes:
        attributes[LINKS] = _links_for(pool)
    links: Links | None = attributes[LINKS]
    return links


def template_of(connection_class: Any, settings: dict[str, Any]) -> Any:
    """A connection of redis-py's with these settings, without those that would keep its pool alive."""
    owners = ("event_dispatcher", "maint_notifications", "oss_cluster_maint_notifications")
    return connection_class(**{name: each for name, each in settings.items() if not name.startswith(owners)})


def _links_for(pool: Any) -> Links | None:
    if type(pool) not in (ConnectionPool, BlockingConnectionPool):
        return None
    links = Links(template_of(pool.connection_class, pool.connection_kwargs))
    weakref.finalize(pool, links.retire).atexit = False
    reference, disconnect = weakref.ref(pool), type(pool).disconnect

    async def disconnect_all(inuse_connections: bool = True) -> None:
        await links.aclose()
        owner = reference()
        if owner is not None:
            await disconnect(owner, inuse_connections)

    pool.disconnect = disconnect_all
    _pools.add(pool)
    return links


def _after_fork() -> None:
    """Leave the parent its connections: a child neither uses nor closes nor frees them."""
    for links in list(_all_links):
        _parents.append((links.by_loop, links._opening))
        links.by_loop, links._opening, links.latest = {}, {}, None
    for pool in list(_pools):
        _parents.append((list(pool._available_connections), list(pool._in_use_connections)))
        pool.reset()


os.register_at_fork(after_in_child=_after_fork)
