"""Messages from channels: one connection per server, however many listen.

Pub/sub loses what is sent while nobody is connected, and a listener that is too slow cannot be waited for.
Both are told, never hidden: the listener then gets a `Message` with `lost=True` and no data, which means "you
may have missed something on this channel; look for yourself". A listener holds at most `backlog` messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self

from ephemera.errors import ServerError, StoreClosed, UnsupportedCommand
from ephemera.wire._handshake import Endpoint
from ephemera.wire._link import Link

ChannelKind = Literal["channel", "pattern", "shard"]
Place = tuple[ChannelKind, bytes]
"""A channel, pattern or shard channel by kind and name."""
_JOIN = {"channel": "SUBSCRIBE", "pattern": "PSUBSCRIBE", "shard": "SSUBSCRIBE"}
_CONFIRMED: dict[bytes, ChannelKind] = {
    b"subscribe": "channel",
    b"psubscribe": "pattern",
    b"ssubscribe": "shard",
}
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
        self._wanted = list(dict.fromkeys((kind, _bytes(name)) for name in names))
        if not self._wanted:
            raise UnsupportedCommand(_JOIN[kind], "name at least one channel")
        self._messages: deque[Message] = deque()
        self._backlog = backlog
        self._arrived = asyncio.Event()
        self._closed = False
        self._error: ServerError | None = None

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
                raise self._error or StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()

    def deliver(self, message: Message) -> None:
        """Take a message; when too many wait, all are replaced by a mark on every channel."""
        if len(self._messages) < self._backlog:
            self._messages.append(message)
        else:
            self._messages = deque(gap(place) for place in self._wanted)
        self._arrived.set()

    def end(self, error: ServerError | None = None) -> None:
        """Let the iteration finish after what has arrived, or fail with what ended it."""
        self._closed = True
        self._error = self._error or error
        self._arrived.set()


class Hub:
    """All subscriptions to one server, on one connection that is opened when first needed."""

    def __init__(self, endpoint: Endpoint, on_moved: Callable[[Place], None] | None = None) -> None:
        self._endpoint = endpoint
        self._on_moved = on_moved
        self._listeners: dict[Place, list[Subscription]] = {}
        # Channels that were not heard for a while, to be told when the server confirms them.
        self._gaps: set[Place] = set()
        self._link: Link | None = None
        self._opening = asyncio.Lock()
        self._rejoining: set[asyncio.Task[None]] = set()
        self._closed = False

    async def join(self, listener: Subscription, wanted: list[Place], *, after_gap: bool = False) -> None:
        """Add a listener to its channels; returns when the server has confirmed them all."""
        link = await self._connected()
        if after_gap:
            self._gaps.update(wanted)
        try:
            # Also when others listen already: the confirmation is what the newcomer waits for.
            await asyncio.gather(*[self._add(link, listener, place) for place in wanted])
        except BaseException:
            await self.withdraw(listener, wanted)
            raise

    async def leave(self, listener: Subscription, wanted: list[Place]) -> None:
        """End a listener and take it off its channels."""
        listener.end()
        await self.withdraw(listener, wanted)

    async def withdraw(self, listener: Subscription, wanted: list[Place]) -> None:
        """Take a listener off its channels, and the channels off the server when it was their last."""
        emptied = [place for place in wanted if self.forget(listener, place)]
        if self._link is not None and self._link.up:
            leaving = [self._link.send(_LEAVE[kind], name) for kind, name in emptied]
            # Whatever fails here, a lost connection or a slot that moved, has unsubscribed as well.
            await asyncio.gather(*leaving, return_exceptions=True)

    def forget(self, listener: Subscription, place: Place) -> bool:
        """Take a listener off a channel here alone; True when it was the last one."""
        listeners = self._listeners.get(place)
        if listeners is None or listener not in listeners:
            return False
        listeners.remove(listener)
        if not listeners:
            del self._listeners[place]
        return not listeners

    def drop(self, problem: str) -> None:
        """End the present connection; the next one is made where the server is now."""
        if self._link is not None:
            self._link.drop(problem)

    async def aclose(self) -> None:
        """End every subscription and the connection."""
        self._closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.end()
        if self._link is not None:
            await self._link.aclose()
        for task in self._rejoining:
            task.cancel()
        await asyncio.gather(*self._rejoining, return_exceptions=True)

    async def _connected(self) -> Link:
        async with self._opening:
            self._check_open()
            if self._link is None:
                link = Link(self._endpoint, listener=self._on_push, on_state=self._on_state)
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

    def _add(self, link: Link, listener: Subscription, place: Place) -> asyncio.Future[Any]:
        confirmed = link.send(_JOIN[place[0]], place[1])
        self._listeners.setdefault(place, []).append(listener)
        return confirmed

    def _on_push(self, push: list[Any]) -> None:
        word = push[0]
        if word in _CONFIRMED:
            self._confirmed((_CONFIRMED[word], push[1]))
        elif word == b"message":
            self._deliver("channel", push[1], Message(push[1], push[2]))
        elif word == b"pmessage":
            self._deliver("pattern", push[1], Message(push[2], push[3], pattern=push[1]))
        elif word == b"smessage":
            self._deliver("shard", push[1], Message(push[1], push[2]))
        elif word == b"sunsubscribe" and self._on_moved and ("shard", push[1]) in self._listeners:
            # Not asked for: the slot moved away. A cluster then joins the channel at its new place.
            self._on_moved(("shard", push[1]))

    def _confirmed(self, place: Place) -> None:
        """Tell of a gap before anything that comes after it."""
        if place in self._gaps:
            self._gaps.discard(place)
            self._deliver(*place, gap(place))

    def _deliver(self, kind: ChannelKind, name: bytes, message: Message) -> None:
        for listener in self._listeners.get((kind, name), ()):
            listener.deliver(message)

    def _on_state(self, up: bool) -> None:
        if up and self._listeners:
            task = asyncio.get_running_loop().create_task(self._rejoin())
            self._rejoining.add(task)
            task.add_done_callback(self._rejoining.discard)

    async def _rejoin(self) -> None:
        """Subscribe again on a new connection; every listener is told of the gap."""
        link = self._link
        if link is None or not link.up:
            return
        places = list(self._listeners)
        self._gaps.update(places)
        answers = await asyncio.gather(
            *[link.send(_JOIN[kind], name) for kind, name in places], return_exceptions=True
        )
        for place, answer in zip(places, answers, strict=True):
            if isinstance(answer, ServerError):  # when it is down again, the next connection rejoins
                self._refused(place, answer)

    def _refused(self, place: Place, error: ServerError) -> None:
        """Let the cluster find the new place of a shard channel; anything else ends the listeners."""
        if place[0] == "shard" and self._on_moved is not None:
            self._on_moved(place)
            return
        for listener in self._listeners.pop(place, []):
            listener.end(error)


def gap(place: Place) -> Message:
    """What tells the listeners of a channel that they may have missed something."""
    return Message(place[1], b"", lost=True)


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name
