"""A cache in two levels: one loader across all processes, fenced fills, and stale values where they help.

    PROFILE = Cache(
        catalogue, "cache:profile:{user_id}", Profile, fresh=timedelta(minutes=5), stale=timedelta(hours=1),
        local=Local(), purpose="Profiles as SQL has them",
    )
    profile = await store[PROFILE].get_or_load(load_profile, user_id=42)
    await store[PROFILE].delete(user_id=42)          # after the change was committed

Keys: the entry, a value (`entries`); `loading:...`, the token of who loads it; the channel `loaded:...`,
which wakes those who wait; with tags, `tags:...`, a marker a tag and their clock. An entry, its load and its
channel share a cluster slot.
Lifetimes: an entry `fresh` and then `stale`, less jitter; a load its lease, renewed while it runs; markers
longer than any entry.
Atomic: claiming a load, filling, ending and expiring are one script each. A fill succeeds only if nothing has
ended the load since it was claimed, so a value from before an invalidation is never stored after it, and a
`get_or_load` that begins after `delete` has returned never gets one: not from a load that this process
shares (it is verified), not from Redis, and not from a copy of the process that deleted. Copies of other
processes end when the server's word arrives, about a trip later, and at `max_age` at the latest.
Down or hung: a copy, then a stale copy, which a load in the background replaces, then the loader, shared by
those who ask for the same and at most `most_loads` at once. `put`, `delete` and `expire` raise
`ConnectionFailed`, and drop this process's copy anyway: repeat them, or others keep the old value.
Evicting: an evicted entry is loaded again; an evicted load is not cached. The loader's error is its callers',
unless there is a stale value, which is then served for `backoff` before the next attempt.
"""

from ephemera.patterns.cache._declaration import Cache
from ephemera.patterns.cache._runtime import BoundCache
from ephemera.patterns.local_cache import Local

__all__ = ["BoundCache", "Cache", "Local"]
