"""A two-level cache: single-flight loads across processes, fenced fills, stale-while-revalidate.

    PROFILE = Cache(
        catalogue, "cache:profile:{user_id}", Profile, fresh=timedelta(minutes=5), stale=timedelta(hours=1),
        local=LocalCache(), purpose="Profiles as SQL has them",
    )
    profile = await store[PROFILE].get_or_load(load_profile, user_id=42)
    await store[PROFILE].delete(user_id=42)          # after the change was committed

*Keys.* The entry is a value under the declared pattern. `loading:...` holds the token of its load; the
channel `loaded:...` wakes callers that wait for it. With tags, `tags:...` holds a marker for each tag, and
their clock. An entry, its load token and its channel share a cluster slot.

*Lifetimes.* An entry lives for `fresh` and then `stale`, less jitter; a load token for its lease, renewed
while the load runs; tag markers longer than any entry.

*Atomicity.* Claiming a load, filling, deleting and expiring are one script each. A fill succeeds only if
nothing has ended the load since it was claimed, so a value from before an invalidation is never stored after
it. A `get_or_load` that begins after `delete` has returned never gets such a value: not from a load shared in
this process (its claim is verified), not from Redis, and not from the local cache of the process that
deleted. Local entries of other processes are dropped when the server announces the change, about a round trip
later, and at `max_age` at the latest. Where the server refuses tracking, no local entry is trusted: each read
compares the version, and only saves the payload. Local values are shared objects: do not modify them.

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

from ephemera.patterns.cache._declaration import Cache, EntryKeys
from ephemera.patterns.cache._entry_builder import Freshness, Storage
from ephemera.patterns.cache._entry_group import EntryGroup, GroupMember
from ephemera.patterns.cache._load_coordinator import Loading
from ephemera.patterns.cache._local_cache import LocalCache, LocalEntries, LocalEntry
from ephemera.patterns.cache._runtime import BoundCache, CacheEngine, cache_engine
from ephemera.patterns.cache._two_level_store import EntryHead, StoredEntry

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
    "LocalEntries",
    "LocalEntry",
    "Storage",
    "StoredEntry",
    "cache_engine",
]
