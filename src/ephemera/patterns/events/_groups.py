"""A consumer group: made when it is missing, and what can be read of it.

A group begins at the first event that the stream still has, when it is new and when it had to be made again
because the server lost it. So nothing that is present is missed; what was handled shortly before the loss,
and not trimmed yet, is delivered once more.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from ephemera.errors import ServerError
from ephemera.wire import Client

log = logging.getLogger("ephemera.events")

GONE = ("NOGROUP", "UNBLOCKED")
"""What the server says of a group that it does not have, and to who waits for a stream that is deleted."""


class GroupReading(msgspec.Struct, frozen=True):
    """How one group stands."""

    name: str
    consumers: int
    pending: int
    """Delivered and not acknowledged: being handled, or waiting for a retry."""
    lag: int | None
    """Not delivered yet; None when the server cannot tell."""


class StreamReading(msgspec.Struct, frozen=True):
    """How a stream and its groups stand: what `reading()` gives, for metrics."""

    key: str
    length: int
    dead: int
    groups: tuple[GroupReading, ...]


async def make_group(client: Client, key: str, group: str) -> bool:
    """Make a group, and its stream if need be; False when it was there."""
    try:
        await client.call("XGROUP", "CREATE", key, group, "0", "MKSTREAM")
    except ServerError as error:
        if error.code != "BUSYGROUP":
            raise
        return False
    return True


async def make_group_again(client: Client, key: str, group: str) -> None:
    """Make a group that vanished."""
    if await make_group(client, key, group):
        log.warning(
            "%r: the group %r was gone and is made again; it begins at the first event there is", key, group
        )


async def read_stream(client: Client, key: str, dead: str) -> StreamReading:
    """Look at a stream; one trip."""
    length, letters = client.call("XLEN", key), client.call("XLEN", dead)
    known = client.call("XINFO", "GROUPS", key)
    try:
        groups = await known
    except ServerError as error:
        if "no such key" not in error.message:
            raise
        groups = []
    read = tuple(map(_group, groups))
    return StreamReading(key, await length, await letters, read)


def _group(told: dict[bytes, Any]) -> GroupReading:
    return GroupReading(
        told[b"name"].decode("utf-8", "backslashreplace"),
        told[b"consumers"],
        told[b"pending"],
        told.get(b"lag"),
    )
