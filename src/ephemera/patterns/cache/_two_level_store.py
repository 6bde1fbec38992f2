"""The two levels of a cache: copies in this process, entries on the server, and the fence of a fill.

Each operation is one trip. A read reserves the place of its copy before it is sent, so that a change told in
between wins; a fill is refused by the server when its load was ended since the claim (`cache_fill.lua`).
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import secrets
from collections.abc import Awaitable
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from ephemera.errors import ServerError
from ephemera.keyspace import Codec, Store
from ephemera.patterns.cache._entries import (
    CLOCK,
    HEAD,
    NUMBER,
    STAMP,
    Entry,
    same_content,
    stamped_head,
    uncompressed,
)
from ephemera.patterns.cache._entry_builder import Making, milliseconds
from ephemera.patterns.cache._tags import Tags
from ephemera.patterns.local_cache import Copies, Copy
from ephemera.wire import Invalidations, Script

if TYPE_CHECKING:
    from ephemera.patterns.cache._declaration import Cache, Place

V = TypeVar("V")

CLAIM = Script.load("ephemera.patterns.cache", "claim")
FILL = Script.load("ephemera.patterns.cache", "fill")
FILL_STAMPED = Script.load("ephemera.patterns.cache", "fill_stamped")
END = Script.load("ephemera.patterns.cache", "end")
RENEW = Script.load("ephemera.patterns.cache", "renew")
DELETE = Script.load("ephemera.patterns.cache", "delete")
EXPIRE = Script.load("ephemera.patterns.cache", "expire")


_COVERING = re.compile(r"overlaps with an existing prefix '([^']*)'")


RESTING = "-"
"""Who "loads" an entry that nobody shall refresh for a while after a failure."""


class Found(NamedTuple, Generic[V]):
    """A cached value, fresh or stale."""

    value: V | None
    left: float  # milliseconds that it is fresh yet; negative when stale
    cost: float  # milliseconds that its load took
    version: str


class Claim(NamedTuple, Generic[V]):
    """What came of asking to load: who loads (nobody: empty), for how long at least, and what is stored."""

    holder: str
    left: float  # seconds
    found: Found[V] | None


class Head(NamedTuple):
    """What the first bytes of an entry say of its value."""

    number: str
    stamp: str


class Levels(Generic[V]):
    """The entries of one cache in one store."""

    def __init__(self, declared: Cache[V], store: Store) -> None:
        self._declared = declared
        self._stats = store[declared.space].stats
        self._client = client = store.client("cache")
        self._call, self._run = client.call, client.run
        self._codec = cast("Codec[Any]", declared.space.codec)
        self._decode = self._codec.decode
        self._stamped = declared.stamped
        self._lease = str(round(milliseconds(declared.lease)))
        self._backoff = str(round(milliseconds(declared.backoff)))
        self.clock = store[CLOCK]
        self.made: Making[V] = Making(declared, self.clock)
        self.tags = None if declared.tags is None else Tags(declared.markers, declared.clock, client)
        self.copies: Copies[V | None] | None = None if declared.local is None else Copies(declared.local)
        self._max_age = declared.local.max_age.total_seconds() if declared.local else 0.0
        self._asked_to_be_told = self.copies is None
        self._telling: asyncio.Task[None] | None = None
        self.told = False
        """Whether the server tells of changes, so that copies can be trusted."""

    async def ready(self) -> None:
        """Know the server's time, and be told of changes if there are copies to keep."""
        if self.clock.is_old():
            await self.clock.ask()
        if self._asked_to_be_told:
            return
        self._asked_to_be_told = True
        prefixes = [self._declared.space.template.literals[0]]
        if self.tags is not None:
            prefixes.append(self.tags.marker("-")[:-1])
        # A task of its own: whoever is cancelled here must not leave the others untold.
        self._telling = asyncio.create_task(self._be_told(prefixes))
        await asyncio.shield(self._telling)

    async def _be_told(self, prefixes: list[str]) -> None:
        self.told = await self._track(prefixes)

    async def _track(self, prefixes: list[str]) -> bool:
        """Be told of changes of keys that begin so; False: not allowed, or another prefix is in the way."""
        try:
            await self._client.track(self._on_change, prefixes)
        except ServerError as refusal:
            covering = _COVERING.search(refusal.message)
            if covering is None or not all(prefix.startswith(covering[1]) for prefix in prefixes):
                return False  # versions alone, then
            return prefixes != [covering[1]] and await self._track([covering[1]])  # heard for another already
        return True

    async def look(self, key: str) -> Found[V] | None:
        """What is stored, fresh or stale; the copy is renewed by it."""
        if not self._asked_to_be_told or self.clock.is_old():
            await self.ready()
        if self.copies is None:
            return await self._read(await self._call("GET", key))
        copy = self.copies.get(key)
        place = self.copies.reserve(key)
        try:
            if copy is not None and copy.head and not copy.tags:
                head = await self._call("GETRANGE", key, 0, HEAD - 1)
                if head == copy.head:
                    return Found(copy.value, (copy.fresh_until - monotonic()) * 1000, copy.cost, copy.version)
            data = await self._call("GET", key)
            return await self._read(data, key, place)
        finally:
            self.copies.release(key, place)

    async def head(self, key: str) -> Head | None:
        """The number and stamp of an entry that is fresh, without its payload; None: look."""
        if not self._asked_to_be_told or self.clock.is_old():
            await self.ready()
        found = stamped_head(await self._call("GETRANGE", key, 0, HEAD - 1))
        if found is None or found[1] <= self.clock.now():
            return None
        return Head(found[0][:NUMBER], found[0][NUMBER : NUMBER + STAMP])

    async def claim(
        self, key: str, place: Place, token: str, *, replace: bool, at_once: bool = False
    ) -> Claim[V]:
        """Ask to load; with `replace` also where there is an entry, `at_once` also after a failure."""
        arguments = (token, self._lease, "2" if at_once else "1" if replace else "")
        reserved = None if self.copies is None else self.copies.reserve(key)
        try:
            holder, left, data, now = await self._run(CLAIM, place.keys, arguments)
            self.clock.tell(now)
            return Claim(holder.decode(), left / 1000, await self._read(data, key, reserved))
        finally:
            if self.copies is not None:
                self.copies.release(key, reserved)

    async def fill(
        self, place: Place, token: str, value: V | None, cost: float, tags: list[str], began: int
    ) -> bool:
        """Store a value, or remove it if it is not to be cached; False when it is not stored."""
        fill = self.made.filling(place, token, value, cost, tags, began)
        self._stats.bytes_written += len(fill.data)
        stood = await self._run(FILL_STAMPED if self._stamped else FILL, place.keys, fill.arguments)
        if stood and self._stamped:
            self.numbered(value, stood[0])
        return bool(stood and fill.data)

    def numbered(self, value: Any, number: bytes) -> None:
        """Tell a value with a stamp the number that the server gave it."""
        if value is not None and number:
            value.number = number.decode()

    def end(self, place: Place, token: str, *, failed: bool = False) -> Awaitable[Any]:
        """End a load without a value; after a failure nobody replaces the entry for a while."""
        return self._run(END, place.keys, (token, self._backoff if failed else "0", place.channel))

    def renew(self, place: Place, token: str) -> Awaitable[Any]:
        """Start the lease of a load anew."""
        return self._run(RENEW, place.keys[1:], (token, self._lease))

    async def delete(self, place: Place) -> bool:
        """Remove the entry and end its load."""
        removed = await self._run(DELETE, place.keys, (place.channel,))
        return bool(removed)

    async def expire(self, place: Place) -> bool:
        """Make the entry a stale one and end its load; False when there is none."""
        done = 0
        if self.clock.is_old():
            await self.clock.ask()
        while not done:
            data = await self._call("GET", place.keys[0])
            entry = None if data is None else self._decode(data)
            if entry is not None:
                stamped = self._stamped and entry.value is not None
                entry.version = same_content(entry.version) if stamped else secrets.token_urlsafe(9)
                entry.fresh_until = min(entry.fresh_until, round(self.clock.now()) - 1)
            stale = b"" if entry is None else self._codec.encode(entry)
            done = await self._run(EXPIRE, place.keys, (data or b"", stale))
        return done == 1

    def keep_apart(self, key: str, value: V | None, tags: list[str], began: float) -> None:
        """Keep a copy of what was loaded while the server is away; it is not trusted once it is back.

        Its age counts from the load's beginning, by `monotonic`.
        """
        copies, life = self.copies, self.made.fresh_for(value) / 1000
        if copies is None or life <= 0:
            return
        size = len(self._codec.encode(self._declared.entry("", 0, 0, tags, 0, value)))
        now = monotonic()
        fresh_until = now + life
        copies.keep(
            key,
            Copy(
                value,
                size=size,
                fresh_until=fresh_until,
                stale_until=fresh_until + self.made.stale_for(value) / 1000,
                old_at=began + self._max_age,
                tags=tags,
            ),
        )

    async def _read(self, data: bytes | None, key: str = "", reserved: object = None) -> Found[V] | None:
        entry: Entry | None = None if data is None else self._decode(data)
        self._stats.bytes_read += len(data or b"")
        if self._stamped and entry is not None and entry.value is not None:
            entry.value.number = entry.version[:NUMBER]
        tags = self.tags
        if entry and entry.tags and tags is not None and await tags.over(entry.tags, entry.began):
            entry = None
        left = 0.0 if entry is None else entry.fresh_until - self.clock.now()
        if reserved is not None and self.copies is not None and self.copies.release(key, reserved):
            if entry is None:
                self.copies.drop(key)
            else:
                self._keep(self.copies, key, data or b"", entry, left / 1000)
        return None if entry is None else Found(entry.value, left, entry.cost, entry.version)

    def _keep(self, copies: Copies[V | None], key: str, data: bytes, entry: Entry, left: float) -> None:
        now = monotonic()
        # The copy stops being trusted when this process would refresh early (see `due_early`).
        early = -entry.cost / 1000 * self._declared.eagerness * math.log(1.0 - random.random())
        copies.keep(
            key,
            Copy(
                entry.value,
                size=len(data),
                fresh_until=now + left,
                stale_until=now + left + self.made.stale_for(entry.value) / 1000,
                old_at=now + self._max_age,
                trusted_until=min(now + left - early, now + self._max_age) if self.told else 0.0,
                cost=entry.cost,
                version=entry.version,
                tags=entry.tags,
                head=b"" if self.told or not uncompressed(data) else data[:HEAD],
            ),
        )

    def _on_change(self, keys: Invalidations) -> None:
        copies = self.copies
        if copies is None:
            return
        if keys is None:
            copies.distrust()
            return
        for key in keys:
            text = key.decode(errors="replace")
            tag = self.tags.tag_of(text) if self.tags is not None else None
            if tag is None:
                copies.drop(text)
            else:
                copies.drop_tagged(tag)
