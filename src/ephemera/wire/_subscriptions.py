"""Messages from channels: one connection per server, however many subscribers.

Pub/sub loses messages while a subscriber is disconnected, and cannot wait for a slow one. Neither is hidden:
the subscriber then gets a `Message` with `lost=True` and no data, which means that messages on this channel
may have been missed. A subscription buffers at most `backlog` messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self

from ephemera._futures import cancel_all
from ephemera.errors import ServerError, StoreClosed, UnsupportedCommand
from ephemera.wire._connection import refuse_other_loop
from ephemera.wire._handshake import Endpoint
from ephemera.wire._link import Link

ChannelKind = Literal["channel", "pattern", "shard"]
"""What the names of a subscription are: channels, patterns of them, or shard channels of a cluster."""
Channel = tuple[ChannelKind, bytes]
"""A channel, pattern or shard channel: its kind and its name."""
_SUBSCRIBE = {"channel": "SUBSCRIBE", "pattern": "PSUBSCRIBE", "shard": "SSUBSCRIBE"}
_UNSUBSCRIBE = {"channel": "UNSUBSCRIBE", "pattern": "PUNSUBSCRIBE", "shard": "SUNSUBSCRIBE"}
_CONFIRMATIONS: dict[bytes, ChannelKind] = {
    b"subscribe": "channel",
    b"psubscribe": "pattern",
    b"ssubscribe": "shard",
}
_BACKLOG = 1000  # messages


class Message(NamedTuple):
    """A message on a channel; `lost` marks a possible gap before the next one."""

    channel: bytes
    data: bytes
    pattern: bytes | None = None
    lost: bool = False


class SubscriptionRegistry(Protocol):
    """Where a subscription registers: the hub of a server, or those of a cluster's shards."""

    async def join(self, subscription: Subscription, channels: list[Channel]) -> None:
        """Subscribe; returns when the server has confirmed."""

    async def leave(self, subscription: Subscription, channels: list[Channel]) -> None:
        """Unsubscribe."""


class Subscription:
    """A subscription: `async with store.subscribe("news") as messages: async for message in messages`."""

    def __init__(
        self,
        registry: SubscriptionRegistry,
        kind: ChannelKind,
        names: Iterable[str | bytes],
        backlog: int = _BACKLOG,
    ) -> None:
        self._registry = registry
        self._channels: list[Channel] = list(dict.fromkeys((kind, _bytes(name)) for name in names))
        if not self._channels:
            raise UnsupportedCommand(_SUBSCRIBE[kind], "name at least one channel")
        self._messages: deque[Message] = deque()
        self._backlog = backlog
        self._arrived = asyncio.Event()
        self._closed = False
        self._error: ServerError | None = None

    async def __aenter__(self) -> Self:
        """Subscribe, and wait for the server's confirmation: everything published from here on arrives."""
        await self._registry.join(self, self._channels)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._registry.leave(self, self._channels)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._messages:
            if self._closed:
                raise self._error or StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()

    def _deliver(self, message: Message) -> None:
        """Buffer a message; when the backlog is full, a `lost` mark on every channel replaces all of it."""
        if len(self._messages) < self._backlog:
            self._messages.append(message)
        else:
            self._messages = deque(_lost(channel) for channel in self._channels)
        self._arrived.set()

    def _end(self, error: ServerError | None = None) -> None:
        """End the iteration after the messages that have arrived, with this error if there is one."""
        self._closed = True
        self._error = self._error or error
        self._arrived.set()


