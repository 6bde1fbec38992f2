"""A two-level cache: single-flight loads across processes, fenced fills, stale-while-revalidate.

    PROFILE = Cache(
        catalogue, "cache:profile:{user_id}", Profile, fresh=timedelta(minutes=5), stale=timedelta(hours=1),
        local=LocalCache(), purpose="Profiles as SQL has them",
    )
    profile = await store[PROFILE].get_or_load(load_profile, user_id=42)
    await store[PROFILE].delete(user_id=42)          # after the change was committed

*Keys.* The entry is a value under the declared pattern. `loading:...` holds the token of its load; the
channel `loaded:...` wakes callers that wait for it. With tags, `tags:...` holds a marker for each tag, and
their clock. An entry, its load token and its channel share a cluster slot: one field of the pattern is the
hash tag. For a pattern without fields, token and channel carry a number that leads to the pattern's slot.

*Lifetimes.* An entry lives for `fresh` and then `stale`, less jitter; one that records that there is no value
for `missing` alone; a load token for its lease, renewed while the load runs; tag markers longer than any
entry.

*Atomicity.* Claiming a load, filling, deleting and expiring are one script each. A fill succeeds only if
nothing has ended the load since it was claimed, so a value from before an invalidation is never stored after
it. A `get_or_load` that begins after `delete` has returned never gets such a value: not from a load shared in
this process (its claim is verified), not from Redis, and not from the local cache of the process that
deleted. Local entries of other processes are dropped when the server announces the change, about a round trip
later, and at `max_age` at the latest. Where the server refuses tracking, no local entry is trusted: each read
compares the version, and only saves the payload. Callers get copies of mutable local values, unless
`LocalCache(values="shared")`.

*When Redis is down.* A local entry is served, then a stale one while it is refreshed in the background;
otherwise the loader runs, shared by the callers of a process that ask for the same, at most `max_loads` at
once. With `LocalCache(when_down="load")` no entry older than `max_age` is served, so after that time no
process has an old value, not even one that was cut off. `put`, `delete`, `expire` and `invalidate_tag` raise
`ConnectionFailed`, and drop this process's entry anyway: repeat them, or other processes keep the old value.

*Eviction and failures.* An evicted entry is loaded again; the value of an evicted load token is not cached.
The loader's error is raised to its callers, unless there is a stale value, which is then served for `backoff`
before the next attempt.

Patterns that build on a cache use `cache_engine` and `EntryGroup`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Any, Generic, TypeVar, cast

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import (
    Catalogue,
    FieldValue,
    Store,
    check_async,
    check_declaration,
    fixed,
    last_field,
    mutable_part,
)
from ephemera.patterns.cache._entry_builder import EntryKeys, Freshness, Storage, entry_type
from ephemera.patterns.cache._load_coordinator import Loading
from ephemera.patterns.cache._local_cache import LocalCache
from ephemera.patterns.cache._runtime import BoundCache, CacheEngine, EntryGroup, GroupMember, cache_engine
from ephemera.patterns.cache._two_level_store import EntryHead, StoredEntry
from ephemera.wire import hash_tag_for_slot, key_slot

__all__ = [
    "BoundCache",
    "Cache",
    "CacheEngine",
    "EntryGroup",
    "EntryHead",
    "EntryKeys",
    "Freshness",
    "GroupMember",
    "Loading",
    "LocalCache",
    "Storage",
    "StoredEntry",
    "cache_engine",
]

V = TypeVar("V")
R = TypeVar("R")

_NO_TIME = timedelta(0)
_LOADING, _STORAGE = Loading(), Storage()


class Cache(Generic[V]):
    """The declaration of a cache; `store[PROFILE]` is the `BoundCache` of a store.

    Args:
        catalogue: The catalogue that declares the cache's keys.
        pattern: The pattern of the entries' keys, such as `"cache:profile:{user_id}"`.
        value_type: The type of the values; what does not fit it is a miss.
        fresh: How long a value is fresh, less some jitter (`Loading.jitter`).
        stale: How long it is kept after that, to be served while it is refreshed and when a load fails.
        missing: How long to remember that there is no value; by default not at all.
        freshness_of: Shortens `fresh` and `stale` for a value: a function of it; None: do not cache it.
        loading: Timeouts, lease, backoff and bounds of loads.
        local: Keep entries in this process, too, within a budget; by default none.
        tags: Names the tags of a value, given the value and its key fields, for `invalidate_tag`.
        storage: Codec, compression, cluster slot and stamps of the stored entries.
        sensitive: Whether values are personal or secret; consoles and logs then hide them.
        purpose: What the cache is for, in a few words, for the generated documentation.
        saves: What a hit avoids.
        invalidated_by: What invalidates entries.
        if_lost: What happens when an entry is lost.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        value_type: type[V],
        *,
        fresh: timedelta,
        stale: timedelta = _NO_TIME,
        missing: timedelta = _NO_TIME,
        freshness_of: Callable[[V], Freshness | None] | None = None,
        loading: Loading = _LOADING,
        local: LocalCache | None = None,
        tags: Callable[..., Iterable[str]] | None = None,
        storage: Storage = _STORAGE,
        sensitive: bool = False,
        purpose: str,
        saves: str = "a load from the source",
        invalidated_by: tuple[str, ...] = ("a change of the source",),
        if_lost: str = "it is loaded again",
    ) -> None:
        check_declaration(catalogue, pattern, fresh=fresh, stale=stale, missing=missing)
        _check(pattern, loading, fresh=fresh, stale=stale, missing=missing)
        self.fresh, self.stale, self.missing = fresh, stale, missing
        self.freshness_of = freshness_of
        self.loading, self.local, self.storage = loading, local, storage
        self.bounds_age_offline = local is not None and local.when_down == "load"
        """Whether nothing older than `max_age` is served while the server is unreachable."""
        self.copies_values = _copies_values(pattern, value_type, local, storage)
        """Whether each caller gets a value of its own, since another could change a shared one."""
        self.tags = tags
        self.entry_type: Any = entry_type(value_type)
        lifetime = max(fresh, missing) + stale
        self.keyspace = catalogue.value(
            pattern,
            self.entry_type,
            codec=storage.codec,
            compress_over=storage.compress_over,
            lifetime=fixed(seconds=lifetime.total_seconds()),
            purpose=purpose,
            saves=saves,
            invalidated_by=invalidated_by,
            if_lost=if_lost,
            sensitive=sensitive,
            hash_tag=storage.hash_tag or last_field(pattern),
        )
        self._declare_loads(catalogue, pattern)
        if tags is not None:
            self._declare_tags(catalogue, pattern, lifetime + loading.hard_timeout)
        catalogue.patterns.append(self)

    def _declare_loads(self, catalogue: Catalogue, pattern: str) -> None:
        name, hash_tag = pattern, self.keyspace.template.hash_tag
        self._slot: dict[str, FieldValue] = {}
        if not self.keyspace.template.fields:
            self._slot = {"slot": hash_tag_for_slot(key_slot(self.keyspace.key()))}
            # Before the pattern, so that `table` and `table:{season}` can be declared side by side.
            name, hash_tag = f"{{slot}}:{pattern}", "slot"
        self.load_tokens = catalogue.value(
            f"loading:{name}",
            str,
            lifetime=fixed(seconds=max(self.loading.lease, self.loading.backoff).total_seconds()),
            purpose="The token of an entry's load; without it, a fill is refused",
            saves="the same load by many callers at once",
            invalidated_by=("the end of the load", "an invalidation"),
            if_lost="the load is not cached, and another may begin",
            hash_tag=hash_tag,
        )
        self.load_channel = catalogue.channel(
            f"loaded:{name}",
            str,
            purpose="Wakes callers that wait for an entry",
            if_lost="they check when the loader's lease ends",
            hash_tag=hash_tag,
        )

    def _declare_tags(self, catalogue: Catalogue, pattern: str, longest: timedelta) -> None:
        lifetime = fixed(seconds=longest.total_seconds(), outlives="every entry of the cache")
        name = pattern.replace("{", "").replace("}", "")
        self.tag_clock = catalogue.counter(
            f"tags:{{slot}}:{name}",
            lifetime=lifetime,
            purpose="The last time of a cache's tag clock",
            hash_tag="slot",
        )
        self.tag_markers = catalogue.counter(
            f"tags:{{slot}}:{name}:{{tag}}",
            lifetime=lifetime,
            purpose="When a tag was last invalidated",
            if_lost="entries that it invalidated are served until they are replaced or expire",
            hash_tag="slot",
        )

    def bind(self, store: Store) -> BoundCache[V]:
        """Return the cache of a store that has its catalogue."""
        return BoundCache(self, store)

    def entry_keys(self, key: str, fields: Mapping[str, FieldValue]) -> EntryKeys:
        """Return the keys that belong to the entry with this key."""
        every = {**fields, **self._slot}
        return EntryKeys(
            key, self.load_tokens.template.render(every), self.load_channel.template.render(every)
        )

    def tags_of(self, value: V | None, fields: Mapping[str, FieldValue]) -> list[str]:
        """Return the tags of a value."""
        return [] if self.tags is None or value is None else list(self.tags(value, **fields))

    def cached(self, load: Callable[..., Awaitable[R]], /) -> Callable[..., Coroutine[Any, Any, R]]:
        """Decorate a loader: call it with a store and its fields by name, and it runs only when needed."""
        fields = self.keyspace.template.fields
        form = f"async def load({', '.join(fields)})"
        check_async(self.keyspace.pattern, load, form, **{name: name for name in fields})
        loader = cast("Callable[..., Awaitable[V]]", load)

        @wraps(load)
        async def through_the_cache(store: Store, /, **fields: FieldValue) -> R:
            return cast("R", await store[self].get_or_load(loader, **fields))

        return through_the_cache

    def __repr__(self) -> str:
        return f"<Cache {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


