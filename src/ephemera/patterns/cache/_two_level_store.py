"""The two levels of a cache: entries in this process (L1), entries on the server (L2), and fenced fills.

Each operation is one round trip. A read reserves a local slot before it is sent, so an invalidation that
arrives in between wins. The server refuses a fill whose load was ended since it was claimed (`lua/fill.lua`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from ephemera.errors import ServerError
from ephemera.keyspace import Codec, Store
from ephemera.patterns._server_clock import SERVER_CLOCK
from ephemera.patterns.cache._entry_builder import (
    HEAD_BYTES,
    NUMBER_DIGITS,
    STAMP_LENGTH,
    CacheEntry,
    EntryBuilder,
    EntryKeys,
    TagMarkers,
    early_refresh_time,
    is_numbered,
    is_uncompressed,
    milliseconds,
    new_version,
    parse_stamped_head,
    same_content_version,
)
from ephemera.patterns.cache._local_cache import LocalEntries, LocalEntry
from ephemera.wire import Invalidations, Script

if TYPE_CHECKING:
    from ephemera.patterns.cache import Cache

V = TypeVar("V")

CLAIM = Script.load("ephemera.patterns.cache", "claim")
FILL = Script.load("ephemera.patterns.cache", "fill")
FILL_STAMPED = Script.load("ephemera.patterns.cache", "fill_stamped")
END = Script.load("ephemera.patterns.cache", "end")
RENEW = Script.load("ephemera.patterns.cache", "renew")
DELETE = Script.load("ephemera.patterns.cache", "delete")
EXPIRE = Script.load("ephemera.patterns.cache", "expire")

BACKING_OFF = "-"
"""The "token" of an entry that is not refreshed for a while after a failed load."""

_log = logging.getLogger("ephemera.cache")


class Found(NamedTuple, Generic[V]):
    """A cached value, fresh or stale."""

    value: V | None
    left: float  # milliseconds for which it is still fresh; negative when stale
    cost: float  # milliseconds that its load took
    version: str


class LoadClaim(NamedTuple, Generic[V]):
    """The answer to a claim: the load's holder, its lease, and what is stored."""

    holder: str  # a token; empty when there is no load
    left: float  # seconds until the holder's lease ends
    found: Found[V] | None


class EntryHead(NamedTuple):
    """The number and stamp of a stamped entry, for patterns that build on a cache."""

    number: str
    stamp: str


class StoredEntry(NamedTuple, Generic[V]):
    """An entry as it is stored, for patterns that build on a cache."""

    value: V | None  # None also when it cannot be decoded or was invalidated
    data: bytes  # empty when there is nothing
    is_dead: bool  # missing, or invalidated by a tag


