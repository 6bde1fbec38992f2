"""cachelib: a cache backend, for cachelib itself and for what takes its caches. Needs the extra `cachelib`.

    cache = EphemeraCache("redis://localhost:6379", key_prefix="shop:")
    cache.set("answer", {"value": 42}, timeout=60)

*Keys.* The key with its prefix, a string. `add` and `set` set the TTL in the same step; a timeout of 0 stores
without one, as everywhere in cachelib.

*Values.* JSON by default, since what Redis holds is untrusted input. `serializer="pickle"` is the format of
cachelib's own `RedisCache`, so that both read each other's values; who can write to the server can then
run code in this process. What JSON would change (a tuple, a key that is no text) is refused. What cannot be
decoded is a miss.

*When Redis is down.* Calls raise `ConnectionFailed` at once, or after the timeout of the URL.
"""

import importlib.util

from ephemera.errors import MissingExtra

if importlib.util.find_spec("cachelib") is None:
    raise MissingExtra("ephemera.adapters.cachelib needs cachelib", "cachelib", "cachelib")

from ephemera.adapters.cachelib._cache import EphemeraCache, JsonSerializer

__all__ = ["EphemeraCache", "JsonSerializer"]
