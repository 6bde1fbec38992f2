"""Writes with their round-trip times and what they began with: the latencies of single keyspaces.

A write is one round trip of all commands of a tick, and stands for the key of its first command. The sample
is bounded: when it is full, every other write is dropped, and from then on only every second one is kept,
then every fourth. So a quiet connection is measured exactly, and a busy one at next to no cost.
"""

from __future__ import annotations

from typing import NamedTuple

from ephemera.wire._commands import command_name, first_key

_MOST = 512
_HEAD = 400
"""Bytes of a command that are kept: a name, a script's digest, and a key of usual length."""


class SampledWrite(NamedTuple):
    """A write: the first key in it, how long its replies took, and how many writes it stands for."""

    key: bytes
    seconds: float
    weight: int


class LatencySample:
    """The writes since the sample was last taken."""

    __slots__ = ("_skip", "_weight", "_writes")

    def __init__(self) -> None:
        self._writes: list[tuple[bytes, float]] = []
        self._weight = 1
        self._skip = 0

    def add(self, packed: bytes, seconds: float) -> None:
        """A write whose first command was this one has its replies."""
        if self._skip:
            self._skip -= 1
            return
        self._writes.append((packed[:_HEAD], seconds))
        if len(self._writes) == _MOST:
            del self._writes[::2]  # the last one stays
            self._weight *= 2
        self._skip = self._weight - 1

    def take(self) -> list[SampledWrite]:
        """The writes of commands with a key, after which it is empty."""
        writes, weight = self._writes, self._weight
        self._writes, self._weight, self._skip = [], 1, 0
        keys = ((_first_key(head), seconds) for head, seconds in writes)
        return [SampledWrite(key, seconds, weight) for key, seconds in keys if key is not None]


def _first_key(head: bytes) -> bytes | None:
    """The first key of a packed command, whose end may be missing."""
    words = head.split(b"\r\n")[2::2]
    if len(head) == _HEAD:
        words.pop()
    key = first_key(command_name(tuple(words)), tuple(words)) if words else None
    return key if isinstance(key, bytes) else None
