"""The connections of this process: their queues of messages, their heartbeat, and their subscription."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from time import monotonic
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar

from ephemera._futures import cancel_all
from ephemera.errors import EphemeraError, SlowConsumer, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, Stats
from ephemera.wire import Arg, Client, Message, Script

M = TypeVar("M")

RENEW = Script.load("ephemera.patterns.fanout", "renew")

log = logging.getLogger("ephemera.fanout")

_TICK = 1.0  # seconds between checks for connections that are not listed, or due
_BATCH = 500  # users whose connections are renewed in one write


class Missing(Enum):
    """The type of `MISSED`."""

    MISSED = "missed"


MISSED: Literal[Missing.MISSED] = Missing.MISSED
"""Delivered in place of messages that may have been lost: read the current state from SQL."""


class FanoutConnection(Generic[M]):
    """One connection of a user: an async iterator of messages, and of `MISSED` where some may be lost."""

    def __init__(self, registry: ConnectionRegistry[M], key: str, connection_id: str, backlog: int) -> None:
        self.key = key
        self.id = connection_id
        """Its member of the user's set, `<server>:<connection>`."""
        self.closed = False
        self.dropped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection was dropped because it was too slow."""
        self._registry = registry
        self._backlog = backlog
        self._waiting: deque[M | Literal[Missing.MISSED]] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self._too_slow = False
        self._requested = False  # whether the server was asked to list it
        self._listed = False  # whether the server lists it
        self._missed_unreported = False  # whether messages were lost and `MISSED` is not delivered yet

    async def __aenter__(self) -> Self:
        try:
            await self._registry.add(self)
        except BaseException:  # cancelled in the meantime: if it is listed by now, its deadline removes it
            self.close()
            self._registry.discard(self)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self._registry.remove(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M | Literal[Missing.MISSED]:
        while not self._waiting or self._too_slow:
            if self._too_slow:
                raise SlowConsumer(self.key, self._backlog)
            if self.closed:
                raise StopAsyncIteration
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self._waiting.popleft()

    def close(self) -> None:
        """End the iteration, after the messages that have arrived."""
        self.closed = True
        self._wake()

    def _deliver(self, message: M | Literal[Missing.MISSED]) -> None:
        """Queue a message; one above the backlog drops the connection."""
        if message is MISSED and self._waiting and self._waiting[-1] is MISSED:
            return
        if len(self._waiting) >= self._backlog:
            self._too_slow = True
            self._waiting.clear()
            if not self.dropped.done():
                self.dropped.set_result(None)
        elif not self._too_slow:
            self._waiting.append(message)
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


class ConnectionRegistry(Generic[M]):
    """All connections of one fan-out in this process, listed on the server and subscribed to messages."""

    def __init__(
        self,
        client: Client,
        stats: Stats,
        *,
        channels: tuple[str, str],
        lifetime: int,
        decode: Callable[[bytes], M | None],
    ) -> None:
        self._client = client
        self._stats = stats
        self._broadcasts, self._channel = channels
        self._lifetime = lifetime  # milliseconds
        self._decode = decode
        self._interval = lifetime / 3000  # seconds between two renewals
        self._users: dict[str, list[FanoutConnection[M]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._renewal_at = 0.0
        self._subscribed = asyncio.Event()
        self._closed = False

    @property
    def size(self) -> int:
        """How many connections there are."""
        return sum(map(len, self._users.values()))

    async def add(self, connection: FanoutConnection[M]) -> None:
        """List a connection and receive its messages; without a server, as soon as there is one."""
        if self._closed:
            connection.close()
            return
        self._users.setdefault(connection.key, []).append(connection)
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._renewal_at = monotonic() + self._interval
            self._tasks = [
                loop.create_task(self._receive(), name="ephemera-fanout-messages"),
                loop.create_task(self._renew(), name="ephemera-fanout-heartbeat"),
            ]
        if self._client.up:
            await self._subscribed.wait()
        if not connection.closed:
            await self._list(connection.key, [connection])

    async def remove(self, connection: FanoutConnection[M]) -> None:
        """Remove a connection from the list; if that fails, its deadline does."""
        self.discard(connection)
        with suppress(EphemeraError):
            await self._client.call("ZREM", connection.key, connection.id)

    def discard(self, connection: FanoutConnection[M]) -> None:
        """Stop delivering to a connection, and let its deadline expire."""
        connections = self._users.get(connection.key, [])
        if connection in connections:
            connections.remove(connection)
        if not connections:
            self._users.pop(connection.key, None)

    async def aclose(self) -> None:
        """Close all connections, and remove them from the lists."""
        self._closed = True
        self._subscribed.set()
        await cancel_all(self._tasks)
        leaving = [connection for connections in self._users.values() for connection in connections]
        for connection in leaving:
            connection.close()
        await asyncio.gather(*(self.remove(connection) for connection in leaving))

    async def _list(self, key: str, connections: list[FanoutConnection[M]]) -> None:
        """List connections of one user, or renew their deadlines."""
        arguments: tuple[Arg, ...] = (self._lifetime, *(connection.id for connection in connections))
        before = [connection for connection in connections if connection._requested]
        for connection in connections:
            connection._requested = True
        try:
            with self._stats.counting_errors:
                added: int = await self._client.run(RENEW, (key,), arguments)
        except REDIS_ERRORS:
            for connection in connections:
                connection._listed = False
            return
        self._stats.writes += 1
        unlisted = before if added > len(connections) - len(before) else []  # not reachable in the meantime
        for connection in connections:
            connection._listed = True
            if connection._missed_unreported or connection in unlisted:
                connection._missed_unreported = False
                connection._deliver(MISSED)
        closed = [connection.id for connection in connections if connection.closed]
        if closed:  # it left while it was being listed again
            with suppress(*REDIS_ERRORS):
                await self._client.call("ZREM", key, *closed)

    async def _renew(self) -> None:
        """Renew all deadlines every third of a lifetime, and list what could not be listed before."""
        while True:
            await asyncio.sleep(min(_TICK, self._interval))
            renew_all = monotonic() >= self._renewal_at
            if renew_all:
                self._renewal_at = monotonic() + self._interval
            due = [
                key
                for key, connections in self._users.items()
                if renew_all or not all(connection._listed for connection in connections)
            ]
            if self._client.up:
                for at in range(0, len(due), _BATCH):
                    await asyncio.gather(
                        *(self._list(key, list(self._users.get(key, ()))) for key in due[at : at + _BATCH])
                    )

    async def _receive(self) -> None:
        interrupted = False
        while True:
            try:
                await self._deliver_messages(interrupted=interrupted)
            except StoreClosed:
                return
            except REDIS_ERRORS:
                pass
            except Exception:  # from the decoding of a message that no `push` has sent
                log.exception("%s: a message could not be delivered; subscribing again", self._channel)
            else:
                return  # the store was closed
            self._subscribed.set()  # new connections do not wait for a server that does not answer
            interrupted = True
            await asyncio.sleep(_TICK)

    async def _deliver_messages(self, *, interrupted: bool) -> None:
        """Deliver messages for as long as the subscription lasts."""
        async with self._client.subscribe(self._broadcasts, self._channel) as messages:
            self._subscribed.set()
            if interrupted:
                self._mark_missed()
            async for message in messages:
                if message.lost:
                    self._mark_missed()
                else:
                    self._deliver(message)

    def _deliver(self, message: Message) -> None:
        if message.channel == self._channel.encode():
            key, _, text = message.data.partition(b"\n")
            # Bytes that are not text are not a user's key, and must not end the subscription.
            connections = self._users.get(key.decode(errors="surrogateescape"), [])
        else:
            text = message.data
            connections = [each for listed in self._users.values() for each in listed]
        decoded = self._decode(text)
        for connection in connections:
            connection._deliver(MISSED if decoded is None else decoded)

    def _mark_missed(self) -> None:
        """List all connections again, since the lists may be lost too, and then deliver `MISSED` to each.

        Not before: a message to a connection that is not listed yet would be lost silently.
        """
        self._renewal_at = 0.0
        for connections in self._users.values():
            for connection in connections:
                connection._missed_unreported = True
