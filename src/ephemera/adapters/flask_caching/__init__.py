"""Flask-Caching: a backend by name, in place of its `RedisCache`. Needs the extra `flask-caching`.

    app.config["CACHE_TYPE"] = "ephemera.adapters.flask_caching.EphemeraCache"
    app.config["CACHE_REDIS_URL"] = "redis://localhost:6379"

It reads the settings of `RedisCache`: `CACHE_REDIS_URL`, or `CACHE_REDIS_HOST`, `_PORT`, `_PASSWORD` and
`_DB`; `CACHE_KEY_PREFIX`; `CACHE_DEFAULT_TIMEOUT`. The URL may also name a cluster or Sentinels.

Values are JSON unless the settings choose pickle: `CACHE_OPTIONS = {"serializer": "pickle"}`. Views that
return a `Response` object or a tuple, and cached functions that return more than JSON can express, need it;
see `ephemera.adapters.cachelib`, which this is built on.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Any

from ephemera.errors import MissingExtra

if importlib.util.find_spec("flask_caching") is None:
    raise MissingExtra(
        "ephemera.adapters.flask_caching needs Flask-Caching", "flask-caching", "flask_caching"
    )

from flask import Flask
from flask_caching.backends.base import BaseCache

from ephemera.adapters import cachelib
from ephemera.adapters._servers import url_of

__all__ = ["EphemeraCache"]


_WITHOUT_DATABASE = re.compile(r"(rediss?://[^/?]+)/?(\?.*)?")


class EphemeraCache(cachelib.EphemeraCache, BaseCache):
    """The backend; its arguments are those of `ephemera.adapters.cachelib.EphemeraCache`."""

    @classmethod
    def factory(
        cls, _app: Flask, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]
    ) -> EphemeraCache:
        """Make it from the settings of an application."""
        kwargs.setdefault("key_prefix", config.get("CACHE_KEY_PREFIX"))
        return cls(*args, **{"url": _url(config), **kwargs})

    def unlink(self, *keys: str) -> int:
        """Delete several values; how many there were."""
        return sum(self._server.call_all([("UNLINK", self._key(key)) for key in keys]))


def _url(config: dict[str, Any]) -> str:
    """The URL; its database comes from `CACHE_REDIS_DB` if it names none."""
    db, url = config.get("CACHE_REDIS_DB", 0), config.get("CACHE_REDIS_URL")
    if url:
        bare = _WITHOUT_DATABASE.fullmatch(url)
        return f"{bare[1]}/{db}{bare[2] or ''}" if bare and db else str(url)
    host, port = config.get("CACHE_REDIS_HOST", "localhost"), config.get("CACHE_REDIS_PORT", 6379)
    return url_of(host, port, db, config.get("CACHE_REDIS_USERNAME"), config.get("CACHE_REDIS_PASSWORD"))
