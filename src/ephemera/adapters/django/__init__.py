"""Django: a cache, a session engine, limits of views and of the site. Needs the extra `django`.

    CACHES = {
        "default": {"BACKEND": "ephemera.adapters.django.RedisCache", "LOCATION": "redis://localhost"}
    }
    INSTALLED_APPS = [..., "ephemera.adapters.django"]
    MIDDLEWARE = [..., "ephemera.adapters.django.SessionMiddleware", ...]     # in place of Django's
    SESSION_ENGINE = "ephemera.adapters.django"
    EPHEMERA = {"URL": "redis://localhost"}

    @limit("5/minute", by="address")
    def login(request): ...

    end_sessions(user.pk)                     # in all browsers, in one step

*Keys.* A session is a hash, `session:{session_id}`, with an index for each user, `user_sessions:{user}`. A
limit is declared as `limit:NAME:{subject}`. All are in the first of `EPHEMERA["CATALOGUES"]`, or in one named
`django`.

*The cache* is Django's API on keys as Django makes them, `PREFIX:VERSION:KEY`, with JSON values unless its
`OPTIONS` choose pickle. Its async methods await the reply on the running loop. Every write sets its lifetime
in the same command, counting is atomic, and `clear` deletes only keys with the cache's prefix.

*Sessions* behave as Django's other engines: they end `SESSION_COOKIE_AGE` after their last change, or when
`set_expiry` says. The session key is a random token that Redis never sees; it changes when the user signs in,
and a late `save` never revives a session that was ended: it raises `UpdateError`. Values are what JSON can
express, whatever `SESSION_SERIALIZER` says.

*Threads and loops.* All threads of a process share one store and its connection; after a fork each worker
opens its own. The async methods of sessions and limits of async views run it in a thread; those of the cache
have a connection for each loop, which its end closes.

*When Redis is down.* With `SessionMiddleware`, a request that needs its session gets 503 with Retry-After.
No user is signed out, and views without a session are not affected. Limits follow `when_down`, and so does
the cache: it raises, or finds nothing.
"""

import importlib.util
from typing import Any

from ephemera.errors import MissingExtra

if importlib.util.find_spec("django") is None:
    raise MissingExtra("ephemera.adapters.django needs Django", "django", "django")

from ephemera.adapters.django._cache import RedisCache
from ephemera.adapters.django._configuration import configured_catalogues, store
from ephemera.adapters.django._limits import LimitMiddleware, limit
from ephemera.adapters.django._sessions import SessionMiddleware, SessionStore, end_sessions
from ephemera.keyspace import Catalogue

catalogue: Catalogue

__all__ = [
    "LimitMiddleware",
    "RedisCache",
    "SessionMiddleware",
    "SessionStore",
    "end_sessions",
    "limit",
    "store",
]


def __getattr__(name: str) -> Any:
    """`catalogue`, for `ephemera audit --catalogue ephemera.adapters.django:catalogue`; settings name it."""
    if name == "catalogue":
        return configured_catalogues()[0]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
