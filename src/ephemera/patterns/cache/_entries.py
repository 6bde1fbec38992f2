"""What a cache stores: the value with its version, its freshness and what its load took.

An entry is written as an array, `["1k3Xz_9",["4f9c2a…",1763194000123,42,[],0,{"name":"ann"}]]`, so its first
bytes name its version: `HEAD` of them tell two entries of a key apart without reading the payload.
Freshness is an instant of the server's clock (`ServerClock`), which readers on all machines agree on.
Where values have stamps, a version is the number that the server gave, the stamp, and a random end.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
from time import monotonic, time
from typing import Any, Protocol

import msgspec

from ephemera.errors import ServerError
from ephemera.keyspace import Store
from ephemera.wire import Client

HEAD = 64
"""Bytes of a stored entry that name its version."""

_CLOCK_KEPT = 60.0  # seconds after which the server is asked for the time again
_NEVER_EARLIER = 12  # load costs before the end: further ahead, an early refresh is a matter of 1 in 100,000


NUMBER = 16
"""Digits of a number: microseconds since 1970, until 2286."""

STAMP = 16
"""Characters of a stamp."""


def stamped_version(stamp: str, number: str = "0" * NUMBER) -> str:
    """The version of an entry whose value has a stamp; the server puts its number in place of the zeros."""
    return number + stamp + secrets.token_urlsafe(6)


def same_content(version: str) -> str:
    """Another version of the same number and stamp."""
    return version[: NUMBER + STAMP] + secrets.token_urlsafe(6)


class Entry(Protocol):
    """A cached value; `value` is None for what is known not to exist."""

    version: str
    fresh_until: int  # milliseconds since 1970 by the server's clock
    cost: int  # milliseconds that the load took
    tags: list[str]
    began: int  # the moment of the tags' clock before the load; 0 without tags
    value: Any


def entry_type(value_type: Any) -> Any:
    """The Struct of a cache's entries."""
    fields = [
        ("version", str), ("fresh_until", int), ("cost", int), ("tags", list[str]), ("began", int),
        ("value", value_type | None),
    ]  # fmt: skip
    # What the catalogue shows is the type that was declared; the entry around it is this package's affair.
    return msgspec.defstruct("Entry", fields, array_like=True, gc=False, namespace={"__holds__": value_type})


def stamped_head(head: bytes) -> tuple[str, int] | None:
    """Version and freshness in the first bytes of an entry in MessagePack, if its value has a stamp."""
    at = 2 + (head[1] & 0x1F) if head[:1] == b"\x92" else 0  # after the array and the name of its layout
    if not at or head[at : at + 3] != b"\x96\xd9\x28" or head[at + 43 : at + 44] != b"\xcf":
        return None
    return head[at + 3 : at + 43].decode(), int.from_bytes(head[at + 44 : at + 52], "big")


def uncompressed(data: bytes) -> bool:
    """Whether an entry's first bytes are readable: an array of JSON or of MessagePack."""
    return data[:1] in (b"[", b"\x92")


def due_early(left: float, cost: float, eagerness: float) -> bool:
    """Whether one reader shall refresh although `left` milliseconds remain (XFetch, Vattani et al. 2015).

    The dearer the load and the nearer the end, the likelier; so of many readers one refreshes in time.
    """
    reach = cost * eagerness
    if left > reach * _NEVER_EARLIER:
        return False
    return left < -reach * math.log(1.0 - random.random())


class ServerClock:
    """The server's time, from its last answer and this process's monotonic clock."""

    def __init__(self, client: Client) -> None:
        self._call = client.call
        self._ahead = (time() - monotonic()) * 1000  # milliseconds; by this machine until the server says
        self._told_at = -math.inf
        self._asking: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Milliseconds since 1970 on the server."""
        return monotonic() * 1000 + self._ahead

    def tell(self, server_now: float) -> None:
        """Take the time from an answer that carries it."""
        self._told_at = monotonic()
        self._ahead = server_now - self._told_at * 1000

    def is_old(self) -> bool:
        """Whether the server has not told the time for a minute."""
        return monotonic() >= self._told_at + _CLOCK_KEPT

    async def ask(self) -> None:
        """Ask the server what time it is; those who ask at once wait for one answer."""
        if self._asking is None or self._asking.done():
            # A task of its own: whoever is cancelled here must not leave the others without an answer.
            self._asking = asyncio.create_task(self._ask(), name="ephemera-clock")
            self._asking.add_done_callback(_seen)
        await asyncio.shield(self._asking)

    async def _ask(self) -> None:
        try:
            seconds, microseconds = await self._call("TIME")
        except ServerError:
            self._told_at = monotonic()
            return  # not allowed: this machine's clock must do, until a script tells
        self.tell(int(seconds) * 1000 + int(microseconds) / 1000)


def _seen(asking: asyncio.Task[None]) -> None:
    """Take the error of a question that nobody waits for any more."""
    if not asking.cancelled():
        asking.exception()


class Clocks:
    """Declares the clock of a store: `store[CLOCK]`."""

    def bind(self, store: Store) -> ServerClock:
        """The clock of the store's cache server."""
        return ServerClock(store.client("cache"))


CLOCK = Clocks()
