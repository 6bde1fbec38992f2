"""The nodes of a cluster: one multiplexed connection each, and which slots they serve.

The slot map is read at the start, and again whenever a node is lost or says that a slot has moved.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence

from ephemera.errors import (
    CannotConnect,
    ConnectionFailed,
    EphemeraError,
    ServerError,
    StoreClosed,
    Unavailable,
    WrongServer,
)
from ephemera.wire._commands import READS, Arg, command_name, first_key
from ephemera.wire._connection import Entry
from ephemera.wire._handshake import Endpoint
from ephemera.wire._node_client import Invalidations, NodeClient
from ephemera.wire._shard_channels import ShardChannels
from ephemera.wire._slots import SLOT_COUNT, Shard, key_slot, parse_slot_map
from ephemera.wire._subscriptions import Channel, Hub
from ephemera.wire._url import Address, Target

log = logging.getLogger("ephemera.wire")

_REFRESH_INTERVAL = 0.1  # seconds
_IS_ONE_UP = "Is at least one of these nodes up?"


class ClusterNodes:
    """The connected nodes of a cluster, by address and by slot."""

    def __init__(self, target: Target, redirect: Callable[[Entry, ServerError], bool]) -> None:
        self.target = target
        self.name = ",".join(map(str, target.addresses))
        self.masters: list[NodeClient] = []
        self.shard_channels = ShardChannels(self._hub_of, self._refresh)
        self._redirect = redirect
        self._by_address: dict[Address, NodeClient] = {}
        self._by_slot: list[NodeClient | None] = [None] * SLOT_COUNT
        self._covers_all_slots = False
        self._replicas: list[tuple[NodeClient, ...]] = [()] * SLOT_COUNT
        self._round_robin = itertools.count()
        self._new_master: tuple[Address, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._is_stale = asyncio.Event()
        self._refresh_lock = asyncio.Lock()
        self._refresher: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._trackers: list[tuple[Callable[[Invalidations], None], Sequence[str]]] = []
        self._closed = False

    @property
    def up(self) -> bool:
        """Whether every slot has a connected master."""
        return self._covers_all_slots and all(node.up for node in self.masters)

    @property
    def connection_count(self) -> int:
        """How often the present nodes were connected to."""
        return sum(node.connection_count for node in self._by_address.values())

    # Which node a command goes to.

    def master_of(self, slot: int) -> NodeClient:
        """The master of a slot."""
        node = self._by_slot[slot]
        if node is None:
            self._is_stale.set()
            raise self.unavailable(f"no node serves slot {slot}")
        return node

    def node_for(self, args: tuple[Arg, ...]) -> NodeClient:
        """The node a command goes to: its key's master, or for a read a replica if the URL asks for them."""
        name = command_name(args)
        key = first_key(name, args)
        if key is None:
            return self._any_master()
        slot = key_slot(key)
        if self.target.read_from == "replicas" and name in READS:
            replicas = [node for node in self._replicas[slot] if node.up]
            if replicas:
                return replicas[next(self._round_robin) % len(replicas)]
        return self.master_of(slot)

    def read_nodes(self) -> Sequence[NodeClient]:
        """One node of each shard: its master, or a replica that is up if the URL asks for replicas."""
        nodes: dict[NodeClient, NodeClient] = {}
        for master, replicas in zip(self._by_slot, self._replicas, strict=True):
            if master is not None and master not in nodes:
                nodes[master] = next((node for node in replicas if node.up), master)
        return tuple(nodes.values())

    async def any_address(self) -> Address:
        """The address of some connected master."""
        try:
            node = self._any_master()
        except Unavailable as error:
            raise CannotConnect(self.name, error.problem, _IS_ONE_UP) from None
        return next(address for address, known in self._by_address.items() if known is node)

    def unavailable(self, problem: str) -> Unavailable | StoreClosed:
        """Why a command cannot be sent: a problem of the cluster, or that it was closed."""
        if self._closed:
            return StoreClosed(f"{self.name}: the store is closed; open a new one")
        return Unavailable(self.name, problem)

    def _any_master(self) -> NodeClient:
        up = [node for node in self.masters if node.up]
        if not up:
            raise self.unavailable("no master is connected")
        return up[next(self._round_robin) % len(up)]

    def _hub_of(self, channel: bytes) -> Hub | None:
        node = self._by_slot[key_slot(channel)]
        return node.hub if node is not None else None

    # Nodes come and go.

    async def start(self, *, required: bool) -> None:
        """Read the slot map, connect to every master, and keep the map up to date."""
        try:
            await self._refresh()
        except CannotConnect as error:
            if required or isinstance(error, WrongServer):
                raise
            log.warning("starting without %s", error)
            self._is_stale.set()
        self._refresher = self._loop.create_task(self._keep_fresh(), name="ephemera-cluster")

    async def stop_refreshing(self) -> None:
        """Read the slot map no more, and open no further node."""
        self._closed = True
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.wait((self._refresher,))

    async def aclose(self) -> None:
        """Disconnect from every node."""
        await asyncio.gather(*(node.aclose() for node in self._by_address.values()), *self._retiring)

    async def track(self, listener: Callable[[Invalidations], None], prefixes: Sequence[str]) -> None:
        """Deliver invalidations from every node, including those that join later."""
        self._trackers.append((listener, prefixes))
        try:
            for node in list(self._by_address.values()):
                await node.track(listener, prefixes)
        except ServerError:
            self._trackers.remove((listener, prefixes))
            raise

    def connected(self, address: Address) -> NodeClient | None:
        """The client of a node that is up."""
        node = self._by_address.get(address)
        return node if node is not None and node.up else None

    async def node(self, address: Address, *, replica: bool = False) -> NodeClient:
        """The connected client of a node, opened when it is new."""
        node = self._by_address.get(address)
        if node is not None and node.endpoint.replica == replica:
            return node
        fresh = NodeClient(
            Endpoint.at(address, self.target, mode="cluster", replica=replica),
            redirect=self._redirect,
            on_state=self._on_node_state,
            on_moved=self._on_channel_moved,
        )
        fresh.link.replaces = bool(self.masters)
        for listener, prefixes in self._trackers:
            await fresh.track(listener, prefixes)
        await fresh.start()
        if self._closed:
            await fresh.aclose()
            raise self.unavailable("closed")
        raced = self._by_address.get(address)
        if raced is not None and raced.endpoint.replica == replica:
            await fresh.aclose()
            return raced
        if raced is not None:
            self._retire(raced)
        self._by_address[address] = fresh
        return fresh

    def _retire(self, node: NodeClient) -> None:
        """Close a node that left the cluster; its invalidations are not delivered any more."""
        node.invalidate(None)
        task = self._loop.create_task(node.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _on_node_state(self, up: bool) -> None:
        if not up:
            self._is_stale.set()

    def _on_channel_moved(self, channel: Channel) -> None:
        self.shard_channels.on_moved(channel)
        self._is_stale.set()

    # The slot map.

    def refresh_soon(self, new_master: Address | None = None) -> None:
        """Read the slot map again, first from a master that got a slot: other nodes may not know yet."""
        if new_master is not None:
            self._new_master = (new_master,)
        self._is_stale.set()

    async def _keep_fresh(self) -> None:
        problem = "" if self.masters else "not read yet"  # each problem is logged once
        while True:
            await self._is_stale.wait()
            self._is_stale.clear()
            try:
                await self._refresh()
            except EphemeraError as error:
                if not problem:
                    log.warning("%s: the slot map cannot be read: %s", self.name, error)
                problem = str(error)
            else:
                problem = ""
            if problem or not self.up or not self.shard_channels.all_subscribed:
                self._is_stale.set()
            await asyncio.sleep(_REFRESH_INTERVAL)

    async def _refresh(self) -> None:
        """Read the slot map from any node that answers, connect to new nodes and retire former ones."""
        async with self._refresh_lock:
            shards = await self._read_map()
            masters = {shard.master for shard in shards}
            replicas: set[Address] = set()
            if self.target.read_from == "replicas":
                replicas = {replica for shard in shards for replica in shard.replicas} - masters
            opening = [self.node(address, replica=address in replicas) for address in masters | replicas]
            await asyncio.gather(*opening, return_exceptions=True)
            self._install(shards)
            await self.shard_channels.follow_slots()
            for address in set(self._by_address) - masters - replicas:
                self._retire(self._by_address.pop(address))

    async def _read_map(self) -> list[Shard]:
        problems: list[CannotConnect] = []
        for address in self._map_sources():
            try:
                return await self._map_from(address)
            except WrongServer:
                raise
            except CannotConnect as error:
                problems.append(error)
            except ConnectionFailed as error:
                problems.append(CannotConnect(error.address, error.problem, _IS_ONE_UP))
        if len({(error.problem, error.advice) for error in problems}) == 1:
            raise CannotConnect(self.name, problems[0].problem, problems[0].advice)
        raise CannotConnect(self.name, "; ".join(map(str, problems)), _IS_ONE_UP)

    def _map_sources(self) -> Iterable[Address]:
        """Nodes to read the map from: a master that got a slot, those that are up in turn, then the URL's."""
        new_master, self._new_master = self._new_master, ()
        up = [address for address, node in self._by_address.items() if node.up]
        first = next(self._round_robin) % len(up) if up else 0
        return dict.fromkeys([*new_master, *up[first:], *up[:first], *self.target.addresses])

    async def _map_from(self, address: Address) -> list[Shard]:
        node = self._by_address.get(address) or await self.node(address)
        try:
            shards = parse_slot_map(await node.call("CLUSTER", "SLOTS"), address)
        except ServerError as error:
            advice = "Allow the user CLUSTER SLOTS by ACL"
            raise CannotConnect(str(address), f"it refuses CLUSTER SLOTS ({error.message})", advice) from None
        if not shards:
            advice = "Create the cluster first: valkey-cli --cluster create"
            raise CannotConnect(str(address), "it is in a cluster without slots", advice)
        return shards

    def _install(self, shards: list[Shard]) -> None:
        by_slot: list[NodeClient | None] = [None] * SLOT_COUNT
        replicas: list[tuple[NodeClient, ...]] = [()] * SLOT_COUNT
        for shard in shards:
            count = shard.last - shard.first + 1
            by_slot[shard.first : shard.last + 1] = [self._by_address.get(shard.master)] * count
            known = tuple(self._by_address[a] for a in shard.replicas if a in self._by_address)
            replicas[shard.first : shard.last + 1] = [known] * count
        self._by_slot, self._replicas = by_slot, replicas
        self.masters = list(dict.fromkeys(node for node in by_slot if node is not None))
        self._covers_all_slots = None not in by_slot
