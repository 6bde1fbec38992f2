"""The 16384 slots of a cluster: which one a key belongs to, and which nodes serve it.

A key's slot is the CRC16 (XMODEM) of its hash tag, or of the whole key if it has none.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from dataclasses import dataclass
from itertools import count
from typing import Any

from ephemera.errors import CannotConnect
from ephemera.wire._commands import Arg, as_text
from ephemera.wire._url import Address

SLOT_COUNT = 16384
"""Slots of a cluster."""

_REDIRECTION = re.compile(r"(?:MOVED|ASK) [0-9]+ (?P<host>\S*):(?P<port>[0-9]{1,5})")


def key_slot(key: Arg) -> int:
    """The slot of a key, as CLUSTER KEYSLOT computes it."""
    if not isinstance(key, bytes):
        key = bytes(key) if isinstance(key, memoryview) else str(key).encode()
    opening = key.find(b"{")
    if opening >= 0:
        closing = key.find(b"}", opening + 1)
        if closing > opening + 1:
            key = key[opening + 1 : closing]
    return crc_hqx(key, 0) % SLOT_COUNT


def hash_tag_for_slot(slot: int) -> int:
    """The smallest number that, used as a hash tag, maps to a slot."""
    return next(number for number in count() if crc_hqx(b"%d" % number, 0) % SLOT_COUNT == slot)


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of slots with its master and replicas."""

    first: int
    last: int
    master: Address
    replicas: tuple[Address, ...]


def parse_slot_map(reply: Any, node: Address) -> list[Shard]:
    """The shards in a CLUSTER SLOTS reply; where a host is missing, it is that of the node that replied."""
    try:
        return [_shard(each, node) for each in reply]
    except (TypeError, ValueError, LookupError, OverflowError):
        advice = "Is it a node of a Redis or Valkey cluster?"
        raise CannotConnect(str(node), "its reply to CLUSTER SLOTS is malformed", advice) from None


def _shard(fields: Any, node: Address) -> Shard:
    first, last, master, *replicas = fields
    if not 0 <= first <= last < SLOT_COUNT:
        raise ValueError
    return Shard(first, last, _address(master, node), tuple(_address(each, node) for each in replicas))


def _address(fields: Any, node: Address) -> Address:
    host = as_text(fields[0]) if fields[0] else ""
    return Address(node.host if host in ("", "?") else host, int(fields[1]))


def parse_redirection(message: str, node: Address) -> Address | None:
    """The address in `MOVED 3999 10.0.0.1:6381` or `ASK ...`; None for any other message."""
    match = _REDIRECTION.fullmatch(message)
    if match is None:
        return None
    return _address((match["host"], match["port"]), node)