class Hub:
    """All subscriptions to one server, on one connection that is opened when first needed."""

    def __init__(self, endpoint: Endpoint, on_moved: Callable[[Channel], None] | None = None) -> None:
        self._endpoint = endpoint
        self._on_moved = on_moved
        self._subscribers: dict[Channel, list[Subscription]] = {}
        # Channels with a gap that their subscribers are notified of once the server confirms them.
        self._gaps: set[Channel] = set()
        self._link: Link | None = None
        self._opening = asyncio.Lock()
        self._resubscribing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def join(
        self, subscription: Subscription, channels: list[Channel], *, after_gap: bool = False
    ) -> None:
        """Add a subscription to its channels; returns when the server has confirmed them all."""
        refuse_other_loop(self._loop)
        link = await self._connected()
        if after_gap:
            self._gaps.update(channels)
        try:
            # Also for a channel that has subscribers already: the new one waits for the confirmation.
            await asyncio.gather(*[self._add(link, subscription, channel) for channel in channels])
        except BaseException:
            await self.withdraw(subscription, channels)
            raise

    async def leave(self, subscription: Subscription, channels: list[Channel]) -> None:
        """End a subscription and remove it from its channels."""
        subscription._end()
        await self.withdraw(subscription, channels)

    async def withdraw(self, subscription: Subscription, channels: list[Channel]) -> None:
        """Remove a subscription from its channels, and unsubscribe from those without any other."""
        emptied = [channel for channel in channels if self.remove(subscription, channel)]
        if self._link is not None and self._link.up:
            leaving = [self._link.send_args((_UNSUBSCRIBE[kind], name)) for kind, name in emptied]
            # Any failure here, a lost connection or a slot that moved, has unsubscribed as well.
            await asyncio.gather(*leaving, return_exceptions=True)

    def remove(self, subscription: Subscription, channel: Channel) -> bool:
        """Remove a subscription from a channel without telling the server; True when it was the last."""
        subscribers = self._subscribers.get(channel)
        if subscribers is None or subscription not in subscribers:
            return False
        subscribers.remove(subscription)
        if not subscribers:
            del self._subscribers[channel]
        return not subscribers

    def drop(self, problem: str) -> None:
        """End the present connection; the next one goes to the server's present address."""
        if self._link is not None:
            self._link.drop(problem)

    async def aclose(self) -> None:
        """End every subscription and the connection."""
        self._closed = True
        for subscribers in self._subscribers.values():
            for subscription in subscribers:
                subscription._end()
        if self._link is not None:
            await self._link.aclose()
        await cancel_all(self._resubscribing)

    async def _connected(self) -> Link:
        async with self._opening:
            self._check_open()
            if self._link is None:
                link = Link(self._endpoint, on_push=self._on_push, on_state=self._on_state)
                await link.start()
                try:
                    self._check_open()
                except StoreClosed:
                    await link.aclose()
                    raise
                self._link = link
            return self._link

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self._endpoint}: the store is closed; open a new one")

    def _add(self, link: Link, subscription: Subscription, channel: Channel) -> asyncio.Future[Any]:
        confirmed = link.send_args((_SUBSCRIBE[channel[0]], channel[1]))
        self._subscribers.setdefault(channel, []).append(subscription)
        return confirmed

    def _on_push(self, push: list[Any]) -> None:
        kind = push[0]
        if kind in _CONFIRMATIONS:
            self._on_confirmation((_CONFIRMATIONS[kind], push[1]))
        elif kind == b"message":
            self._deliver("channel", push[1], Message(push[1], push[2]))
        elif kind == b"pmessage":
            self._deliver("pattern", push[1], Message(push[2], push[3], pattern=push[1]))
        elif kind == b"smessage":
            self._deliver("shard", push[1], Message(push[1], push[2]))
        elif kind == b"sunsubscribe" and self._on_moved and ("shard", push[1]) in self._subscribers:
            # Not requested: the slot has moved. The cluster then subscribes at its new master.
            self._on_moved(("shard", push[1]))

    def _on_confirmation(self, channel: Channel) -> None:
        """Report a gap before any message that follows it."""
        if channel in self._gaps:
            self._gaps.discard(channel)
            self._deliver(*channel, _lost(channel))

    def _deliver(self, kind: ChannelKind, name: bytes, message: Message) -> None:
        for subscription in self._subscribers.get((kind, name), ()):
            subscription._deliver(message)

    def _on_state(self, up: bool) -> None:
        if up and self._subscribers:
            task = asyncio.get_running_loop().create_task(self._resubscribe())
            self._resubscribing.add(task)
            task.add_done_callback(self._resubscribing.discard)

    async def _resubscribe(self) -> None:
        """Subscribe again on a new connection; every subscriber is notified of the gap."""
        link = self._link
        if link is None or not link.up:
            return
        channels = list(self._subscribers)
        self._gaps.update(channels)
        answers = await asyncio.gather(
            *[link.send_args((_SUBSCRIBE[kind], name)) for kind, name in channels], return_exceptions=True
        )
        for channel, answer in zip(channels, answers, strict=True):
            if isinstance(answer, ServerError):  # if it is down again, the next connection resubscribes
                self._on_refusal(channel, answer)

    def _on_refusal(self, channel: Channel, error: ServerError) -> None:
        """Let the cluster find the new master of a shard channel; anything else ends the subscriptions."""
        if channel[0] == "shard" and self._on_moved is not None:
            self._on_moved(channel)
            return
        for subscription in self._subscribers.pop(channel, []):
            subscription._end(error)


def _lost(channel: Channel) -> Message:
    """The message that marks a gap."""
    return Message(channel[1], b"", lost=True)


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name
