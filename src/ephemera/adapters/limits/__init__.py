"""limits: a storage, synchronous and async, for limits, Flask-Limiter and slowapi. Needs the extra `limits`.

    import ephemera.adapters.limits                      # registers the schemes

    storage_from_string("ephemera://localhost:6379")     # Flask-Limiter and slowapi: storage_uri="ephemera://..."
    storage_from_string("async+ephemera://localhost:6379")

*Keys.* Those of the Redis storage of limits, `LIMITS:...`, with the same contents: old and new processes of a
rolling deploy count for the same limits. Every write sets the TTL in the same step.

*Atomicity.* Each hit is one script and one round trip. Moving windows use the server's clock, so machines
whose clocks differ share a window.

*Connections.* Synchronous code shares a few connections among all threads; a forked process opens its own.
Async code has one connection for each event loop.

*When Redis is down.* Calls raise `ConnectionFailed` at once, or after the timeout (URL option `timeout`) if
the server hangs; with `wrap_exceptions=True` it is `limits.errors.StorageError`. `in_memory_fallback` of
Flask-Limiter and `in_memory_fallback_enabled` of slowapi work as with any storage.
"""

import importlib.util

from ephemera.errors import MissingExtra

if importlib.util.find_spec("limits") is None:
    raise MissingExtra("ephemera.adapters.limits needs limits", "limits", "limits")

from ephemera.adapters.limits._storage import AsyncEphemeraStorage, EphemeraStorage

__all__ = ["AsyncEphemeraStorage", "EphemeraStorage"]
