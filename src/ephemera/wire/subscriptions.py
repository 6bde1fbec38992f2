"""Messages from channels: one connection per server, however many listen.

Pub/sub loses what is sent while nobody is connected, and a listener that is too slow cannot be waited for.
Both are told, never hidden: the listener then gets a `Message` with `lost=True` and no data, which means "you
may have missed something on this channel; look for yourself". A listener holds at most `backlog` messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from ephemera.errors import ConnectionFailed, StoreClosed
from ephemera.wire.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from ephemera.wire.handshake import Endpoint

ChannelKind = Literal["channel", "pattern", "shard"]
Place = tuple[ChannelKind, bytes]
"""A channel, pattern or shard channel by kind and name."""
_JOIN = {"channel": "SUBSCRIBE", "pattern": "PSUBSCRIBE", "shard": "SSUBSCRIBE"}
_LEAVE = {"channel": "UNSUBSCRIBE", "pattern": "PUNSUBSCRIBE", "shard": "SUNSUBSCRIBE"}
_BACKLOG = 1000


class Message(NamedTuple):
    """What a channel said; `lost` marks a possible gap before the next message."""

    channel: bytes
    data: bytes
    pattern: bytes | None = None
    lost: bool = False


class Joinable(Protocol):
    """Where a subscription registers: the hub of a server, or those of a cluster's shards."""

    async def join(self, listener: Subscription, wanted: list[Place]) -> None:
        """Subscribe; returns when the server has confirmed."""

    async def leave(self, listener: Subscription, wanted: list[Place]) -> None:
        """Unsubscribe."""


class Subscription:
    """A listener: `async with store.subscribe("news") as messages: async for message in messages`."""

    def __init__(
        self,
        hub: Joinable,
        kind: ChannelKind,
        names: Iterable[str | bytes],
        backlog: int = _BACKLOG,
    ) -> None:
        self._hub = hub
        self._wanted = [(kind, _bytes(name)) for name in names]
        self._messages: deque[Message] = deque()
        self._backlog = backlog
        self._arrived: asyncio.Future[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """Subscribed, confirmed by the server: whatever is published from here on arrives."""
        await self._hub.join(self, self._wanted)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._hub.leave(self, self._wanted)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._messages:
            if self._closed:
                raise StopAsyncIteration
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self._messages.popleft()

    def deliver(self, message: Message) -> None:
        """Take a message; when too many wait, they are replaced by one that says so."""
        if len(self._messages) >= self._backlog:
            self._messages.clear()
            message = message._replace(data=b"", lost=True)
        self._messages.append(message)
        self._wake()

    def end(self) -> None:
        """Let the iteration finish after what has arrived."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


class Hub:
    """All subscriptions to one server, on one connection that is opened when first needed."""

    def __init__(self, endpoint: Endpoint, on_moved: Callable[[], None] | None = None) -> None:
        self._endpoint = endpoint
        self._on_moved = on_moved
        self._listeners: dict[tuple[ChannelKind, bytes], list[Subscription]] = {}
        self._link: Link | None = None
        self._opening = asyncio.Lock()
        self._rejoining: set[asyncio.Task[None]] = set()
        self._closed = False

    async def join(self, listener: Subscription, wanted: list[Place]) -> None:
        """Add a listener to its channels; returns when the server has confirmed them all."""
        link = await self._connected()
        confirmations = []
        for place in wanted:
            listeners = self._listeners.setdefault(place, [])
            listeners.append(listener)
            # Also when others listen already: the confirmation is what the newcomer waits for.
            confirmations.append(link.send(_JOIN[place[0]], place[1]))
        try:
            await asyncio.gather(*confirmations)
        except BaseException:
            await self.leave(listener, wanted)
            raise

    async def leave(self, listener: Subscription, wanted: list[Place]) -> None:
        """Take a listener off its channels, and the channels off the server when it was their last."""
        listener.end()
        for place in wanted:
            known = place in self._listeners
            self.forget(listener, place)
            if known and place not in self._listeners:
                await self._unsubscribe(place)

    def forget(self, listener: Subscription, place: Place) -> None:
        """Drop a listener whose channel is served elsewhere now."""
        listeners = self._listeners.get(place, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(place, None)

    def tell_gap(self, place: Place) -> None:
        """Tell the listeners of a channel that they may have missed something."""
        self._deliver(*place, Message(place[1], b"", lost=True))

    async def aclose(self) -> None:
        """End every subscription and the connection."""
        self._closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.end()
        for task in self._rejoining:
            task.cancel()
        await asyncio.gather(*self._rejoining, return_exceptions=True)
        if self._link is not None:
            await self._link.aclose()

    async def _connected(self) -> Link:
        async with self._opening:
            if self._closed:
                raise StoreClosed(f"{self._endpoint}: the store is closed; open a new one")
            if self._link is None:
                link = Link(self._endpoint, listener=self._on_push, on_state=self._on_state)
                await link.start()
                self._link = link
            return self._link

    async def _unsubscribe(self, place: Place) -> None:
        if self._link is None or not self._link.up:
            return
        try:
            await self._link.send(_LEAVE[place[0]], place[1])
        except (ConnectionFailed, StoreClosed):
            return  # a lost connection has no subscriptions left

    def _on_push(self, push: list[Any]) -> None:
        word = push[0]
        if word == b"message":
            self._deliver("channel", push[1], Message(push[1], push[2]))
        elif word == b"pmessage":
            self._deliver("pattern", push[1], Message(push[2], push[3], pattern=push[1]))
        elif word == b"smessage":
            self._deliver("shard", push[1], Message(push[1], push[2]))
        elif word == b"sunsubscribe" and self._on_moved and ("shard", push[1]) in self._listeners:
            # Not asked for: the slot moved away. A cluster then joins the channel at its new place.
            self._on_moved()

    def _deliver(self, kind: ChannelKind, name: bytes, message: Message) -> None:
        for listener in self._listeners.get((kind, name), ()):
            listener.deliver(message)

    def _on_state(self, up: bool) -> None:
        if up and self._listeners:
            task = asyncio.get_running_loop().create_task(self._rejoin())
            self._rejoining.add(task)
            task.add_done_callback(self._rejoining.discard)

    async def _rejoin(self) -> None:
        """Subscribe again on a new connection and tell every listener of the gap."""
        link = self._link
        if link is None:
            return
        places = list(self._listeners)
        try:
            await asyncio.gather(*(link.send(_JOIN[kind], name) for kind, name in places))
        except ConnectionFailed:
            return  # down again: the next connection rejoins
        for place in places:
            self.tell_gap(place)


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name
