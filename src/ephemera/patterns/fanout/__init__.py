"""Fan-out: which process each user is connected to, and messages to a user's connections on any process.

    NOTES = Fanout(catalogue, "ws_connections:{user_id}", Note, channel="pubsub:notifications")

    async with store[NOTES].connect(user_id="u1") as connection:        # in the process with the WebSocket
        async for message in connection: ...
    reached = await store[NOTES].push(Note("..."), user_id="u1")        # in any process

*Keys.* A sorted set for each user holds `<server>:<connection>` by deadline, and expires with its last
deadline. `channel` carries messages to all connections, `channel:{server_id}` those to one process.

*Lifetimes.* Each connection has a deadline of its own (`lifetime`, 300 s). One task of its process renews all
deadlines every third of that, in a few round trips. So the connections of a dead process expire, whatever
else a user is connected to.

*Atomicity.* Finding a user's processes, publishing to them and removing expired connections is one script and
one round trip.

*Guarantees.* A message reaches each connection at most once, in the order in which one process sent it. It is
not stored: what must not be lost is in SQL, and the message says that there is news. A connection that may
have missed messages (its process lost the subscription, or it was not listed for a while) gets `MISSED`. One
that is `backlog` messages behind is dropped with `SlowConsumer`, and does not delay the others.

*When Redis is down or hung.* `push` and `broadcast` raise `ConnectionFailed`. Connections stay open, and are
listed again within seconds of the server's return; after an eviction or a flush, within a third of the
lifetime.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime
from itertools import count
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ephemera._stored_numbers import stored_time
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, FieldValue, Fixed, Store, check_declaration, choose_codec, fixed
from ephemera.patterns.fanout._connections import MISSED, ConnectionRegistry, FanoutConnection
from ephemera.wire import Script

__all__ = [
    "MISSED",
    "BoundFanout",
    "Fanout",
    "FanoutConnection",
    "Presence",
]

M = TypeVar("M")

PUSH = Script.load("ephemera.patterns.fanout", "push")
LIST = Script.load("ephemera.patterns.fanout", "list")

_LIFETIME = fixed(seconds=300)


class Fanout(Generic[M]):
    """The declaration of messages to connected users: `store[FANOUT]` gives the `BoundFanout` of a store.

    Args:
        catalogue: Where the keys are declared.
        pattern: The key pattern of a user's connections.
        message: A type of value (`docs/keyspace.md`), or a union of tagged Structs or of pydantic models.
        channel: The channel of messages to all connections, and the prefix of those of processes.
        lifetime: How long the connections of a dead process stay listed.
        backlog: How many messages may wait for a slow connection before it is dropped.
        purpose: What the connections are for, for the documentation of the catalogue.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        message: type[M] | UnionType,
        *,
        channel: str,
        lifetime: Fixed = _LIFETIME,
        backlog: int = 100,
        purpose: str = "Where a user is connected, each connection with its own deadline",
    ) -> None:
        check_declaration(catalogue, pattern)
        if not isinstance(cast("Any", lifetime), Fixed):
            raise InvalidDeclaration(
                pattern,
                f"connections cannot have the lifetime {lifetime}",
                "use fixed(seconds=300), from each heartbeat",
            )
        if backlog < 1:
            raise InvalidDeclaration(pattern, f"backlog={backlog} holds nothing", "use a positive number")
        self.lifetime = lifetime.milliseconds
        """Milliseconds."""
        self.backlog = backlog
        self.keyspace = catalogue.sorted_set(
            pattern,
            str,
            lifetime=replace(lifetime, outlives=lifetime.outlives or "the heartbeats, three in a lifetime"),
            role="cache",
            purpose=purpose,
            invalidated_by=("the end of the connection",),
            if_lost="processes list their connections again, within a third of the lifetime",
        )
        self.broadcasts = catalogue.channel(
            channel, bytes, role="cache", purpose="Messages to all connections", if_lost="they get MISSED"
        )
        self.processes = catalogue.channel(
            f"{channel}:{{server_id}}",
            bytes,
            role="cache",
            purpose="Messages to connections of one process: a user's key, a line break, the message",
            if_lost="they get MISSED",
        )
        codec = choose_codec(pattern, message, "json")
        self.encode, self.decode = codec.encode, codec.decode
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundFanout[M]:
        """The fan-out of a store that has its catalogue."""
        return BoundFanout(self, store)

    def __repr__(self) -> str:
        return f"<Fanout {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


class Presence(NamedTuple):
    """One connection of a user, on any process."""

    server: str
    connection: str
    until: datetime  # by the server's clock, unless it is renewed

    @classmethod
    def decode(cls, member: bytes, deadline: bytes | float) -> Presence | None:
        """The connection of a member of the sorted set; None for one that no process of ours has added."""
        server, _, connection = member.decode("ascii", "replace").partition(":")
        until = stored_time(float(deadline) / 1000)
        return None if until is None or not connection else cls(server, connection, until)


class BoundFanout(Generic[M]):
    """The fan-out of one store: what `store[FANOUT]` gives."""

    def __init__(self, declaration: Fanout[M], store: Store) -> None:
        self.declaration = declaration
        self.server_id = secrets.token_hex(6)
        """The id of this process in users' lists."""
        self._stats = store[declaration.keyspace].stats
        self._render = declaration.keyspace.template.render
        self._broadcasts, processes = store[declaration.broadcasts], store[declaration.processes]
        channel = processes.name(server_id=self.server_id)
        self._channel_prefix = channel.removesuffix(self.server_id)
        client = store.client(declaration.keyspace.role)
        self._run = client.run
        self._registry = ConnectionRegistry(
            client,
            self._stats,
            channels=(self._broadcasts.name(), channel),
            lifetime=declaration.lifetime,
            decode=declaration.decode,
        )
        self._numbers = count(1)
        store.before_close(self._registry.aclose)

    def connect(self, /, **fields: FieldValue) -> FanoutConnection[M]:
        """A connection of a user; enter it with `async with`, then iterate over its messages."""
        connection_id = f"{self.server_id}:{next(self._numbers):x}"
        return FanoutConnection(self._registry, self._render(fields), connection_id, self.declaration.backlog)

    async def push(self, message: M, /, **fields: FieldValue) -> int:
        """Send a message to all connections of a user, on any process; returns how many there are."""
        key = self._render(fields)
        text = b"%s\n%s" % (key.encode(), self.declaration.encode(message))
        with self._stats.counting_errors:
            reached: int = await self._run(PUSH, (key,), (self._channel_prefix, text))
        return reached

    async def broadcast(self, message: M) -> None:
        """Send a message to all connections of all users."""
        await self._broadcasts.publish(self.declaration.encode(message))

    async def connections(self, /, **fields: FieldValue) -> list[Presence]:
        """Where a user is connected, by deadline."""
        flat = await self._run(LIST, (self._render(fields),))
        found = zip(flat[::2], flat[1::2], strict=True)
        decoded = [Presence.decode(member, deadline) for member, deadline in found]
        listed = [each for each in decoded if each is not None]
        self._stats.undecodable += len(decoded) - len(listed)
        return listed

    @property
    def local_connections(self) -> int:
        """How many connections this process has."""
        return self._registry.size
