"""The client of a cluster: every command goes to the node that serves its key.

- The slot of the first key picks the node; the server refuses keys of several slots, and the error names
  them.
- MOVED and ASK are followed on behalf of the caller, so a slot migration shows as a little latency, never as
  an error. TRYAGAIN (some keys of a command have moved, some have not) is retried after a pause.
- While a master is lost, its slots are `Unavailable` and the others are not. The slot map is then read again
  every tenth of a second until each slot has a live master: a fail-over ends as soon as the cluster ends it.
- Channels are subscribed to at any node; shard channels at their slot's master, and they follow their slot.
- With `read_from=replicas`, reads go to a replica of the slot if one is up: faster, and possibly stale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ephemera.errors import ServerError, StoreClosed, Unavailable, UnsupportedCommand
from ephemera.wire._cluster_nodes import ClusterNodes
from ephemera.wire._commands import (
    KEYLESS_ON_ANY_NODE,
    PLAIN,
    Arg,
    blocking_seconds,
    command_name,
    first_key,
    refuse_stateful,
)
from ephemera.wire._connection import Entry, ReplyHandler
from ephemera.wire._deadline import within
from ephemera.wire._handshake import Endpoint
from ephemera.wire._node_client import Invalidations, NodeClient
from ephemera.wire._packed_commands import packed_key, unpack_command
from ephemera.wire._redirections import Redirections
from ephemera.wire._scripts import PreparedScript, Script
from ephemera.wire._slots import key_slot
from ephemera.wire._subscriptions import ChannelKind, Hub, Subscription
from ephemera.wire._url import Target


class ClusterClient:
    """The client of a cluster; see `Client` for what its methods do."""

    is_cluster = True

    def __init__(self, target: Target) -> None:
        self._nodes = ClusterNodes(target, self._redirect)
        self._redirections = Redirections(self._nodes)
        name = self._nodes.name
        self._hub = Hub(
            Endpoint(
                target, target.credentials, self._nodes.any_address, name, "cluster", source=target.source
            )
        )
        self._reads_replicas = target.read_from == "replicas"

    def __repr__(self) -> str:
        masters = len(self._nodes.masters)
        return f"<ClusterClient {self._nodes.name} masters={masters} {'up' if self.up else 'down'}>"

    @property
    def up(self) -> bool:
        """Whether every slot has a connected master."""
        return self._nodes.up

    @property
    def connection_count(self) -> int:
        """How often the present nodes were connected to."""
        return self._nodes.connection_count

    def call(self, *args: Arg, timeout: float | None = None) -> Awaitable[Any]:
        """Send a command to the node that serves its key."""
        if timeout is None and len(args) > 1 and args[0] in PLAIN:
            if self._reads_replicas:
                return self._nodes.node_for(args).call(*args)
            return self._nodes.master_of(key_slot(args[1])).call(*args)
        return self._call_special(args, timeout)

    def run(
        self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = (), *, timeout: float | None = None
    ) -> Awaitable[Any]:
        """Run a script on the node of its keys, which must share a slot."""
        node = self._nodes.node_for(("EVALSHA", script.sha, len(keys), *keys))
        return node.run(script, keys, args, timeout=timeout)

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """Send a packed command to the node of its key."""
        return self._route(packed).send(packed)

    def send_to(self, reply: ReplyHandler, packed: bytes) -> None:
        """Like `send`, but the outcome goes to `reply`, even if no node can be reached."""
        try:
            node = self._route(packed)
        except (Unavailable, StoreClosed) as error:
            reply.set_exception(error)
            return
        node.send_to(reply, packed)

    def subscribe(self, *names: str | bytes, kind: ChannelKind = "channel") -> Subscription:
        """Subscribe to channels, patterns or shard channels."""
        return Subscription(self._nodes.shard_channels if kind == "shard" else self._hub, kind, names)

    async def track(self, listener: Callable[[Invalidations], None], prefixes: Sequence[str] = ()) -> None:
        """Deliver invalidations from every node, including those that join later."""
        await self._nodes.track(listener, prefixes)

    def nodes(self) -> Sequence[NodeClient]:
        """The masters, each for commands about that server."""
        return tuple(self._nodes.masters)

    def read_nodes(self) -> Sequence[NodeClient]:
        """One node of each shard: its master, or a replica that is up if the URL asks for replicas."""
        return self._nodes.read_nodes()

    async def start(self, *, required: bool = True) -> None:
        """Read the slot map and connect to every master."""
        try:
            await self._nodes.start(required=required)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Disconnect from every node."""
        await self._nodes.stop_refreshing()
        await self._hub.aclose()
        await self._nodes.shard_channels.aclose()
        await self._redirections.finished()
        await self._nodes.aclose()

    def _route(self, packed: bytes) -> NodeClient:
        """The node that a packed command goes to."""
        if isinstance(packed, PreparedScript):
            return self._nodes.master_of(packed.slot)
        if self._reads_replicas:
            return self._nodes.node_for(unpack_command(packed))
        return self._nodes.master_of(key_slot(packed_key(packed)))

    def _call_special(self, args: tuple[Arg, ...], timeout: float | None) -> Awaitable[Any]:
        name = command_name(args)
        refuse_stateful(name, args)
        is_script = name.startswith(("EVAL", "FCALL"))
        if first_key(name, args) is None and name not in KEYLESS_ON_ANY_NODE and not is_script:
            raise UnsupportedCommand(
                name,
                "on a cluster it must say which node: for node in client.nodes(): await node.call(...)",
            )
        if blocking_seconds(name, args) is not None:
            block = self._redirections.block(args)
            return block if timeout is None else within(timeout, block)
        return self._nodes.node_for(args).call(*args, timeout=timeout)

    def _redirect(self, entry: Entry, error: ServerError) -> bool:
        return self._redirections.follow(entry, error)
