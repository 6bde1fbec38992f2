"""The cache of one store: which of local entry, stored entry, stale entry and load answers a caller."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, TypeVar, overload

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Stats, Store, unnamed_field
from ephemera.patterns._load_slots import join_load
from ephemera.patterns.cache._entry_builder import EntryKeys, is_due_early
from ephemera.patterns.cache._load_coordinator import LoadCoordinator, LoadRequest
from ephemera.patterns.cache._local_cache import LocalEntry
from ephemera.patterns.cache._two_level_store import (
    FILL_STAMPED,
    RENEW,
    EntryHead,
    Found,
    StoredEntry,
    TwoLevelStore,
)
from ephemera.wire import Script, key_slot

if TYPE_CHECKING:
    from ephemera.patterns.cache import Cache

V = TypeVar("V")

CLAIM_GROUP = Script.load("ephemera.patterns.cache", "claim_group")

_LEASE = 2000  # milliseconds, renewed while the loads run


class CacheEngine(Generic[V]):
    """What a pattern built on a cache may use besides its methods: `cache_engine(store[PAGES])`."""

    def __init__(self, declared: Cache[V], store: Store) -> None:
        self.declared = declared
        self.entries: TwoLevelStore[V] = TwoLevelStore(declared, store)
        self.loads: LoadCoordinator[V] = LoadCoordinator(declared, store, self.entries)
        self.stats = self.entries.stats
        local = self.entries.local
        self.local_entry: Callable[[str], LocalEntry[V | None] | None] = (
            _no_local_entry if local is None else local.get
        )
        """Return the local entry of a key, trusted or not."""
        self._early_refresh = declared.loading.early_refresh
        self._soft_timeout = declared.loading.soft_timeout.total_seconds()
        self._bounds_age_offline = declared.bounds_age_offline

    def peek(self, key: str) -> LocalEntry[V | None] | None:
        """Return the local entry of a key if it may be used without asking the server."""
        entry = self.local_entry(key)
        return entry if entry is not None and monotonic() < entry.trusted_until else None

    def drop_local(self, key: str) -> None:
        """Drop the local entry, and make later callers start a load of their own."""
        if self.entries.local is not None:
            self.entries.local.drop(key)
        self.loads.forget(key)

    def distrust_local(self) -> None:
        """Use no local entry before the server has confirmed it."""
        if self.entries.local is not None:
            self.entries.local.distrust()

    async def ensure_ready(self) -> None:
        """Know the server's time, and have it announce changes."""
        await self.entries.ensure_ready()

    async def read_head(self, key: str) -> EntryHead | None:
        """Return the number and stamp of a fresh stamped value, without its payload; None: read it."""
        return await self.entries.read_head(key)

    async def read_stored(self, key: str, tags: Sequence[str] = ()) -> StoredEntry[V]:
        """Return an entry as it is stored: one round trip if it has no other tags than these."""
        return await self.entries.read_stored(key, tags)

    async def refresh(
        self,
        load: Callable[..., Awaitable[V | None]],
        is_current: Callable[[V], bool],
        /,
        **fields: FieldValue,
    ) -> bool:
        """Load the value unless it is fresh and current, and return whether it was loaded."""
        request: LoadRequest[V] = LoadRequest(self.declared.keyspace.template.render(fields), load, fields)
        self.loads.arrivals = arrived = self.loads.arrivals + 1
        found = await self.entries.read(request.key)
        if found is None:
            await self.loads.fetch(request, arrived)
            return True
        if found.left > 0 and (found.value is None or is_current(found.value)):
            return False
        task = self.loads.refresh(request, found.version)
        if task is None:
            return False  # another load is under way, or one has just failed
        await join_load(task)
        return True

    async def _answer(self, request: LoadRequest[V]) -> V | None:
        """Return the value when no trusted local entry has it: stored, stale or loaded."""
        loads = self.loads
        loads.arrivals = arrived = loads.arrivals + 1
        if loads.is_loading(request.key):
            self.stats.misses += 1
            return await loads.fetch(request, arrived)
        try:
            found = self._known_locally(request.key) or await self.entries.read(request.key)
        except REDIS_ERRORS:
            return await self._answer_offline(request, arrived)
        if found is None:
            self.stats.misses += 1
            return await loads.fetch(request, arrived)
        self.stats.hits += 1
        if found.left <= 0:
            return await self._answer_stale(request, found)
        if self._early_refresh and is_due_early(found.left, found.cost, self._early_refresh):
            loads.refresh(request, found.version)
        return found.value

    def _known_locally(self, key: str) -> Found[V] | None:
        """Return what a local entry says that is still the stored one, although it is stale or nearly so."""
        entry, now = self.local_entry(key), monotonic()
        if entry is None or not entry.trusted_until or now >= min(entry.expires_at, entry.stale_until):
            return None
        return Found(entry.read(), (entry.fresh_until - now) * 1000, entry.cost, entry.version)

    async def _answer_stale(self, request: LoadRequest[V], found: Found[V]) -> V | None:
        """Return the refreshed value if it arrives in time, otherwise the stale one."""
        task = self.loads.refresh(request, found.version)
        if task is not None and self._soft_timeout:
            await asyncio.wait((task,), timeout=self._soft_timeout)
            if task.done() and not task.cancelled() and task.exception() is None:
                return self.entries.copied(task.result())
        return found.value

    async def _answer_offline(self, request: LoadRequest[V], arrived: int) -> V | None:
        """Return what is available without the server: a local entry, fresh or stale, or a load."""
        entry, now = self.local_entry(request.key), monotonic()
        if entry is not None:
            usable_until = entry.stale_until
            if self._bounds_age_offline:
                usable_until = min(usable_until, entry.expires_at)
            if now < usable_until:
                self.stats.hits += 1
                if now >= min(entry.fresh_until, entry.expires_at) and now >= entry.retry_at:
                    self.loads.refresh_offline(request)
                return entry.read()
        self.stats.misses += 1
        return await self.loads.fetch_offline(request, arrived)


