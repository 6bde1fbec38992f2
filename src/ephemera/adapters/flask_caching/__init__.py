"""Flask-Caching: a backend by name, in place of its `RedisCache`. Needs the extra `flask-caching`.

    app.config["CACHE_TYPE"] = "ephemera.adapters.flask_caching.EphemeraCache"
    app.config["CACHE_REDIS_URL"] = "redis://localhost:6379"

It reads the settings of `RedisCache`: `CACHE_REDIS_URL`, or `CACHE_REDIS_HOST`, `_PORT`, `_PASSWORD` and
`_DB`; `CACHE_KEY_PREFIX`; `CACHE_DEFAULT_TIMEOUT`. The URL may also name a cluster or Sentinels.

Values are JSON unless the settings choose pickle: `CACHE_OPTIONS = {"serializer": "pickle"}`. Views that
return a `Response` object or a tuple, and cached functions that return more than JSON can express, need it;
see `ephemera.adapters.cachelib`, which this is built on.
"""

import importlib.util

from ephemera.errors import MissingExtra

if importlib.util.find_spec("flask_caching") is None:
    raise MissingExtra(
        "ephemera.adapters.flask_caching needs Flask-Caching", "flask-caching", "flask_caching"
    )

from ephemera.adapters.flask_caching._backend import EphemeraCache

__all__ = ["EphemeraCache"]
