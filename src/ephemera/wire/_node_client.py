"""The client of a single server.

It has three kinds of connections: the multiplexed one for commands, one for subscriptions once there are any,
and one for each blocking command that waits at the moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.wire._commands import Arg, blocking_seconds, command_name, refuse_stateful
from ephemera.wire._connection import Entry
from ephemera.wire._dedicated_connections import DedicatedConnections
from ephemera.wire._handshake import Endpoint
from ephemera.wire._link import Link
from ephemera.wire._subscriptions import Channel, ChannelKind, Hub, Subscription
from ephemera.wire._url import Target

Invalidations = list[bytes] | None
"""Keys that changed on the server; None: any may have."""


class NodeClient:
    """The client of one server; see `Client` for what its methods do."""

    is_cluster = False

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        redirect: Callable[[Entry, ServerError], bool] | None = None,
        on_state: Callable[[bool], None] | None = None,
        on_moved: Callable[[Channel], None] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.link = Link(
            endpoint,
            redirect=redirect,
            call_special=self._call_special,
            on_push=self._on_push,
            on_state=self._on_state,
        )
        # Bound methods of the link: a method of ours in between would cost a call per command.
        self.call = self.link.call
        self.run = self.link.run
        self.send = self.link.send
        self.send_to = self.link.send_to
        self.hub = Hub(endpoint, on_moved)
        self._state_listener = on_state
        self._dedicated = DedicatedConnections(endpoint)
        self._invalidation_listeners: list[Callable[[Invalidations], None]] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.endpoint} {'up' if self.up else 'down'}>"

    @property
    def up(self) -> bool:
        """Whether it is connected."""
        return self.link.up

    @property
    def connects(self) -> int:
        """How often the server was connected to."""
        return self.link.connects

    def subscribe(self, *names: str | bytes, kind: ChannelKind = "channel") -> Subscription:
        """Subscribe to channels, patterns or shard channels on the connection for subscriptions."""
        return Subscription(self.hub, kind, names)

    async def track(self, listener: Callable[[Invalidations], None], prefixes: Sequence[str] = ()) -> None:
        """Deliver client-tracking invalidations: of keys read here, or of all keys with these prefixes."""
        words: list[Arg] = ["CLIENT", "TRACKING", "ON"]
        if prefixes:
            words += ["BCAST", *(word for prefix in prefixes for word in ("PREFIX", prefix))]
        self._invalidation_listeners.append(listener)
        try:
            await self.add_setup(*words)
        except ServerError:
            self._invalidation_listeners.remove(listener)
            raise

    async def add_setup(self, *args: Arg) -> None:
        """Run a command now and at the start of every later connection.

        It is for commands that change a connection, such as CLIENT NO-TOUCH, on a client that is not shared.
        """
        if args in self.link.setup:
            return
        self.link.setup.append(args)
        try:
            if self.up:
                await self.link.send_args(args)
        except ServerError:
            # If the server refuses it now, it would at every reconnection, too, which would never succeed.
            self.link.setup.remove(args)
            raise
        except ConnectionFailed:
            return  # the next connection starts with it

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
        """Connect; with `required=False` a failure is no error, and is retried in the background."""
        await self.link.start(required=required)

    async def aclose(self) -> None:
        """Disconnect everything."""
        await asyncio.gather(self.hub.aclose(), self._dedicated.aclose(), self.link.aclose())

    async def retire(self) -> None:
        """Disconnect from a server that left the cluster: its last callers get `Unavailable`."""
        self.link.retired = True
        await self.aclose()

    def relocate(self, problem: str) -> None:
        """End every connection, so that the next ones go to the server's present address."""
        self.link.drop(problem)
        self.hub.drop(problem)
        self._dedicated.drop(problem)

    def invalidate(self, keys: Invalidations) -> None:
        """Notify every listener of changed keys; the exceptions of one are reported and affect no other."""
        for listener in self._invalidation_listeners:
            try:
                listener(keys)
            except Exception as error:
                report = {"message": "a listener of invalidations failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(report)

    def _call_special(self, args: tuple[Arg, ...]) -> Awaitable[Any]:
        name = command_name(args)
        refuse_stateful(name, args)
        if blocking_seconds(name, args) is not None:
            return self.block(args)
        return self.link.send_args((name, *args[1:]))

    def _on_push(self, push: list[Any]) -> None:
        if push[0] == b"invalidate":
            self.invalidate(push[1])

    def _on_state(self, up: bool) -> None:
        if not up:
            self.invalidate(None)
        if self._state_listener is not None:
            self._state_listener(up)


def standalone(target: Target) -> NodeClient:
    """The client of the one server that a URL names."""
    return NodeClient(Endpoint.at(target.addresses[0], target))
