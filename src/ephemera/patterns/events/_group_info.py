"""Consumer groups as the server knows them, created and inspected, and what their consumers have done.

A group starts at the first event that the stream still has, both when it is new and when it had to be created
again because the server lost it. So no event that is present is missed; what was handled shortly before the
loss, and not trimmed yet, is delivered again.

Each consumer of this process counts what it does; metrics show the sums by group.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import msgspec

from ephemera._bounded_cache import BoundedCache
from ephemera.errors import ServerError
from ephemera.wire import Client, as_text

GROUP_MISSING = ("NOGROUP", "UNBLOCKED")
"""The server's errors for a group that it does not have, and for a wait on a stream that was deleted."""
_STREAMS_REMEMBERED = 1000  # streams that no consumer of this store reads any more


class StreamKeys(NamedTuple):
    """The keys of one stream, which share a cluster slot."""

    stream: str
    dead: str
    """Its dead letters."""
    paused: str
    """The groups that are paused."""


class GroupInfo(msgspec.Struct, frozen=True):
    """The state of one consumer group."""

    name: str
    consumers: int
    pending: int
    """Delivered and not acknowledged: being handled, or waiting for a retry."""
    lag: int | None
    """Not delivered yet; None if the server cannot tell."""
    paused: str | None = None
    """The error for which it is paused; None if it is not."""


class StreamInfo(msgspec.Struct, frozen=True):
    """The state of a stream and its groups: what `info()` returns."""

    key: str
    length: int
    dead: int
    """How many dead letters there are."""
    groups: tuple[GroupInfo, ...]


async def create_group(client: Client, key: str, group: str) -> bool:
    """Create a group, and its stream if necessary; False if it existed."""
    try:
        await client.call("XGROUP", "CREATE", key, group, "0", "MKSTREAM")
    except ServerError as error:
        if error.code != "BUSYGROUP":
            raise
        return False
    return True


async def stream_info(client: Client, keys: StreamKeys) -> StreamInfo:
    """Inspect a stream; one round trip."""
    length, letters, reasons, groups = await asyncio.gather(
        client.call("XLEN", keys.stream),
        client.call("XLEN", keys.dead),
        client.call("HGETALL", keys.paused),
        _groups(client, keys.stream),
    )
    infos = tuple(_group_info(found, reasons.get(found[b"name"])) for found in groups)
    return StreamInfo(keys.stream, length, letters, infos)


async def _groups(client: Client, key: str) -> list[dict[bytes, Any]]:
    try:
        found: list[dict[bytes, Any]] = await client.call("XINFO", "GROUPS", key)
    except ServerError as error:
        if "no such key" not in error.message:
            raise
        return []
    return found


def _group_info(found: dict[bytes, Any], paused: bytes | None) -> GroupInfo:
    reason = None if paused is None else as_text(paused).split(" ", 2)[-1]
    return GroupInfo(
        as_text(found[b"name"]), found[b"consumers"], found[b"pending"], found.get(b"lag"), reason
    )


class ConsumerCounts:
    """What a consumer has done since it started."""

    __slots__ = ("acked", "dead", "dropped", "failed", "handled")

    def __init__(self) -> None:
        self.handled = 0
        """Attempts that succeeded."""
        self.failed = 0
        """Attempts that failed."""
        self.acked = 0
        """Acknowledged by the server, events for other groups included."""
        self.dead = 0
        """Moved to the dead letters."""
        self.dropped = 0
        """Failed, and acknowledged because the consumer's `on_error` says so."""

    def add(self, other: ConsumerCounts) -> None:
        """Add the counts of another consumer."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __repr__(self) -> str:
        return "ConsumerCounts(" + ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__) + ")"


class GroupCounts:
    """What all consumers of a store have done, by group, and their streams; those that stopped included."""

    def __init__(self) -> None:
        self._running: list[tuple[StreamKeys, str, ConsumerCounts]] = []
        self._ended: dict[str, ConsumerCounts] = {}
        self._ended_streams = BoundedCache[StreamKeys, None](_STREAMS_REMEMBERED)

    def add(self, keys: StreamKeys, group: str, counts: ConsumerCounts) -> None:
        """Include a consumer that starts."""
        self._running.append((keys, group, counts))

    def remove(self, keys: StreamKeys, group: str, counts: ConsumerCounts) -> None:
        """Keep only the sums of a consumer that stops, and its stream."""
        self._running.remove((keys, group, counts))
        self._ended.setdefault(group, ConsumerCounts()).add(counts)
        self._ended_streams[keys] = None

    def streams(self) -> list[StreamKeys]:
        """The streams of the consumers: first of those that run, then of some that have stopped."""
        return list(dict.fromkeys([*(keys for keys, _, _ in self._running), *self._ended_streams]))

    def by_group(self) -> dict[str, ConsumerCounts]:
        """The current sums."""
        sums: dict[str, ConsumerCounts] = {}
        for group, counts in [*self._ended.items(), *(each[1:] for each in self._running)]:
            sums.setdefault(group, ConsumerCounts()).add(counts)
        return sums
