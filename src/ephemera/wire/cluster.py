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
from typing import TYPE_CHECKING, Any

from ephemera.errors import (
    CannotConnect,
    CommandRefused,
    ConnectionFailed,
    CrossSlot,
    ServerError,
    StoreClosed,
    Unavailable,
)
from ephemera.wire.client import Invalidations, Single
from ephemera.wire.commands import (
    ANYWHERE,
    PLAIN,
    READS,
    all_keys,
    as_text,
    first_key,
    name_of,
    refuse_stateful,
)
from ephemera.wire.handshake import Endpoint
from ephemera.wire.shard_channels import ShardChannels
from ephemera.wire.slots import SLOTS, slot_of
from ephemera.wire.subscriptions import Hub, Subscription
from ephemera.wire.topology import Shard, read_shards, redirection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ephemera.wire.commands import Arg
    from ephemera.wire.connection import Entry, Reply
    from ephemera.wire.scripts import Script
    from ephemera.wire.subscriptions import ChannelKind
    from ephemera.wire.url import Address, Target

log = logging.getLogger("ephemera.wire")

_MOST_REDIRECTIONS = 16
_REFRESH_EVERY = 0.1
_TRY_AGAIN_AFTER = 0.02


class Cluster:
    """The client of a cluster."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.name = ",".join(map(str, target.addresses))
        self._nodes: dict[Address, Single] = {}
        self._masters: list[Single] = []
        self._by_slot: list[Single | None] = [None] * SLOTS
        self._replicas: list[tuple[Single, ...]] = [()] * SLOTS
        self._turn = itertools.count()
        self._loop = asyncio.get_running_loop()
        self._stale = asyncio.Event()
        self._refresher: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._trackers: list[tuple[Callable[[Invalidations], None], Sequence[str]]] = []
        self._hub = Hub(Endpoint(target, target.credentials, self._any_address, self.name, "cluster"))
        self._shards = ShardChannels(self._hub_of_slot)
        self._closed = False

    def __repr__(self) -> str:
        return f"<Cluster {self.name} masters={len(self._masters)}>"

    @property
    def up(self) -> bool:
        """Whether every slot has a connected master."""
        return bool(self._masters) and all(node.up for node in self._masters)

    def call(self, *args: Arg) -> Awaitable[Any]:
        """Send a command to the node that serves its key."""
        if args and args[0] in PLAIN and len(args) > 1:
            key = args[1]
            node = self._by_slot[slot_of(key if isinstance(key, (str, bytes)) else as_text(key))]
            if node is None or self.target.read_from == "replicas":
                node = self._node_for(args)
            return node.call(*args)
        return self._unusual(args)

    def submit(self, reply: Reply, args: tuple[Arg, ...]) -> bool:
        """Send a plain command whose outcome settles `reply`; False: it is not plain, use `call`."""
        if len(args) < 2 or args[0] not in PLAIN:
            return False
        try:
            node = self._node_for(args)
        except (Unavailable, StoreClosed) as error:
            reply.set_exception(error)
            return True
        return node.submit(reply, args)

    def run(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Awaitable[Any]:
        """Run a script on the node of its keys, which must share a slot."""
        node = self._node_for(("EVALSHA", script.sha, len(keys), *keys))
        return node.run(script, keys, args)

    def subscribe(self, *names: str | bytes, kind: ChannelKind = "channel") -> Subscription:
        """Listen to channels, patterns or shard channels."""
        return Subscription(self._shards if kind == "shard" else self._hub, kind, names)

    async def track(self, listener: Callable[[Invalidations], None], prefixes: Sequence[str] = ()) -> None:
        """Deliver invalidations from every node, also from those that join later."""
        self._trackers.append((listener, prefixes))
        for node in list(self._nodes.values()):
            await node.track(listener, prefixes)

    def nodes(self) -> Sequence[Single]:
        """The masters, each for commands about that server."""
        return tuple(self._masters)

    async def start(self, *, required: bool = True) -> None:
        """Read the map of slots and connect to every master."""
        try:
            await self._refresh()
        except CannotConnect as error:
            if required:
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
            await asyncio.gather(self._refresher, return_exceptions=True)
        await self._hub.aclose()
        await self._shards.aclose()
        await asyncio.gather(*(node.aclose() for node in self._nodes.values()), *self._retiring)

    # Where a command goes.

    def _unusual(self, args: tuple[Arg, ...]) -> Awaitable[Any]:
        name = name_of(args)
        refuse_stateful(name, args)
        if first_key(name, args) is None and name not in ANYWHERE and not name.startswith(("EVAL", "FCALL")):
            raise CommandRefused(
                name,
                "on a cluster it must say which node: for node in client.nodes(): await node.call(...)",
            )
        return self._node_for(args).call(*args)

    def _node_for(self, args: tuple[Arg, ...]) -> Single:
        name = name_of(args)
        key = first_key(name, args)
        if key is None:
            return self._any_master()
        slot = slot_of(key if isinstance(key, (str, bytes)) else as_text(key))
        if self.target.read_from == "replicas" and name in READS:
            replicas = [node for node in self._replicas[slot] if node.up]
            if replicas:
                return replicas[next(self._turn) % len(replicas)]
        node = self._by_slot[slot]
        if node is None:
            self._stale.set()
            raise self._unavailable(f"no node serves slot {slot}")
        return node

    def _any_master(self) -> Single:
        up = [node for node in self._masters if node.up]
        if not up:
            raise self._unavailable("no master is connected")
        return up[next(self._turn) % len(up)]

    async def _any_address(self) -> Address:
        return self._address_of(self._any_master())

    def _hub_of_slot(self, channel: bytes) -> Hub | None:
        node = self._by_slot[slot_of(channel)]
        return node.hub if node is not None else None

    def _unavailable(self, problem: str) -> Unavailable | StoreClosed:
        if self._closed:
            return StoreClosed(f"{self.name}: the store is closed; open a new one")
        return Unavailable(self.name, problem)

    # What nodes answer.

    def _redirected(self, entry: Entry, error: ServerError) -> bool:
        """Follow MOVED, ASK and TRYAGAIN for the waiting caller; name the keys of CROSSSLOT."""
        if error.code in ("MOVED", "ASK") and entry.attempts < _MOST_REDIRECTIONS:
            address = redirection(error.message, self.target.addresses[0])
            if error.code == "MOVED":
                self._stale.set()
            node = self._nodes.get(address)
            if node is None or not node.up:
                self._later(self._resend_at(address, entry, asking=error.code == "ASK"))
            else:
                node.link.resend(entry, asking=error.code == "ASK")
            return True
        if error.code == "TRYAGAIN" and entry.attempts < _MOST_REDIRECTIONS:
            self._later(self._try_again(entry))
            return True
        if error.code in ("CLUSTERDOWN", "MASTERDOWN"):
            self._stale.set()
            if not entry.reply.done():
                entry.reply.set_exception(Unavailable(self.name, error.message))
            return True
        if error.code == "CROSSSLOT" and not entry.reply.done():
            entry.reply.set_exception(_cross_slot(entry.args))
            return True
        return False

    async def _resend_at(self, address: Address, entry: Entry, *, asking: bool) -> None:
        try:
            node = await self._node(address)
        except ConnectionFailed as error:
            if not entry.reply.done():
                entry.reply.set_exception(Unavailable(error.address, error.problem))
            return
        node.link.resend(entry, asking=asking)

    async def _try_again(self, entry: Entry) -> None:
        await asyncio.sleep(_TRY_AGAIN_AFTER)
        try:
            self._node_for(entry.args).link.resend(entry)
        except (ConnectionFailed, StoreClosed) as error:
            if not entry.reply.done():
                entry.reply.set_exception(error)

    def _later(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    # The map of slots.

    async def _keep_fresh(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                await self._refresh()
            except ConnectionFailed as error:
                log.warning("%s: the map of slots cannot be read: %s", self.name, error)
                self._stale.set()
            if not self.up:
                self._stale.set()
            await asyncio.sleep(_REFRESH_EVERY)

    async def _refresh(self) -> None:
        """Read the map from any node that answers, and connect to who is new in it."""
        shards = await self._read_map()
        wanted = {shard.master for shard in shards}
        if self.target.read_from == "replicas":
            wanted |= {replica for shard in shards for replica in shard.replicas}
        replicas = wanted - {shard.master for shard in shards}
        await asyncio.gather(*(self._node(a, replica=a in replicas) for a in wanted), return_exceptions=True)
        self._install(shards)
        self._retire(wanted)
        await self._shards.rehome()

    async def _read_map(self) -> list[Shard]:
        problems = []
        seeds: Iterable[Address] = dict.fromkeys(
            [a for a, node in self._nodes.items() if node.up] + list(self.target.addresses)
        )
        for address in seeds:
            try:
                node = await self._node(address)
                return read_shards(await node.call("CLUSTER", "SLOTS"), address)
            except (ConnectionFailed, StoreClosed) as error:
                problems.append(error)
        if len(problems) == 1 and isinstance(problems[0], CannotConnect):
            raise problems[0]
        advice = "Is at least one of these nodes up?"
        raise CannotConnect(self.name, "; ".join(map(str, problems)), advice)

    async def _node(self, address: Address, *, replica: bool = False) -> Single:
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
        fresh = Single(
            endpoint,
            redirect=self._redirected,
            on_state=self._node_changed,
            on_moved=self._stale.set,
        )
        await fresh.start()
        for listener, prefixes in self._trackers:
            await fresh.track(listener, prefixes)
        raced = self._nodes.get(address)
        if raced is not None and raced.endpoint.replica == replica:
            await fresh.aclose()
            return raced
        if raced is not None:
            self._later(raced.aclose())
        self._nodes[address] = fresh
        return fresh

    def _install(self, shards: list[Shard]) -> None:
        by_slot: list[Single | None] = [None] * SLOTS
        replicas: list[tuple[Single, ...]] = [()] * SLOTS
        for shard in shards:
            count = shard.last - shard.first + 1
            by_slot[shard.first : shard.last + 1] = [self._nodes.get(shard.master)] * count
            reading = tuple(self._nodes[a] for a in shard.replicas if a in self._nodes)
            replicas[shard.first : shard.last + 1] = [reading] * count
        self._by_slot, self._replicas = by_slot, replicas
        self._masters = list(dict.fromkeys(node for node in by_slot if node is not None))
        if len(self._masters) < len({shard.master for shard in shards}):
            self._stale.set()

    def _retire(self, wanted: set[Address]) -> None:
        for address in set(self._nodes) - wanted:
            self._later(self._nodes.pop(address).aclose())

    def _node_changed(self, up: bool) -> None:
        if not up:
            self._stale.set()

    def _address_of(self, node: Single) -> Address:
        return next(address for address, known in self._nodes.items() if known is node)


def _cross_slot(args: tuple[Arg, ...]) -> CrossSlot:
    name = name_of(args)
    keys = [as_text(key) for key in all_keys(name, args)]
    placed = ", ".join(f"{key!r} in slot {slot_of(key)}" for key in keys[:4])
    more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
    return CrossSlot(
        f"CROSSSLOT its keys live in different slots of the cluster: {placed}{more}. "
        "Give them a common hash tag (declare the pattern with tag=...), or use one call per key",
        name,
    )
