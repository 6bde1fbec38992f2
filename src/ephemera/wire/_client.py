"""What every kind of server gives its callers, and the client for a single one (direct or through Sentinel).

A client is three connections at most to a server: the multiplexed one for `call`, one for subscriptions when
somebody subscribes, and one for each blocking command that waits at the moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ephemera.errors import ConnectionFailed, ServerError, Unavailable
from ephemera.wire._commands import PLAIN, Arg, blocking_seconds, command_name, refuse_stateful
from ephemera.wire._connection import Entry, ReplyHandler
from ephemera.wire._dedicated import DedicatedConnections
from ephemera.wire._handshake import Endpoint
from ephemera.wire._link import Link
from ephemera.wire._packed_commands import PreparedScript, ScriptPrefix
from ephemera.wire._scripts import Script
from ephemera.wire._sentinel import Sentinels
from ephemera.wire._subscriptions import ChannelKind, Hub, Place, Subscription
from ephemera.wire._url import Address, Target

Invalidations = list[bytes] | None
"""Keys that changed on the server, or None: all of them may have."""


class Client(Protocol):
    """A server, a Sentinel-watched master or a cluster, to those who call it."""

    @property
    def is_cluster(self) -> bool:
        """Whether keys are spread over several servers by slot."""

    @property
    def up(self) -> bool:
        """Whether calls are taken now."""

    @property
    def connects(self) -> int:
        """How often its servers were connected to.

        When it has changed, the last of what was written may be lost: a server came back without it, or
        another took its place.
        """

    def call(self, *args: Arg) -> Awaitable[Any]:
        """Send a command and return the future of its reply; calls of one loop tick share one write."""

    def submit(self, reply: ReplyHandler, args: tuple[Arg, ...]) -> bool:
        """Send a plain command whose outcome settles `reply`; False: it is not plain, use `call`."""

    def run(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Awaitable[Any]:
        """Run a script atomically on its keys."""

    def run_for(self, reply: ReplyHandler, beginning: ScriptPrefix, arguments: Sequence[bytes]) -> None:
        """Run a script whose outcome, also "down", settles `reply`; its arguments are `packed`."""

    def run_prepared(self, prepared: PreparedScript) -> asyncio.Future[Any]:
        """Run a script that was packed before with its keys and arguments."""

    def read_packed(self, packed: bytes) -> Awaitable[Any]:
        """Send a read of one key that its caller has packed (`prepared.packed_read_parts`)."""

    def subscribe(self, *names: str | bytes, kind: ChannelKind = "channel") -> Subscription:
        """Listen to channels, patterns or shard channels."""

    async def track(self, listener: Callable[[Invalidations], None], prefixes: Sequence[str] = ()) -> None:
        """Tell the listener which keys change; None when all may have, as after a lost connection."""

    def nodes(self) -> Sequence[Client]:
        """Every server that holds keys of its own, for commands that concern a server (SCAN, INFO)."""

    def readers(self) -> Sequence[NodeClient]:
        """As `nodes`, but those that reads go to: replicas, where the URL asks for them and they are up."""

    async def aclose(self) -> None:
        """Disconnect; what is in flight is waited for, at most one timeout."""


class NodeClient:
    """The client of one server."""

    is_cluster = False

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        redirect: Callable[[Entry, ServerError], bool] | None = None,
        on_state: Callable[[bool], None] | None = None,
        on_moved: Callable[[Place], None] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.link = Link(
            endpoint,
            redirect=redirect,
            unusual=self._unusual,
            listener=self._on_push,
            on_state=self._on_state,
        )
        self.call = self.link.call
        self.run_for = self.link.run_for
        self.run_prepared = self.link.send_packed
        self.read_packed = self.link.send_packed
        self.hub = Hub(endpoint, on_moved)
        self._tell_state = on_state
        self._dedicated = DedicatedConnections(endpoint)
        self._trackers: list[Callable[[Invalidations], None]] = []

    def __repr__(self) -> str:
        return f"<NodeClient {self.endpoint} {'up' if self.up else 'down'}>"

    @property
    def up(self) -> bool:
        """Whether calls are taken now."""
        return self.link.up

    @property
    def connects(self) -> int:
        """How often the server was connected to."""
        return self.link.connects

    def submit(self, reply: ReplyHandler, args: tuple[Arg, ...]) -> bool:
        """Send a plain command whose outcome settles `reply`; False: it is not plain, use `call`."""
        if not args or args[0] not in PLAIN:
            return False
        self.link.submit(reply, args)
        return True

    def run(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Awaitable[Any]:
        """Run a script atomically on its keys."""
        return self.link.run(script, keys, args)

    def subscribe(self, *names: str | bytes, kind: ChannelKind = "channel") -> Subscription:
        """Listen to channels, patterns or shard channels on a connection of their own."""
        return Subscription(self.hub, kind, names)

    async def track(self, listener: Callable[[Invalidations], None], prefixes: Sequence[str] = ()) -> None:
        """Deliver client-tracking invalidations: of keys read here, or of all keys with these prefixes."""
        words: list[Arg] = ["CLIENT", "TRACKING", "ON"]
        if prefixes:
            words += ["BCAST", *(word for prefix in prefixes for word in ("PREFIX", prefix))]
        self._trackers.append(listener)
        try:
            await self.set_up(*words)
        except ServerError:
            self._trackers.remove(listener)
            raise

    async def set_up(self, *words: Arg) -> None:
        """Have the connection begin with a command, now and whenever it is opened again.

        For what changes a connection (CLIENT NO-TOUCH) of a client that its caller shares with nobody.
        """
        if words in self.link.setup:
            return
        self.link.setup.append(words)
        try:
            if self.up:
                await self.link.send(*words)
        except ServerError:
            # Refused now, it would be refused at every reconnection, too, and end it.
            self.link.setup.remove(words)
            raise
        except ConnectionFailed:
            return  # it is part of the next connection's first words

    def block(self, args: tuple[Arg, ...], *, asking: bool = False) -> Awaitable[Any]:
        """Run a blocking command on a connection of its own."""
        return self._dedicated.call(args, blocking_seconds(command_name(args), args) or 0, asking=asking)

    def nodes(self) -> Sequence[NodeClient]:
        """This server alone."""
        return (self,)

    def readers(self) -> Sequence[NodeClient]:
        """This server alone."""
        return (self,)

    async def start(self, *, required: bool = True) -> None:
        """Connect; with `required=False` an absent server is not an error, and is waited for meanwhile."""
        await self.link.start(required=required)

    async def aclose(self) -> None:
        """Disconnect everything."""
        await asyncio.gather(self.hub.aclose(), self._dedicated.aclose(), self.link.aclose())

    async def retire(self) -> None:
        """Disconnect from a server that is not ours any more; the callers of the last moment are told so."""
        self.link.retired = True
        await self.aclose()

    def invalidate(self, keys: Invalidations) -> None:
        """Tell every listener of changed keys; one that fails is reported, and costs nobody anything."""
        for listener in self._trackers:
            try:
                listener(keys)
            except Exception as error:
                report = {"message": "a listener of invalidations failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(report)

    def _unusual(self, args: tuple[Arg, ...]) -> Awaitable[Any]:
        name = command_name(args)
        refuse_stateful(name, args)
        if blocking_seconds(name, args) is not None:
            return self.block(args)
        return self.link.send(name, *args[1:])

    def _on_push(self, push: list[Any]) -> None:
        if push[0] == b"invalidate":
            self.invalidate(push[1])

    def _on_state(self, up: bool) -> None:
        if not up:
            self.invalidate(None)
        if self._tell_state is not None:
            self._tell_state(up)


def standalone(target: Target) -> NodeClient:
    """The client of the one server that a URL names."""
    address = target.addresses[0]

    async def here() -> Address:
        return address

    return NodeClient(Endpoint(target, target.credentials, here, str(address)))


class SentinelClient(NodeClient):
    """The client of whichever server is master by its Sentinels' word."""

    def __init__(self, target: Target) -> None:
        self._sentinels = Sentinels(target, self._on_switch)
        super().__init__(self._sentinels.endpoint, redirect=self._not_master, on_state=self._on_up)

    async def start(self, *, required: bool = True) -> None:
        """Connect to the master, and hear of every other one from then on."""
        await super().start(required=required)
        self._sentinels.listen()

    async def aclose(self) -> None:
        """Disconnect everything."""
        await self._sentinels.aclose()
        await super().aclose()

    def _on_switch(self) -> bool:
        """Leave a master that is none any more; False when there is none to leave yet."""
        was_up = self.up
        self._relocate("its Sentinels name another master")
        return was_up

    def _on_up(self, up: bool) -> None:
        if up:
            self._sentinels.compare()

    def _not_master(self, entry: Entry, error: ServerError) -> bool:
        if error.code != "READONLY":
            return False
        self._relocate("it is a replica now")
        if not entry.reply.done():
            entry.reply.set_exception(Unavailable(self.endpoint.name, "it is a replica now"))
        return True

    def _relocate(self, problem: str) -> None:
        """End every connection, so that the next ones are made where the master is now."""
        self.link.drop(problem)
        self.hub.drop(problem)
        self._dedicated.drop(problem)
