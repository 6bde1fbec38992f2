"""Cache entries: their layout, how a value becomes one, and the tags that invalidate many at once.

An entry is written as an array, `["1",["4f9c2a…",1763194000123,42,[],0,{"name":"ann"}]]`, so its
version is among its first bytes: reading `HEAD_BYTES` of it shows whether an entry has changed, without its
payload. Freshness is a time of the server's clock, on which readers on all machines agree.

*Stamped entries.* Where values have a `stamp` (16 characters that identify their content), a version is a
number given by the server, then the stamp, then a random suffix. The number grows whenever the content
changes.

*Tags.* A tag's marker holds the time at which the tag was last invalidated; an entry holds its tags and the
time before its load. It is invalid when one of its markers is later. Times come from one counter for all tags
of a cache, in one cluster slot, which never repeats and never runs backwards (`lua/tick.lua`), so machines'
clocks do not matter. Markers outlive every entry they could invalidate. An evicted marker is the one way in
which an invalidated entry can be served, so give tagged caches on an evicting server a `fresh` that you can
accept.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import (
    Codec,
    CodecName,
    CounterAccessor,
    Keyspace,
    check_durations,
    storable,
    type_name,
)
from ephemera.patterns._server_clock import ServerClock
from ephemera.wire import Client, Script

if TYPE_CHECKING:
    from ephemera.patterns.cache import Cache

V = TypeVar("V")

TICK = Script.load("ephemera.patterns.cache", "tick")

HEAD_BYTES = 64
"""Bytes of a stored entry that contain its version."""

NUMBER_DIGITS = 16
"""Digits of a version's number: microseconds since 1970, until 2286."""

STAMP_LENGTH = 16
"""Characters of a stamp."""

TAG_SLOT = "tags"
"""The hash tag that puts a cache's tag markers and their clock into one cluster slot."""

