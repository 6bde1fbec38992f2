"""dogpile.cache: a region backend whose mutex is our lock. Needs the extra `dogpile`.

    arguments = {"url": "redis://localhost:6379", "redis_expiration_time": 3600}
    region = make_region().configure("ephemera", expiration_time=60, arguments=arguments)

*Keys.* A value is a string under the region's key; with `redis_expiration_time` every write sets the TTL in
the same step. A lock is under `_lock{key}` (`lock_prefix`), with the keys of `ephemera.Locks` beside it.

*Single flight.* One process creates a value, the others wait for it or use the old one. The lock has a lease
that is renewed while the creator works, so it never expires under a slow creator, and never stays when a
process dies. Waiters are woken, not polling. A creator may release it in another thread, as async runners do.

*Values.* JSON by default, since what Redis holds is untrusted input. `serializer="pickle"` among the
arguments is dogpile's own format. What JSON would change is refused; what cannot be decoded counts as
missing.

*When Redis is down.* Calls raise `ConnectionFailed` at once, or after the timeout of the URL.
"""

import importlib.util

from ephemera.errors import MissingExtra

if importlib.util.find_spec("dogpile") is None:
    raise MissingExtra("ephemera.adapters.dogpile needs dogpile.cache", "dogpile", "dogpile.cache")

from ephemera.adapters.dogpile._backend import EphemeraBackend, EphemeraMutex

__all__ = ["EphemeraBackend", "EphemeraMutex"]
