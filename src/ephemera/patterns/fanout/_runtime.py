"""The operations of a fan-out; what they promise, and what happens when Redis is down: see the package."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ephemera.errors import EphemeraError, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store
from ephemera.patterns.fanout._connections import MISSED, Connection
from ephemera.wire import Arg, Message, Script

if TYPE_CHECKING:
    from ephemera.patterns.fanout._declaration import Fanout

M = TypeVar("M")

log = logging.getLogger("ephemera.fanout")

RENEW = Script.load("ephemera.patterns.fanout", "renew")
PUSH = Script.load("ephemera.patterns.fanout", "push")
LIST = Script.load("ephemera.patterns.fanout", "list")

_TICK = 1.0  # seconds between looks at what is not entered, or due
_BATCH = 500  # users whose connections are renewed in one write


class Presence(NamedTuple):
    """One connection of a user."""

    server: str
    connection: str
    until: datetime  # by the server's clock, unless it is renewed

    @classmethod
    def read(cls, member: str, deadline: float) -> Presence:
        """The connection that a member of the sorted set stands for."""
        server, _, connection = member.partition(":")
        return cls(server, connection, datetime.fromtimestamp(deadline / 1000, UTC))


class BoundFanout(Generic[M]):
    """The fan-out of one store: what `store[FANOUT]` gives."""

    def __init__(self, declaration: Fanout[M], store: Store) -> None:
        self.declaration = declaration
        self.server_id = secrets.token_hex(6)
        """The name of this process in users' lists."""
        self._stats = store[declaration.space].stats
        self._everybody, self._processes = store[declaration.everybody], store[declaration.processes]
        self._mine = self._processes.name(server_id=self.server_id)
        self._beginning = self._mine.removesuffix(self.server_id)
        client = store.client(declaration.space.role)
        self._client, self._run = client, client.run
        self._numbers = count(1)
        self._users: dict[str, list[Connection[M]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._due = 0.0
        self._listens = asyncio.Event()
        self._closed = False
        store.before_close(self.aclose)

    def connect(self, /, **fields: FieldValue) -> Connection[M]:
        """A connection of a user, to be entered with `async with` and then iterated over."""
        number = f"{self.server_id}:{next(self._numbers):x}"
        return Connection(self, self.declaration.space.template.render(fields), number)

    async def push(self, message: M, /, **fields: FieldValue) -> int:
        """Send a message to all connections of a user, on whatever process; how many there are."""
        key = self.declaration.space.template.render(fields)
        text = b"%s\n%s" % (key.encode(), self.declaration.encode(message))
        try:
            reached: int = await self._run(PUSH, (key,), (self._beginning, text))
        except REDIS_ERRORS:
            self._stats.errors += 1
            raise
        return reached

    async def broadcast(self, message: M) -> None:
        """Send a message to all connections of all users."""
        await self._everybody.publish(self.declaration.encode(message))

    async def connections(self, /, **fields: FieldValue) -> list[Presence]:
        """Where a user is connected, the one that lapses first first."""
        flat = await self._run(LIST, (self.declaration.space.template.render(fields),))
        found = zip(flat[::2], flat[1::2], strict=True)
        return [Presence.read(member.decode(), float(deadline)) for member, deadline in found]

    @property
    def here(self) -> int:
        """How many connections this process has."""
        return sum(map(len, self._users.values()))

    async def enter(self, connection: Connection[M]) -> None:
        """List a connection, and hear what is sent to it; without a server, as soon as there is one."""
        if self._closed:
            connection.close()
            return
        self._users.setdefault(connection.key, []).append(connection)
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._due = monotonic() + self._interval
            self._tasks = [
                loop.create_task(self._listen(), name="ephemera-fanout-messages"),
                loop.create_task(self._keep(), name="ephemera-fanout-heartbeat"),
            ]
        if self._client.up:
            await self._listens.wait()
        if not connection.closed:
            await self._enter(connection.key, [connection])

    async def leave(self, connection: Connection[M]) -> None:
        """List a connection no more; where that fails, its deadline does it."""
        self.forget(connection)
        with suppress(EphemeraError):
            await self._client.call("ZREM", connection.key, connection.id)

    def forget(self, connection: Connection[M]) -> None:
        """Send a connection nothing any more, and let its deadline pass."""
        here = self._users.get(connection.key, [])
        if connection in here:
            here.remove(connection)
        if not here:
            self._users.pop(connection.key, None)

    async def aclose(self) -> None:
        """End all connections, and list them no more."""
        self._closed = True
        self._listens.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        leaving = [connection for here in self._users.values() for connection in here]
        for connection in leaving:
            connection.close()
        await asyncio.gather(*(self.leave(connection) for connection in leaving))

    @property
    def _interval(self) -> float:
        return self.declaration.lifetime / 3000

    async def _enter(self, key: str, connections: list[Connection[M]]) -> None:
        arguments: tuple[Arg, ...] = (
            self.declaration.lifetime,
            *(connection.id for connection in connections),
        )
        before = [connection for connection in connections if connection.asked]
        for connection in connections:
            connection.asked = True
        try:
            added: int = await self._run(RENEW, (key,), arguments)
        except REDIS_ERRORS:
            self._stats.errors += 1
            for connection in connections:
                connection.entered = False
            return
        self._stats.writes += 1
        unlisted = before if added > len(connections) - len(before) else []  # nobody could reach them
        for connection in connections:
            connection.entered = True
            if connection.cut_off or connection in unlisted:
                connection.cut_off = False
                connection.deliver(MISSED)
        gone = [connection.id for connection in connections if connection.closed]
        if gone:  # it left while it was being entered again
            with suppress(*REDIS_ERRORS):
                await self._client.call("ZREM", key, *gone)

    async def _keep(self) -> None:
        """Renew all deadlines every third of a lifetime, and enter what could not be entered before."""
        while True:
            await asyncio.sleep(min(_TICK, self._interval))
            everything = monotonic() >= self._due
            if everything:
                self._due = monotonic() + self._interval
            late = [
                key
                for key, here in self._users.items()
                if everything or not all(connection.entered for connection in here)
            ]
            if self._client.up:
                for at in range(0, len(late), _BATCH):
                    await asyncio.gather(
                        *(self._enter(key, list(self._users.get(key, ()))) for key in late[at : at + _BATCH])
                    )

    async def _listen(self) -> None:
        interrupted = False
        while True:
            try:
                await self._hear(interrupted=interrupted)
            except StoreClosed:
                return
            except REDIS_ERRORS:
                pass
            except Exception:  # such as a message type's own, by a message that nobody should have sent
                log.exception("%r: a message could not be delivered; listening anew", self.declaration)
            else:
                return  # the store was closed
            self._listens.set()  # nobody waits for a server that does not answer
            interrupted = True
            await asyncio.sleep(_TICK)

    async def _hear(self, *, interrupted: bool) -> None:
        """Deliver what is sent, for as long as the subscription lasts."""
        async with self._client.subscribe(self._everybody.name(), self._mine) as messages:
            self._listens.set()
            if interrupted:
                self._missed()
            async for message in messages:
                if message.lost:
                    self._missed()
                else:
                    self._pass_on(message)

    def _pass_on(self, message: Message) -> None:
        if message.channel == self._mine.encode():
            key, _, text = message.data.partition(b"\n")
            # Bytes that are no text are no user's key, and must not end the listening.
            self._deliver(self._users.get(key.decode(errors="surrogateescape"), ()), text)
        else:
            self._deliver([each for here in self._users.values() for each in here], message.data)

    def _missed(self) -> None:
        """Enter all again, since the lists may be lost, too; then each is told that messages may be.

        Not before: what is sent to one who is told, and not listed yet, would be lost without a word.
        """
        self._due = 0.0
        for here in self._users.values():
            for connection in here:
                connection.cut_off = True

    def _deliver(self, connections: list[Connection[M]] | tuple[()], text: bytes) -> None:
        message = self.declaration.decode(text)
        for connection in connections:
            connection.deliver(MISSED if message is None else message)
