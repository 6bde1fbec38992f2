"""A cluster: one multiplexed connection per master, commands sent where their key lives.

- The slot of the first key picks the node; the server itself refuses keys of several slots, and we name them.
- MOVED and ASK are followed in the caller's place, so a slot migration shows as a little latency, never as an
  error. TRYAGAIN (half of a multi-key command has moved) is tried again a little later.
- When a master is lost, its slots are `Unavailable`, the others are not. The map of slots is then read again
  every tenth of a second until each slot has a live master: a fail-over ends as soon as the cluster ends it.
- Channels are heard from any node; shard channels from their slot's master, and follow their slot.
- With `read_from=replicas`, reads go to a replica of the slot when one is up: faster, and possibly stale.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from ephemera.errors import (
    CannotConnect,
    ConnectionFailed,
    EphemeraError,
    ServerError,
    StoreClosed,
    Unavailable,
    UnsupportedCommand,
    WrongServer,
)
from ephemera.wire._client import Invalidations, NodeClient
from ephemera.wire._commands import (
    ANYWHERE,
    PLAIN,
    READS,
    Arg,
    blocking_seconds,
    command_name,
    first_key,
    refuse_stateful,
)
from ephemera.wire._connection import ReplyHandler
from ephemera.wire._handshake import Endpoint
from ephemera.wire._packed_commands import PreparedScript, ScriptPrefix, key_of
from ephemera.wire._redirections import Redirections
from ephemera.wire._scripts import Script
from ephemera.wire._shard_channels import ShardChannels
from ephemera.wire._slots import SLOT_COUNT, key_slot
from ephemera.wire._subscriptions import ChannelKind, Hub, Place, Subscription
from ephemera.wire._topology import Shard, read_shards
from ephemera.wire._url import Address, Target

log = logging.getLogger("ephemera.wire")

_REFRESH_EVERY = 0.1
_IS_ONE_UP = "Is at least one of these nodes up?"


class ClusterClient:
    """The client of a cluster."""

    is_cluster = True

    def __init__(self, target: Target) -> None:
        self.target = target
        self.name = ",".join(map(str, target.addresses))
        self._nodes: dict[Address, NodeClient] = {}
        self._masters: list[NodeClient] = []
        self._by_slot: list[NodeClient | None] = [None] * SLOT_COUNT
        self._covered = False
        self._replicas: list[tuple[NodeClient, ...]] = [()] * SLOT_COUNT
        self._turn = itertools.count()
        self._new_master: tuple[Address, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._stale = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._refresher: asyncio.Task[None] | None = None
        self._redirections = Redirections(self)
        self._parting: set[asyncio.Task[None]] = set()
        self._trackers: list[tuple[Callable[[Invalidations], None], Sequence[str]]] = []
        self._hub = Hub(Endpoint(target, target.credentials, self._any_address, self.name, "cluster"))
        self._shards = ShardChannels(self._hub_of_slot, self._refresh)
        self._closed = False

    def __repr__(self) -> str:
        return f"<ClusterClient {self.name} masters={len(self._masters)} {'up' if self.up else 'down'}>"

    @property
    def up(self) -> bool:
        """Whether every slot has a connected master."""
        return self._covered and all(node.up for node in self._masters)

    @property
    def connects(self) -> int:
        """How often the present nodes were connected to."""
        return sum(node.connects for node in self._nodes.values())

    def call(self, *args: Arg) -> Awaitable[Any]:
        """Send a command to the node that serves its key."""
        if args and args[0] in PLAIN and len(args) > 1:
            node = self._by_slot[key_slot(args[1])]
            if node is None or self.target.read_from == "replicas":
                node = self.node_for(args)
            return node.call(*args)
        return self._unusual(args)

    def submit(self, reply: ReplyHandler, args: tuple[Arg, ...]) -> bool:
        """Send a plain command whose outcome settles `reply`; False: it is not plain, use `call`."""
        if len(args) < 2 or args[0] not in PLAIN:
            return False
        try:
            node = self.node_for(args)
        except (Unavailable, StoreClosed) as error:
            reply.set_exception(error)
            return True
        return node.submit(reply, args)

    def run(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Awaitable[Any]:
        """Run a script on the node of its keys, which must share a slot."""
        node = self.node_for(("EVALSHA", script.sha, len(keys), *keys))
        return node.run(script, keys, args)

    def run_for(self, reply: ReplyHandler, beginning: ScriptPrefix, arguments: Sequence[bytes]) -> None:
        """Run a script on the node of its keys; its outcome, also "down", settles `reply`."""
        try:
            node = self._master_of(key_slot(beginning.key))
        except (Unavailable, StoreClosed) as error:
            reply.set_exception(error)
            return
        node.run_for(reply, beginning, arguments)

    def run_prepared(self, prepared: PreparedScript) -> asyncio.Future[Any]:
        """Run a prepared script on the node of its keys."""
        return self._master_of(prepared.slot).run_prepared(prepared)

    def read_packed(self, packed: bytes) -> Awaitable[Any]:
        """Send a packed read of one key to the node that serves it."""
        key = key_of(packed)
        node = self._by_slot[key_slot(key)]
        if node is None or self.target.read_from == "replicas":
            node = self.node_for(("GET", key))
        return node.read_packed(packed)

    def subscribe(self, *names: str | bytes, kind: ChannelKind = "channel") -> Subscription:
        """Listen to channels, patterns or shard channels."""
        return Subscription(self._shards if kind == "shard" else self._hub, kind, names)

    async def track(self, listener: Callable[[Invalidations], None], prefixes: Sequence[str] = ()) -> None:
        """Deliver invalidations from every node, also from those that join later."""
        self._trackers.append((listener, prefixes))
        try:
            for node in list(self._nodes.values()):
                await node.track(listener, prefixes)
        except ServerError:
            self._trackers.remove((listener, prefixes))
            raise

    def nodes(self) -> Sequence[NodeClient]:
        """The masters, each for commands about that server."""
        return tuple(self._masters)

    def readers(self) -> Sequence[NodeClient]:
        """A node of each shard: its master, or a replica that is up when the URL says so."""
        chosen: dict[NodeClient, NodeClient] = {}
        for master, replicas in zip(self._by_slot, self._replicas, strict=True):
            if master is not None and master not in chosen:
                chosen[master] = next((node for node in replicas if node.up), master)
        return tuple(chosen.values())

    async def start(self, *, required: bool = True) -> None:
        """Read the map of slots and connect to every master."""
        try:
            await self._refresh()
        except BaseException as error:
            if required or not isinstance(error, CannotConnect) or isinstance(error, WrongServer):
                await self.aclose()
                raise
            log.warning("starting without %s", error)
            self._stale.set()
        self._refresher = self._loop.create_task(self._keep_fresh(), name="ephemera-cluster")

    async def aclose(self) -> None:
        """Disconnect from every node."""
        self._closed = True
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.wait((self._refresher,))
        await self._hub.aclose()
        await self._shards.aclose()
        await self._redirections.settled()
        await asyncio.gather(*(node.aclose() for node in self._nodes.values()), *self._parting)

    # Where a command goes.

    def _unusual(self, args: tuple[Arg, ...]) -> Awaitable[Any]:
        name = command_name(args)
        refuse_stateful(name, args)
        if first_key(name, args) is None and name not in ANYWHERE and not name.startswith(("EVAL", "FCALL")):
            raise UnsupportedCommand(
                name,
                "on a cluster it must say which node: for node in client.nodes(): await node.call(...)",
            )
        if blocking_seconds(name, args) is not None:
            return self._redirections.block(args)
        return self.node_for(args).call(*args)

    def node_for(self, args: tuple[Arg, ...]) -> NodeClient:
        """The node a command goes to: its key's master, or a replica of it for a read."""
        name = command_name(args)
        key = first_key(name, args)
        if key is None:
            return self._any_master()
        slot = key_slot(key)
        if self.target.read_from == "replicas" and name in READS:
            replicas = [node for node in self._replicas[slot] if node.up]
            if replicas:
                return replicas[next(self._turn) % len(replicas)]
        return self._master_of(slot)

    def _master_of(self, slot: int) -> NodeClient:
        node = self._by_slot[slot]
        if node is None:
            self._stale.set()
            raise self.unavailable(f"no node serves slot {slot}")
        return node

    def _any_master(self) -> NodeClient:
        up = [node for node in self._masters if node.up]
        if not up:
            raise self.unavailable("no master is connected")
        return up[next(self._turn) % len(up)]

    async def _any_address(self) -> Address:
        try:
            node = self._any_master()
        except Unavailable as error:
            raise CannotConnect(self.name, error.problem, _IS_ONE_UP) from None
        return next(address for address, known in self._nodes.items() if known is node)

    def _hub_of_slot(self, channel: bytes) -> Hub | None:
        node = self._by_slot[key_slot(channel)]
        return node.hub if node is not None else None

    def unavailable(self, problem: str) -> Unavailable | StoreClosed:
        """Why a command cannot be sent: a problem of the cluster, or that it was closed."""
        if self._closed:
            return StoreClosed(f"{self.name}: the store is closed; open a new one")
        return Unavailable(self.name, problem)

    # The map of slots.

    async def _keep_fresh(self) -> None:
        problem = "" if self._masters else "not read yet"  # each problem is logged once
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                await self._refresh()
            except EphemeraError as error:
                if not problem:
                    log.warning("%s: the map of slots cannot be read: %s", self.name, error)
                problem = str(error)
            else:
                problem = ""
            if problem or not self.up or not self._shards.settled:
                self._stale.set()
            await asyncio.sleep(_REFRESH_EVERY)

    async def _refresh(self) -> None:
        """Read the map from any node that answers, connect to who is new in it, part with who is not."""
        async with self._refreshing:
            shards = await self._read_map()
            await self._use(shards)

    async def _use(self, shards: list[Shard]) -> None:
        wanted = {shard.master for shard in shards}
        if self.target.read_from == "replicas":
            wanted |= {replica for shard in shards for replica in shard.replicas}
        replicas = wanted - {shard.master for shard in shards}
        await asyncio.gather(*(self.node(a, replica=a in replicas) for a in wanted), return_exceptions=True)
        self._install(shards)
        await self._shards.rehome()
        for address in set(self._nodes) - wanted:
            self._part_with(self._nodes.pop(address))

    async def _read_map(self) -> list[Shard]:
        problems: list[CannotConnect] = []
        for address in self._seeds():
            try:
                return await self._map_of(address)
            except WrongServer:
                raise
            except CannotConnect as error:
                problems.append(error)
            except ConnectionFailed as error:
                problems.append(CannotConnect(error.address, error.problem, _IS_ONE_UP))
        if len({(error.problem, error.advice) for error in problems}) == 1:
            raise CannotConnect(self.name, problems[0].problem, problems[0].advice)
        raise CannotConnect(self.name, "; ".join(map(str, problems)), _IS_ONE_UP)

    def _seeds(self) -> Iterable[Address]:
        """Whom to ask for the map: who got a slot, who is up, another one each time, who is in the URL."""
        new_master, self._new_master = self._new_master, ()
        up = [address for address, node in self._nodes.items() if node.up]
        first = next(self._turn) % len(up) if up else 0
        return dict.fromkeys([*new_master, *up[first:], *up[:first], *self.target.addresses])

    async def _map_of(self, address: Address) -> list[Shard]:
        node = self._nodes.get(address) or await self.node(address)
        try:
            shards = read_shards(await node.call("CLUSTER", "SLOTS"), address)
        except ServerError as error:
            advice = "Allow the user CLUSTER SLOTS by ACL"
            raise CannotConnect(str(address), f"it tells no map of slots ({error.message})", advice) from None
        if not shards:
            advice = "Create the cluster first: valkey-cli --cluster create"
            raise CannotConnect(str(address), "it is in a cluster without slots", advice)
        return shards

    def known(self, address: Address) -> NodeClient | None:
        """The client of a node, if there is one."""
        return self._nodes.get(address)

    def refresh_soon(self, new_master: Address | None = None) -> None:
        """Have the map of slots read again, best from a master that got a slot: others may not know yet."""
        if new_master is not None:
            self._new_master = (new_master,)
        self._stale.set()

    async def node(self, address: Address, *, replica: bool = False) -> NodeClient:
        """The connected client of a node, opened when it is new."""
        node = self._nodes.get(address)
        if node is not None and node.endpoint.replica == replica:
            return node

        async def here() -> Address:
            return address

        endpoint = Endpoint(
            self.target,
            self.target.credentials,
            here,
            str(address),
            mode="cluster",
            replica=replica,
        )
        fresh = NodeClient(
            endpoint,
            redirect=self._redirections.follow,
            on_state=self._node_changed,
            on_moved=self._channel_moved,
        )
        for listener, prefixes in self._trackers:
            await fresh.track(listener, prefixes)
        await fresh.start()
        if self._closed:
            await fresh.aclose()
            raise self.unavailable("closed")
        raced = self._nodes.get(address)
        if raced is not None and raced.endpoint.replica == replica:
            await fresh.aclose()
            return raced
        if raced is not None:
            self._part_with(raced)
        self._nodes[address] = fresh
        return fresh

    def _part_with(self, node: NodeClient) -> None:
        """Close a node that is not ours any more; its changes of keys are not heard from here on."""
        node.invalidate(None)
        task = self._loop.create_task(node.retire())
        self._parting.add(task)
        task.add_done_callback(self._parting.discard)

    def _install(self, shards: list[Shard]) -> None:
        by_slot: list[NodeClient | None] = [None] * SLOT_COUNT
        replicas: list[tuple[NodeClient, ...]] = [()] * SLOT_COUNT
        for shard in shards:
            count = shard.last - shard.first + 1
            by_slot[shard.first : shard.last + 1] = [self._nodes.get(shard.master)] * count
            reading = tuple(self._nodes[a] for a in shard.replicas if a in self._nodes)
            replicas[shard.first : shard.last + 1] = [reading] * count
        self._by_slot, self._replicas = by_slot, replicas
        self._masters = list(dict.fromkeys(node for node in by_slot if node is not None))
        self._covered = None not in by_slot

    def _node_changed(self, up: bool) -> None:
        if not up:
            self._stale.set()

    def _channel_moved(self, place: Place) -> None:
        self._shards.unsettle(place)
        self._stale.set()
