"""Who serves which slots, as one node of the cluster tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ephemera.errors import CannotConnect
from ephemera.wire._commands import as_text
from ephemera.wire._slots import SLOT_COUNT
from ephemera.wire._url import Address

_REDIRECTION = re.compile(r"(?:MOVED|ASK) [0-9]+ (?P<host>\S*):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of slots with its master and replicas."""

    first: int
    last: int
    master: Address
    replicas: tuple[Address, ...]


def read_shards(reply: Any, asked: Address) -> list[Shard]:
    """The shards in a CLUSTER SLOTS reply; a node that does not know its own host is where we asked."""
    try:
        return [_shard(each, asked) for each in reply]
    except (TypeError, ValueError, LookupError, OverflowError):
        advice = "Is it a node of a Redis or Valkey cluster?"
        raise CannotConnect(str(asked), "its map of slots makes no sense", advice) from None


def _shard(told: Any, asked: Address) -> Shard:
    first, last, master, *replicas = told
    if not 0 <= first <= last < SLOT_COUNT:
        raise ValueError
    return Shard(first, last, _address(master, asked), tuple(_address(each, asked) for each in replicas))


def _address(node: Any, asked: Address) -> Address:
    host = as_text(node[0]) if node[0] else ""
    return Address(asked.host if host in ("", "?") else host, int(node[1]))


def redirection(message: str, asked: Address) -> Address | None:
    """The address in `MOVED 3999 10.0.0.1:6381` or `ASK ...`; None for any other message."""
    match = _REDIRECTION.fullmatch(message)
    if match is None:
        return None
    return _address((match["host"], match["port"]), asked)