def _check(pattern: str, loading: Loading, **lifetimes: timedelta) -> None:
    positive = {"hard_timeout": loading.hard_timeout, "backoff": loading.backoff, "lease": loading.lease}
    durations = {**lifetimes, **positive, "soft_timeout": loading.soft_timeout}
    for name, duration in durations.items():
        if duration < _NO_TIME or (not duration and (name in positive or name == "fresh")):
            raise InvalidDeclaration(pattern, f"{name}={duration} is not a duration", "give a positive one")
    for name, limit in (("max_loads", loading.max_loads), ("max_refreshes", loading.max_refreshes)):
        if limit < 1:
            raise InvalidDeclaration(pattern, f"{name}={limit} allows nothing", "give at least 1")
    if not 0 <= loading.jitter < 1 or loading.early_refresh < 0:
        raise InvalidDeclaration(
            pattern,
            f"jitter={loading.jitter}, early_refresh={loading.early_refresh}",
            "jitter is a part of `fresh` below 1, early_refresh 0 or more",
        )


def _copies_values(pattern: str, value_type: Any, local: LocalCache | None, storage: Storage) -> bool:
    mode = "copied" if local is None else local.values
    if storage.stamped or mode == "shared":
        return False
    part = mutable_part(value_type)
    if part is not None and mode == "frozen":
        raise InvalidDeclaration(
            pattern,
            f"its values are not frozen: {part} can be changed in place",
            "declare types with frozen=True, and tuple or frozenset in place of list and set; or use "
            "LocalCache(values='copied')",
        )
    return part is not None