class BoundCache(Generic[V]):
    """The cache of one store: `store[PROFILE]`."""

    def __init__(self, declared: Cache[V], store: Store) -> None:
        self.declared = declared
        self.stats: Stats = store[declared.keyspace].stats
        store[declared.load_tokens]
        store[declared.load_channel]  # both refuse a store without them
        self._engine: CacheEngine[V] = CacheEngine(declared, store)
        self._render = declared.keyspace.template.render
        self._entries, self._local_entry = self._engine.entries, self._engine.local_entry

    @overload
    async def get_or_load(self, load: Callable[..., Awaitable[V]], /, **fields: FieldValue) -> V: ...

    @overload
    async def get_or_load(
        self, load: Callable[..., Awaitable[V | None]], /, **fields: FieldValue
    ) -> V | None: ...

    async def get_or_load(
        self, load: Callable[..., Awaitable[V | None]], /, *positional: Never, **fields: FieldValue
    ) -> V | None:
        """Return the cached value, fresh or stale, or else `await load(**fields)`, which may be None."""
        if positional:
            raise unnamed_field(self.declared.keyspace.template, "get_or_load")
        key = self._render(fields)
        entry = self._local_entry(key)
        if entry is not None and monotonic() < entry.trusted_until:
            self.stats.hits += 1
            return entry.value if entry.copy is None else entry.copy()
        return await self._engine._answer(LoadRequest(key, load, fields))

    async def get(self, /, *positional: Never, **fields: FieldValue) -> V | None:
        """Return the cached value if it is fresh, otherwise None; nothing is loaded."""
        if positional:
            raise unnamed_field(self.declared.keyspace.template, "get")
        key = self._render(fields)
        entry = self._local_entry(key)
        if entry is not None and monotonic() < entry.trusted_until:
            self.stats.hits += 1
            return entry.value if entry.copy is None else entry.copy()
        found = await self._entries.read(key)
        if found is None or found.left <= 0:
            self.stats.misses += 1
            return None
        self.stats.hits += 1
        return found.value

    async def put(self, value: V | None, /, **fields: FieldValue) -> bool:
        """Store the current value; loads under way are not stored. False if it is not to be cached."""
        keys = self._drop_local(fields)
        began = await self._entries.tag_time()
        await self._entries.ensure_ready()
        tags = self.declared.tags_of(value, fields)
        stored = await self._entries.fill(keys, "", value, cost=0, tags=tags, began=began)
        self._engine.drop_local(keys.entry)
        self.stats.writes += stored
        return stored

    async def delete(self, /, **fields: FieldValue) -> bool:
        """Remove the value, after its change was committed; loads under way are not stored."""
        return await self._invalidate(fields, self._entries.delete)

    async def delete_many(self, keys: Iterable[Mapping[str, FieldValue]], /) -> int:
        """Remove several values in one round trip, on a cluster one for each node; how many there were."""
        return sum(await asyncio.gather(*(self.delete(**fields) for fields in keys)))

    async def expire(self, /, **fields: FieldValue) -> bool:
        """Make the value stale: it is served while it is refreshed; loads under way are not stored."""
        return await self._invalidate(fields, self._entries.expire)

    async def invalidate_tag(self, tag: str) -> None:
        """Invalidate every value with this tag, in one write however many there are."""
        if self._entries.tags is None:
            pattern = self.declared.keyspace.pattern
            raise InvalidDeclaration(pattern, "it has no tags", "declare it with tags=")
        await self._entries.invalidate_tag(self._entries.tags, tag)

    async def _invalidate(
        self, fields: Mapping[str, FieldValue], how: Callable[[EntryKeys], Awaitable[bool]]
    ) -> bool:
        keys = self._drop_local(fields)
        changed = await how(keys)
        self._engine.drop_local(keys.entry)  # what was read in between
        self.stats.writes += 1
        return changed

    def _drop_local(self, fields: Mapping[str, FieldValue]) -> EntryKeys:
        key = self._render(fields)
        self._engine.drop_local(key)
        return self.declared.entry_keys(key, fields)


