"""The declaration of a fan-out, and its runtime object."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import (
    Catalogue,
    FieldValue,
    Fixed,
    Store,
    check_declaration,
    choose_codec,
    fixed,
)
from ephemera.patterns.fanout._connections import ConnectionRegistry, FanoutConnection
from ephemera.wire import Script

M = TypeVar("M")

PUSH = Script.load("ephemera.patterns.fanout", "push")
LIST = Script.load("ephemera.patterns.fanout", "list")

_LIFETIME = fixed(seconds=300)


class Fanout(Generic[M]):
    """The declaration of messages to connected users: `store[FANOUT]` gives the `BoundFanout` of a store.

    Args:
        catalogue: Where the keys are declared.
        pattern: The key pattern of a user's connections.
        message: A `msgspec.Struct`, or a union of tagged ones.
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
    def decode(cls, member: str, deadline: float) -> Presence:
        """The connection of a member of the sorted set."""
        server, _, connection = member.partition(":")
        return cls(server, connection, datetime.fromtimestamp(deadline / 1000, UTC))


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
        return [Presence.decode(member.decode(), float(deadline)) for member, deadline in found]

    @property
    def local_connections(self) -> int:
        """How many connections this process has."""
        return self._registry.size
