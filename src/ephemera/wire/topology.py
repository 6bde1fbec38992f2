"""Who serves which slots, as one node of the cluster tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ephemera.wire.commands import as_text
from ephemera.wire.url import Address


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of slots with its master and replicas."""

    first: int
    last: int
    master: Address
    replicas: tuple[Address, ...]


def read_shards(reply: Any, asked: Address) -> list[Shard]:
    """The shards in a CLUSTER SLOTS reply; a node that does not know its own host is where we asked."""
    return [
        Shard(
            first,
            last,
            _address(master, asked),
            tuple(_address(replica, asked) for replica in replicas),
        )
        for first, last, master, *replicas in reply
    ]


def _address(node: Any, asked: Address) -> Address:
    host = as_text(node[0]) if node[0] else ""
    return Address(asked.host if host in ("", "?") else host, int(node[1]))


def redirection(message: str, asked: Address) -> Address:
    """The address in `MOVED 3999 10.0.0.1:6381` or `ASK ...`."""
    host, _, port = message.split(" ")[2].rpartition(":")
    return Address(host or asked.host, int(port))