class TwoLevelStore(Generic[V]):
    """The entries of one cache on one store."""

    def __init__(self, declared: Cache[V], store: Store) -> None:
        self._declared = declared
        self.stats = store[declared.keyspace].stats
        self._client = client = store.client("cache")
        self._call, self._run = client.call, client.run
        self._codec = cast("Codec[Any]", declared.keyspace.codec)
        self._decode = self._codec.decode
        self._stamped = declared.storage.stamped
        self._lease = str(round(milliseconds(declared.loading.lease)))
        self._backoff = str(round(milliseconds(declared.loading.backoff)))
        self._early_refresh = declared.loading.early_refresh
        self.clock = store[SERVER_CLOCK]
        self.builder: EntryBuilder[V] = EntryBuilder(declared, self.clock)
        self.tags = (
            None if declared.tags is None else TagMarkers(declared.tag_markers, declared.tag_clock, client)
        )
        local = declared.local
        self.local: LocalEntries[V | None] | None = None if local is None else LocalEntries(local)
        self._max_age = 0.0 if local is None else local.max_age.total_seconds()
        self._tracking_requested = local is None
        self._tracking: asyncio.Task[None] | None = None
        self.is_tracking = False
        """Whether the server announces changes, so that local entries can be trusted."""

    async def ensure_ready(self) -> None:
        """Know the server's time, and have it announce changes if there are local entries."""
        with self.stats.counting_errors:
            await self._ensure_ready()

    async def read(self, key: str) -> Found[V] | None:
        """Return what is stored, fresh or stale, and update the local entry."""
        with self.stats.counting_errors:
            if not self._tracking_requested or self.clock.is_outdated():
                await self._ensure_ready()
            if self.local is None:
                return await self._decoded(await self._call("GET", key))
            entry = self.local.get(key)
            slot = self.local.reserve(key)
            try:
                if entry is not None and entry.head and not entry.tags and not self.is_tracking:
                    head = await self._call("GETRANGE", key, 0, HEAD_BYTES - 1)
                    if head == entry.head:
                        left = (entry.fresh_until - monotonic()) * 1000
                        return Found(entry.read(), left, entry.cost, entry.version)
                data = await self._call("GET", key)
                return await self._decoded(data, key, slot)
            finally:
                self.local.release(key, slot)

    async def read_head(self, key: str) -> EntryHead | None:
        """Return the number and stamp of a fresh entry, without its payload; None when it must be read."""
        with self.stats.counting_errors:
            if not self._tracking_requested or self.clock.is_outdated():
                await self._ensure_ready()
            found = parse_stamped_head(await self._call("GETRANGE", key, 0, HEAD_BYTES - 1))
            if found is None or found[1] <= self.clock.now() or not is_numbered(found[0]):
                return None
            return EntryHead(found[0][:NUMBER_DIGITS], found[0][NUMBER_DIGITS : NUMBER_DIGITS + STAMP_LENGTH])

    async def read_stored(self, key: str, tags: Sequence[str] = ()) -> StoredEntry[V]:
        """Return an entry as it is stored: one round trip if it has no other tags than these."""
        markers = self.tags
        data, *times = await asyncio.gather(
            self._call("GET", key),
            *(self._call("GET", markers.key(tag)) for tag in tags if markers is not None),
        )
        if data is None:
            return StoredEntry(None, b"", is_dead=True)
        entry: CacheEntry | None = self._decode(data)
        if entry is None or entry.value is None:
            return StoredEntry(None, data, is_dead=False)
        if markers is not None:
            others = [tag for tag in entry.tags if tag not in tags]
            if markers.is_later(times, entry.began) or (
                others and await markers.any_invalidated(others, entry.began)
            ):
                return StoredEntry(None, data, is_dead=True)
        return StoredEntry(entry.value, data, is_dead=False)

    async def claim(
        self, key: str, keys: EntryKeys, token: str, *, replace: bool, despite_backoff: bool = False
    ) -> LoadClaim[V]:
        """Ask to load; `replace`: even where there is an entry, `despite_backoff`: even after a failure."""
        with self.stats.counting_errors:
            arguments = (token, self._lease, "2" if despite_backoff else "1" if replace else "")
            slot = None if self.local is None else self.local.reserve(key)
            try:
                holder, left, data, now = await self._run(CLAIM, keys[:2], arguments)
                self.clock.set(now)
                return LoadClaim(
                    holder.decode("ascii", "replace"), left / 1000, await self._decoded(data, key, slot)
                )
            finally:
                if self.local is not None:
                    self.local.release(key, slot)

    async def fill(
        self, keys: EntryKeys, token: str, value: V | None, *, cost: float, tags: list[str], began: int
    ) -> bool:
        """Store a value, or remove it if it is not to be cached; False when nothing was stored."""
        with self.stats.counting_errors:
            fill = self.builder.prepare(keys, token, value, cost=cost, tags=tags, began=began)
            self.stats.bytes_written += len(fill.data)
            accepted = await self._run(FILL_STAMPED if self._stamped else FILL, keys[:2], fill.arguments)
            if accepted and self._stamped and value is not None and accepted[0]:
                stamped: Any = value
                stamped.number = accepted[0].decode()
            return bool(accepted and fill.data)

    def end(self, keys: EntryKeys, token: str, *, failed: bool = False) -> Awaitable[Any]:
        """End a load without a value; after a failure the entry is not refreshed for a while."""
        return self._run(END, keys[:2], (token, self._backoff if failed else "0", keys.channel))

    def renew(self, keys: EntryKeys, token: str) -> Awaitable[Any]:
        """Renew the lease of a load."""
        return self._run(RENEW, (keys.load,), (token, self._lease))

    async def delete(self, keys: EntryKeys) -> bool:
        """Remove the entry and end its load."""
        with self.stats.counting_errors:
            removed = await self._run(DELETE, keys[:2], (keys.channel,))
            return bool(removed)

    async def expire(self, keys: EntryKeys) -> bool:
        """Make the entry stale and end its load; False when there is none."""
        with self.stats.counting_errors:
            done = 0
            if self.clock.is_outdated():
                await self.clock.sync()
            while not done:
                data = await self._call("GET", keys.entry)
                entry = None if data is None else self._decode(data)
                if entry is not None:
                    stamped = self._stamped and entry.value is not None
                    entry.version = same_content_version(entry.version) if stamped else new_version()
                    entry.fresh_until = min(entry.fresh_until, round(self.clock.now()) - 1)
                stale = b"" if entry is None else self._codec.encode(entry)
                done = await self._run(EXPIRE, keys[:2], (data or b"", stale))
            return done == 1

    async def tag_time(self) -> int:
        """Return the tag clock's time, for a load that begins; 0 without tags."""
        with self.stats.counting_errors:
            return 0 if self.tags is None else await self.tags.now()

    async def invalidate_tag(self, tags: TagMarkers, tag: str) -> None:
        """Invalidate every entry with this tag."""
        with self.stats.counting_errors:
            if self.local is not None:
                self.local.drop_tagged(tag)
            await tags.invalidate(tag)
            if self.local is not None:  # what was read in between
                self.local.drop_tagged(tag)

    def put_offline(self, key: str, value: V | None, tags: list[str], began: float) -> None:
        """Keep a value that was loaded while the server is unreachable; it is not trusted afterwards.

        Its age counts from the beginning of the load, by `monotonic`.
        """
        fresh = self.builder.fresh_for(value) / 1000
        if self.local is None or fresh <= 0:
            return
        fresh_until = monotonic() + fresh
        data = self.builder.encode(value, tags)
        copy = self._copier(data)
        self.local.put(
            key,
            LocalEntry(
                value if copy is None else None,
                copy=copy,
                size=len(data),
                fresh_until=fresh_until,
                stale_until=fresh_until + self.builder.stale_for(value) / 1000,
                expires_at=began + self._max_age,
                tags=tags,
            ),
        )

    async def _decoded(self, data: bytes | None, key: str = "", slot: object = None) -> Found[V] | None:
        entry: CacheEntry | None = None if data is None else self._decode(data)
        self.stats.bytes_read += len(data or b"")
        if self._stamped and entry is not None and entry.value is not None:
            if is_numbered(entry.version):
                entry.value.number = entry.version[:NUMBER_DIGITS]
            else:
                entry = None  # not written by us
        tags = self.tags
        if entry and entry.tags and tags is not None and await tags.any_invalidated(entry.tags, entry.began):
            entry = None
        left = 0.0 if entry is None else entry.fresh_until - self.clock.now()
        if slot is not None and self.local is not None and self.local.release(key, slot):
            if entry is None:
                self.local.drop(key)
            else:
                self.local.put(key, self._local_entry(data or b"", entry, left / 1000))
        return None if entry is None else Found(entry.value, left, entry.cost, entry.version)

    def _local_entry(self, data: bytes, entry: CacheEntry, left: float) -> LocalEntry[V | None]:
        now = monotonic()
        # It stops being trusted when this process would refresh it early.
        early = early_refresh_time(entry.cost / 1000, self._early_refresh)
        copy = self._copier(data)
        return LocalEntry(
            entry.value if copy is None else None,
            copy=copy,
            size=len(data),
            fresh_until=now + left,
            stale_until=now + left + self.builder.stale_for(entry.value) / 1000,
            expires_at=now + self._max_age,
            trusted_until=min(now + left - early, now + self._max_age) if self.is_tracking else 0.0,
            cost=entry.cost,
            version=entry.version,
            tags=entry.tags,
            head=b"" if self.is_tracking or not is_uncompressed(data) else data[:HEAD_BYTES],
        )

    def copied(self, value: V | None) -> V | None:
        """Return a copy of a value that several callers of one load get."""
        if value is None or not self._declared.copies_values:
            return value
        copy = self._copier(self.builder.encode(value, []))
        return value if copy is None else copy()

    def _copier(self, data: bytes) -> Callable[[], V | None] | None:
        """What makes a caller's copy of a local entry: decoding is faster than `deepcopy`."""
        if not self._declared.copies_values:
            return None
        decode: Callable[[bytes], Any] = self._decode
        return lambda: decode(data).value

    async def _ensure_ready(self) -> None:
        if self.clock.is_outdated():
            await self.clock.sync()
        if self._tracking_requested:
            return
        self._tracking_requested = True
        prefixes = [self._declared.keyspace.template.literals[0]]
        if self.tags is not None:
            prefixes.append(self.tags.prefix)
        # A task of its own: cancelling one caller must not leave the others without tracking.
        self._tracking = asyncio.create_task(self._enable_tracking(prefixes))
        await asyncio.shield(self._tracking)

    async def _enable_tracking(self, prefixes: list[str]) -> None:
        self.is_tracking = await self._track(prefixes)

    async def _track(self, prefixes: list[str]) -> bool:
        """Have changes of keys with these prefixes announced; False when not permitted."""
        try:
            await self._client.track(self._on_change, prefixes)
        except ServerError as refusal:
            if "BCAST" not in refusal.message:
                _log.info("%s: versions are compared instead of tracking: %s", prefixes[0], refusal.message)
                return False
            await self._client.track(self._on_change)  # on already: what is read here is announced
        return True

    def _on_change(self, keys: Invalidations) -> None:
        local = self.local
        if local is None:
            return
        if keys is None:
            local.distrust()
            return
        for key in keys:
            text = key.decode(errors="replace")
            tag = self.tags.tag_of(text) if self.tags is not None else None
            if tag is None:
                local.drop(text)
            else:
                local.drop_tagged(tag)