def cache_engine(cache: BoundCache[V]) -> CacheEngine[V]:
    """Return what a pattern built on this cache may use."""
    return cache._engine


def _no_local_entry(_: str) -> None:
    """There are no local entries in this process."""


class GroupMember(NamedTuple):
    """One entry of an `EntryGroup`, of a cache with `Storage(stamped=True)`."""

    engine: CacheEngine[Any]
    keys: EntryKeys


class EntryGroup:
    """Entries of stamped caches that are replaced together, for patterns that build on a cache.

    A group first takes over the loads of all its entries. Whatever is being loaded from before is then
    refused, and so is an earlier group with any of them: of two groups the later one stores, and it has
    loaded after both changes.

    *Atomicity.* All entries are stored, or none. On a cluster this holds for the entries of one slot; the
    slots follow each other within a round trip.
    """

    def __init__(self, store: Store, members: Sequence[GroupMember]) -> None:
        client = store.client("cache")
        self._run = client.run
        self._on_cluster = client.is_cluster
        self._members = members

    @asynccontextmanager
    async def claimed(self) -> AsyncIterator[str]:
        """Take over the loads, so that no other load of these entries is stored; yields the claim's token."""
        for engine in {member.engine for member in self._members}:
            await engine.ensure_ready()
        token = secrets.token_hex(12)
        await self._run_by_slot(CLAIM_GROUP, (token, str(_LEASE)), [()] * len(self._members))
        renewal = asyncio.create_task(self._keep_renewing(token))
        try:
            yield token
        finally:
            renewal.cancel()

    async def fill(self, token: str, values: Sequence[Any]) -> bool:
        """Store a value for each entry, None to remove it; False when another group has taken over."""
        fills = [
            member.engine.entries.builder.prepare(member.keys, token, value).arguments
            for member, value in zip(self._members, values, strict=True)
        ]
        return all(await self._run_by_slot(FILL_STAMPED, (), fills))

    async def delete(self) -> None:
        """Remove the entries together, and end their loads."""
        self.drop_local()
        fills = [("", b"", 0, member.keys.channel, -1) for member in self._members]
        await self._run_by_slot(FILL_STAMPED, (), fills)
        self.drop_local()

    def drop_local(self) -> None:
        """Drop the entries of this process."""
        for member in self._members:
            member.engine.drop_local(member.keys.entry)

    async def _run_by_slot(
        self, script: Script, arguments: tuple[Any, ...], of_each: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """Run a script on the keys of all entries: once, or on a cluster once for each slot, concurrently."""
        groups: dict[int, list[tuple[EntryKeys, tuple[Any, ...]]]] = defaultdict(list)
        for member, each in zip(self._members, of_each, strict=True):
            slot = key_slot(member.keys.entry) if self._on_cluster else 0
            groups[slot].append((member.keys, each))
        return await asyncio.gather(
            *(
                self._run(
                    script,
                    [key for keys, _ in group for key in keys[:2]],
                    [*arguments, *(argument for _, each in group for argument in each)],
                )
                for group in groups.values()
            )
        )

    async def _keep_renewing(self, token: str) -> None:
        while True:
            await asyncio.sleep(_LEASE / 3000)
            with suppress(*REDIS_ERRORS):
                await asyncio.gather(
                    *(self._run(RENEW, (each.keys.load,), (token, str(_LEASE))) for each in self._members)
                )
