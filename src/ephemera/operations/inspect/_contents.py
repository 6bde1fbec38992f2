"""Looking at what a key holds without reading much: which commands, by the type of the key.

`sizing` asks how much there is, `reading` asks for a bounded part of it: all of a small value, a few members
of a large collection, nothing of a large string. No command here changes anything.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ephemera.wire import Arg

READ_AT_MOST = 32 * 1024
"""Bytes of a key that may be read, by the server's own estimate."""

_FEW = 10  # members of a large collection
_SIZES = {"hash": "HLEN", "set": "SCARD", "zset": "ZCARD", "list": "LLEN", "stream": "XLEN"}


class Group(msgspec.Struct, frozen=True):
    """A consumer group of a stream; `lag` is None when the server cannot tell."""

    name: str
    consumers: int
    pending: int
    lag: int | None


def sizing(kind: str, key: bytes) -> list[tuple[Arg, ...]]:
    """The commands that tell how many members a key has, and a stream's groups; none for a string."""
    if kind not in _SIZES:
        return []
    groups: list[tuple[Arg, ...]] = [("XINFO", "GROUPS", key)] if kind == "stream" else []
    return [(_SIZES[kind], key), *groups]


def reading(kind: str, key: bytes, size: int, members: int) -> tuple[Arg, ...] | None:
    """The command that reads all of a key, or a few members of it; None when even that is too much."""
    if size <= READ_AT_MOST:
        few = members
    elif size * _FEW <= READ_AT_MOST * max(members, 1):
        few = _FEW
    else:
        return None
    if kind == "hash" and few < members:
        return ("HRANDFIELD", key, few, "WITHVALUES")
    commands: dict[str, tuple[Arg, ...]] = {
        "string": ("GET", key),
        "hash": ("HGETALL", key),
        "set": ("SRANDMEMBER", key, _FEW),
        "zset": ("ZRANDMEMBER", key, _FEW),
        "list": ("LRANGE", key, 0, _FEW - 1),
        "stream": ("XREVRANGE", key, "+", "-", "COUNT", _FEW),
    }
    return commands.get(kind)


def groups_of(reply: Any) -> list[Group]:
    """The consumer groups in a reply to XINFO GROUPS."""
    return [
        Group(
            group[b"name"].decode("utf-8", "backslashreplace"),
            group[b"consumers"],
            group[b"pending"],
            group.get(b"lag"),
        )
        for group in reply
    ]