_NO_TIME = timedelta(0)
_NO_NUMBER = "8" + "0" * (NUMBER_DIGITS - 1)  # the year 2223: above it only another program's
_TIME_DIGITS = 16  # of a marker; Redis may hold anything, and `int` refuses thousands of digits
_EARLIEST_REFRESH = 12  # load costs before the end: further ahead, the chance of a refresh is 1 in 100,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How long a value is fresh, and how long it is then served as stale while it is refreshed."""

    fresh: timedelta
    stale: timedelta = _NO_TIME

    def __post_init__(self) -> None:
        try:  # made for every page, so the full check is left to the error path
            is_valid = self.fresh > _NO_TIME and self.stale >= _NO_TIME
        except TypeError:
            check_durations("Freshness", fresh=self.fresh, stale=self.stale)
            raise
        if not is_valid:
            raise InvalidDeclaration(
                "Freshness", f"{self} is not a lifetime", "give a positive fresh, and stale >= 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The option `storage=Storage(...)` of a cache: how entries are written."""

    codec: CodecName | None = None
    """`"json"` or `"msgpack"`; by default the one that fits the value's type."""
    compress_over: int | None = None
    """Compress entries of more than this many bytes; by default none."""
    hash_tag: str | None = None
    """The key field that selects the cluster slot; by default the last one."""
    stamped: bool = False
    """For values with a `stamp` of 16 characters and a `number`: the server numbers their versions."""


class EntryKeys(NamedTuple):
    """The keys of one entry, as scripts take them; all in one cluster slot."""

    entry: str
    load: str
    channel: str


class CacheEntry(Protocol):
    """A cached value; `value` is None for what is known not to exist."""

    version: str
    fresh_until: int  # milliseconds since 1970 by the server's clock
    cost: int  # milliseconds that the load took
    tags: list[str]
    began: int  # the tag clock's time before the load; 0 without tags
    value: Any


class PreparedFill(NamedTuple):
    """An entry as the fill scripts take it."""

    data: bytes  # empty: do not cache
    arguments: tuple[Any, ...]


def entry_type(value_type: Any) -> Any:
    """Return the Struct of a cache's entries."""
    # Bounded, since Redis may hold anything: larger ones could not be used in calculations.
    number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    fields = [
        ("version", str), ("fresh_until", number), ("cost", number), ("tags", list[str]), ("began", number),
        ("value", storable(value_type) | None),
    ]  # fmt: skip
    # The catalogue shows the declared type, not the entry around it.
    return msgspec.defstruct("Entry", fields, array_like=True, gc=False, namespace={"__holds__": value_type})


def new_version() -> str:
    """Return a version for a value without a stamp."""
    return secrets.token_urlsafe(9)


def stamped_version(stamp: str, number: str = "0" * NUMBER_DIGITS) -> str:
    """Return a version for a value with a stamp; the server replaces the zeros with its number."""
    return number + stamp + secrets.token_urlsafe(6)


def same_content_version(version: str) -> str:
    """Return another version with the same number and stamp."""
    return version[: NUMBER_DIGITS + STAMP_LENGTH] + secrets.token_urlsafe(6)


def parse_stamped_head(head: bytes) -> tuple[str, int] | None:
    """Return version and freshness from the first bytes of a MessagePack entry, if its value has a stamp."""
    at = 2 + (head[1] & 0x1F) if head[:1] == b"\x92" and len(head) == HEAD_BYTES else 0  # after the layout
    if not at or head[at : at + 3] != b"\x96\xd9\x28" or head[at + 43 : at + 44] != b"\xcf":
        return None
    version = head[at + 3 : at + 43].decode("ascii", "replace")
    return version, int.from_bytes(head[at + 44 : at + 52], "big")


def is_numbered(version: str) -> bool:
    """Whether a version begins with a number that the server gave; another program may have written any."""
    number = version[:NUMBER_DIGITS]
    return len(number) == NUMBER_DIGITS and version.isascii() and number.isdigit() and number < _NO_NUMBER


def is_uncompressed(data: bytes) -> bool:
    """Whether an entry's first bytes are readable: an array of JSON or of MessagePack."""
    return data[:1] in (b"[", b"\x92")


def is_due_early(left: float, cost: float, scale: float) -> bool:
    """Whether this reader should refresh although `left` milliseconds remain (XFetch, Vattani et al. 2015).

    The more expensive the load and the nearer the end, the likelier; so one of many readers refreshes in
    time.
    """
    reach = cost * scale
    if left > reach * _EARLIEST_REFRESH:
        return False
    return left < early_refresh_time(cost, scale)


def early_refresh_time(cost: float, scale: float) -> float:
    """Draw how long before the end a refresh is due, in the unit of `cost`."""
    return -cost * scale * math.log(1.0 - random.random())


def milliseconds(duration: timedelta) -> float:
    """Return a duration in the server's unit."""
    return duration.total_seconds() * 1000


class EntryBuilder(Generic[V]):
    """Builds the entries of one cache on one store."""

    def __init__(self, declared: Cache[V], clock: ServerClock) -> None:
        self._declared = declared
        self._clock = clock
        self._encode = cast("Codec[Any]", declared.keyspace.codec).encode
        self._freshness_of = declared.freshness_of
        self._fresh, self._stale = milliseconds(declared.fresh), milliseconds(declared.stale)
        self._missing = milliseconds(declared.missing)
        self._jitter = declared.loading.jitter
        self._stamped = declared.storage.stamped

    def prepare(
        self, keys: EntryKeys, token: str, value: V | None, *, cost: float = 0, tags: Sequence[str] = (),
        began: int = 0,
    ) -> PreparedFill:  # fmt: skip
        """Return what a fill script takes for one entry."""
        fresh, data, number_at = self.fresh_for(value), b"", -1
        if fresh > 0:
            stamp: str | None = getattr(value, "stamp", None) if self._stamped else None
            version = new_version() if stamp is None else stamped_version(stamp)
            fresh_until = round(self._clock.now() + fresh)
            entry = self._declared.entry_type(version, fresh_until, round(cost), list(tags), began, value)
            data = self._encoded(entry)
            number_at = -1 if stamp is None else data.index(version.encode())
        lifetime = round(fresh + self.stale_for(value))
        stamped = (number_at,) if self._stamped else ()
        return PreparedFill(data, (token, data, lifetime, keys.channel, *stamped))

    def encode(self, value: V | None, tags: list[str]) -> bytes:
        """Return an entry that is not stored: for its size, or to be decoded as a copy."""
        return self._encode(self._declared.entry_type("", 0, 0, tags, 0, value))

    def fresh_for(self, value: V | None) -> float:
        """Return how many milliseconds a value is fresh, less some jitter; 0 if it is not to be cached."""
        fresh = self._missing
        if value is not None:
            fresh = self._fresh
            if self._freshness_of is not None:
                freshness = self._freshness_of(value)
                fresh = min(fresh, milliseconds(freshness.fresh)) if freshness is not None else 0.0
        return fresh * (1 - self._jitter * random.random())

    def stale_for(self, value: V | None) -> float:
        """Return how many milliseconds a value is kept after it was fresh; nothing is not kept at all."""
        if value is None:
            return 0.0
        if self._freshness_of is None:
            return self._stale
        freshness = self._freshness_of(value)
        return 0.0 if freshness is None else min(self._stale, milliseconds(freshness.stale))

    def _encoded(self, entry: CacheEntry) -> bytes:
        try:
            return self._encode(entry)
        except InvalidValue as refused:
            tags: list[object] = list(entry.tags)
            wrong = [tag for tag in tags if not isinstance(tag, str)]
            expected, given = ("tags of str", wrong[0]) if wrong else (refused.expected, entry.value)
            raise InvalidValue(refused.pattern, expected, type_name(type(given))) from None


class TagMarkers:
    """The tags of one cache on one store."""

    def __init__(
        self, markers: Keyspace[CounterAccessor], clock: Keyspace[CounterAccessor], client: Client
    ) -> None:
        self._call, self._run = client.call, client.run
        self._markers = markers
        self._clock = clock.key(slot=TAG_SLOT)
        self._lifetime = str(markers.lifetime.milliseconds)

    @property
    def prefix(self) -> str:
        """What the keys of all markers begin with."""
        return self.key("-")[:-1]

    def key(self, tag: str) -> str:
        """Return the key of a tag's marker."""
        return self._markers.key(slot=TAG_SLOT, tag=tag)

    async def now(self) -> int:
        """Return the tag clock's time, for a load that begins."""
        now: int = await self._run(TICK, (self._clock,), (self._lifetime,))
        return now

    async def invalidate(self, tag: str) -> None:
        """Invalidate every entry that has the tag and whose load began before now."""
        await self._run(TICK, (self._clock, self.key(tag)), (self._lifetime,))

    async def any_invalidated(self, tags: Sequence[str], since: int) -> bool:
        """Whether one of the tags was invalidated since that time: one round trip."""
        markers: list[Any] = await self._call("MGET", *map(self.key, tags))
        return self.is_later(markers, since)

    @staticmethod
    def is_later(markers: Sequence[bytes | None], since: int) -> bool:
        """Whether one of these markers is later; a marker that holds no time invalidates what it marks."""
        return any(
            not marker.isdigit() or len(marker) > _TIME_DIGITS or int(marker) > since
            for marker in markers
            if marker is not None
        )

    def tag_of(self, key: str) -> str | None:
        """Return the tag whose marker a key is."""
        fields = self._markers.template.parse_text(key)
        return fields["tag"] if fields else None
