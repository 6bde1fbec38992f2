"""The client of a single server.

It has four kinds of connections: the multiplexed one for commands, a second one for slow calls and one for
subscriptions once there are any, and one for each blocking command that waits at the moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.wire._blocking_connection import DetachedSocket
from ephemera.wire._command_sample import sample_commands
from ephemera.wire._commands import SLOW, Arg, blocking_seconds, command_name, refuse_stateful
from ephemera.wire._connection import Entry
from ephemera.wire._credentials import CredentialProvider, CredentialSource
from ephemera.wire._deadline import limit, within
from ephemera.wire._dedicated_connections import DedicatedConnections, NonRecoveringOwner
from ephemera.wire._handshake import Endpoint, open_connection
from ephemera.wire._link import Link
from ephemera.wire._slow_lane import SlowLane
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
            on_unreachable=self._on_unreachable,
            expects_silence=lambda: self._slow_lane.expects_silence(),
        )
        # Bound methods of the link: a method of ours in between would cost a call per command.
        self.call = self.link.call
        self.run = self.link.run
        self.send = self.link.send
        self.send_to = self.link.send_to
        self.hub = Hub(endpoint, on_moved)
        self._state_listener = on_state
        self._dedicated = DedicatedConnections(endpoint)
        self._slow_lane = SlowLane(self.link, redirect, self._on_push)
        self._invalidation_listeners: list[Callable[[Invalidations], None]] = []
        self._tracked: tuple[str, ...] | None = None  # prefixes; without any, the keys that are read here
        self._tracking_change = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.endpoint} {'up' if self.up else 'down'}>"

    @property
    def up(self) -> bool:
        """Whether it is connected."""
        return self.link.up

    @property
    def connection_count(self) -> int:
        """How often the server was connected to."""
        return self.link.connection_count

    def subscribe(self, *names: str | bytes, kind: ChannelKind = "channel") -> Subscription:
        """Subscribe to channels, patterns or shard channels on the connection for subscriptions."""
        return Subscription(self.hub, kind, names)

    async def track(self, listener: Callable[[Invalidations], None], prefixes: Sequence[str] = ()) -> None:
        """Deliver client-tracking invalidations: of keys read here, or of all keys with these prefixes."""
        async with self._tracking_change:
            if self._tracked is not None and bool(self._tracked) != bool(prefixes):
                raise ServerError(
                    "ERR a connection tracks the keys that it reads or keys by prefix (BCAST), not both"
                )
            tracked = _without_overlap([*(self._tracked or ()), *prefixes])
            self._invalidation_listeners.append(listener)
            try:
                if tracked != self._tracked:
                    await self._change_tracking(self._tracked, tracked)
            except ServerError:
                self._invalidation_listeners.remove(listener)
                raise

    async def _change_tracking(self, before: tuple[str, ...] | None, tracked: tuple[str, ...]) -> None:
        """Track other prefixes, now and at the start of every later connection."""
        old, new, setup = _tracking(before or ()), _tracking(tracked), self.link.setup
        if before is not None:
            setup.remove(old)
        setup.append(new)
        self._tracked = tracked
        try:
            if self.up:
                await self._send_tracking(before or (), tracked)
                self._slow_lane.restart()
        except ServerError:
            # If the server refuses it now, it would at every reconnection, too, which would never succeed.
            setup.remove(new)
            if before is not None:
                setup.append(old)
            self._tracked = before
            raise
        except ConnectionFailed:
            return  # the next connection starts with it

    async def _send_tracking(self, before: tuple[str, ...], tracked: tuple[str, ...]) -> None:
        send, added = self.link.send_args, tuple(each for each in tracked if each not in before)
        if set(before) <= set(tracked):
            await send(_tracking(added))
            return
        # The server refuses a prefix that overlaps one it has, so a wider one replaces those it covers.
        replies = await asyncio.gather(
            send(("CLIENT", "TRACKING", "OFF")), send(_tracking(tracked)), return_exceptions=True
        )
        self.invalidate(None)  # what changed in between was not announced
        for problem in replies:
            if isinstance(problem, BaseException):
                await send(_tracking(before))
                raise problem

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
                self._slow_lane.restart()
        except ServerError:
            # If the server refuses it now, it would at every reconnection, too, which would never succeed.
            self.link.setup.remove(args)
            raise
        except ConnectionFailed:
            return  # the next connection starts with it

    def block(self, args: tuple[Arg, ...], *, asking: bool = False) -> Awaitable[Any]:
        """Run a blocking command on a connection of its own."""
        return self._dedicated.call(args, blocking_seconds(command_name(args), args) or 0, asking=asking)

    @property
    def can_block(self) -> bool:
        """Whether it has blocking connections: not with TLS, nor with credentials that change."""
        return type(self) is NodeClient and not self.endpoint.target.tls and self.endpoint.source is None

    async def open_blocking(self) -> DetachedSocket:
        """Open a connection for a thread to drive itself."""
        endpoint, link = self.endpoint, self.link
        setup = [words for words in link.setup if words[0] != "CLIENT"]  # nothing is tracked there
        generation = link.connection_count
        connection = await open_connection(endpoint, NonRecoveringOwner(endpoint), setup)
        return DetachedSocket(
            str(endpoint),
            connection.detach(),
            endpoint.target.timeout,
            partial(link.is_past, generation),
            self._slow_lane.expects_silence,
        )

    async def sample_commands(self, seconds: float, at_most: int) -> list[bytes]:
        """What all clients send in the next seconds, as lines of MONITOR; `at_most` of them."""
        return await sample_commands(self.endpoint, seconds, at_most)

    def nodes(self) -> Sequence[NodeClient]:
        """This server alone."""
        return (self,)

    def read_nodes(self) -> Sequence[NodeClient]:
        """This server alone."""
        return (self,)

    async def start(self, *, required: bool = True) -> None:
        """Connect; with `required=False` a failure is not an error, and is retried in the background."""
        await self.link.start(required=required)

    async def aclose(self) -> None:
        """Disconnect everything."""
        await asyncio.gather(
            self.hub.aclose(), self._dedicated.aclose(), self._slow_lane.aclose(), self.link.aclose()
        )

    async def retire(self) -> None:
        """Disconnect from a server that left the cluster: its last callers get `Unavailable`."""
        self.link.retired = True
        await self.aclose()

    def relocate(self, problem: str) -> None:
        """End every connection, so that the next ones go to the server's present address."""
        self.link.drop(problem)
        self.hub.drop(problem)
        self._slow_lane.drop(problem)
        self._dedicated.drop(problem)

    def invalidate(self, keys: Invalidations) -> None:
        """Notify every listener of changed keys; the exceptions of one are reported and affect no other."""
        for listener in self._invalidation_listeners:
            try:
                listener(keys)
            except Exception as error:
                report = {"message": "a listener of invalidations failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(report)

    def _call_special(self, args: tuple[Arg, ...], timeout: float | None) -> Awaitable[Any]:
        name = command_name(args)
        refuse_stateful(name, args)
        if blocking_seconds(name, args) is not None:
            return self.block(args) if timeout is None else within(timeout, self.block(args))
        args = (name, *args[1:])
        if name in SLOW or (timeout is not None and timeout > self.endpoint.target.timeout):
            reply = self._slow_lane.call(args, timeout)
        else:
            reply = self.link.send_args(args)
        if timeout is not None:
            limit(reply, timeout, str(self.endpoint))
        return reply

    def _on_push(self, push: list[Any]) -> None:
        if push[0] == b"invalidate":
            self.invalidate(push[1])

    def _on_unreachable(self, problem: str) -> None:
        """End blocking commands: one without a time limit would wait forever behind a silent line."""
        self._dedicated.drop(f"the server cannot be reached ({problem})")

    def _on_state(self, up: bool) -> None:
        if not up:
            self.invalidate(None)
            self._slow_lane.drop("the server is not connected")
        if self._state_listener is not None:
            self._state_listener(up)


def _tracking(prefixes: tuple[str, ...]) -> tuple[Arg, ...]:
    words: tuple[Arg, ...] = ("CLIENT", "TRACKING", "ON")
    return (*words, "BCAST", *(word for each in prefixes for word in ("PREFIX", each))) if prefixes else words


def _without_overlap(prefixes: list[str]) -> tuple[str, ...]:
    """The prefixes that no other one covers, each once."""
    unique = dict.fromkeys(prefixes)
    return tuple(
        each for each in unique if not any(each.startswith(other) for other in unique if other != each)
    )


def standalone(target: Target) -> NodeClient:
    """The client of the one server that a URL names."""
    return NodeClient(Endpoint.at(target.addresses[0], target))


def node_client(target: Target, credentials: CredentialProvider | None = None) -> NodeClient:
    """The client of one server by itself, in whatever mode it runs: `start` it, and `aclose` it.

    Redirections of a cluster are errors for its callers. `credentials` replaces those of the target.
    """
    if credentials is not None:
        target = replace(target, source=CredentialSource(credentials))
    return NodeClient(Endpoint.at(target.addresses[0], target, mode="any"))
