"""The declaration of a fan-out: the keyspace of connections, the channels of processes and of everybody."""

from __future__ import annotations

from dataclasses import replace
from types import UnionType
from typing import Any, Generic, TypeVar, cast

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Role, Store, check_declaration, choose_codec, fixed
from ephemera.patterns.fanout._runtime import BoundFanout

M = TypeVar("M")


class Fanout(Generic[M]):
    """The declaration of one kind of messages to users: `store[FANOUT]` gives the `BoundFanout` of a store.

    `lifetime` is how long a dead process's connections are still listed; `backlog` is how many messages may
    wait for a connection that is slow to take them.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        message: type[M] | UnionType,
        *,
        channel: str,
        lifetime: Fixed = fixed(seconds=300),  # noqa: B008 - it is a constant
        backlog: int = 100,
        role: Role = "cache",
        purpose: str = "Where a user is connected, each connection with its own deadline",
        if_lost: str = "connections are entered again by their processes, within a third of the lifetime",
    ) -> None:
        check_declaration(catalogue, pattern)
        if not isinstance(cast("Any", lifetime), Fixed):
            raise InvalidDeclaration(
                pattern, f"connections cannot live {lifetime}", "use fixed(seconds=300), from each heartbeat"
            )
        if backlog < 1:
            raise InvalidDeclaration(pattern, f"backlog={backlog} holds nothing", "give a positive number")
        self.lifetime = lifetime.milliseconds
        """Milliseconds."""
        self.backlog = backlog
        self.space = catalogue.sorted_set(
            pattern,
            str,
            lifetime=replace(lifetime, outlives=lifetime.outlives or "the heartbeats, three in a lifetime"),
            role=role,
            purpose=purpose,
            invalidated_by=("the end of the connection",),
            if_lost=if_lost,
        )
        self.everybody = catalogue.channel(
            channel, bytes, role=role, purpose="Messages to all connections", if_lost="they are told"
        )
        self.processes = catalogue.channel(
            f"{channel}:{{server_id}}",
            bytes,
            role=role,
            purpose="Messages to connections of one process: a user's key, a line break, the message",
            if_lost="they are told",
        )
        codec = choose_codec(pattern, message, "json")
        self.encode, self.decode = codec.encode, codec.decode

    def bind(self, store: Store) -> BoundFanout[M]:
        """The fan-out of a store that has its catalogue."""
        return BoundFanout(self, store)

    def __repr__(self) -> str:
        return f"<Fanout {self.space.pattern!r} of {self.space.catalogue}>"
