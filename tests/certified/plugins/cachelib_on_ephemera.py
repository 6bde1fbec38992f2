"""A pytest plugin: in the tests of cachelib and Flask-Caching, `RedisCache` is ours.

`CERTIFIED_SERIALIZER` is the serializer; their own tests expect pickle. The tests look at the server through
`_write_client`, a client of redis-py, so there is one beside ours.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import cachelib
import redis

from ephemera.adapters import cachelib as ours
from ephemera.adapters._servers import url_of

_PATIENCE = "?timeout=5&connect_timeout=10"  # a busy machine pauses now and then


class _Certified:
    """What both have in common; the next class in line is one of ours."""

    def __init__(self, host: Any = "localhost", port: int = 6379, **options: Any) -> None:
        if host is None:
            raise ValueError("RedisCache host parameter may not be None")
        options.pop("socket_connect_timeout", None)
        url = options.pop("url", None) or url_of(
            host if isinstance(host, str) else "localhost",  # else a client of redis-py for the same server
            port,
            options.pop("db", 0),
            None,
            options.pop("password", None),
        )
        self._write_client = redis.Redis.from_url(url)
        chosen = {} if self._has_serializer() else {"serializer": os.environ["CERTIFIED_SERIALIZER"]}
        super().__init__(url + _PATIENCE, **{**chosen, **options})  # type: ignore[call-arg]

    def _has_serializer(self) -> bool:
        """Whether a class of the suite has set another."""
        return not isinstance(self.serializer, ours.JsonSerializer)  # type: ignore[attr-defined]


class RedisCache(_Certified, ours.EphemeraCache):
    """Ours, with the arguments of cachelib's."""


if find_spec("flask_caching"):
    import flask_caching.backends.rediscache  # before cachelib's is replaced: its classes inherit that

    from ephemera.adapters import flask_caching as ours_in_flask

    class RedisCacheOfFlask(_Certified, ours_in_flask.EphemeraCache):
        """Ours, with the arguments of Flask-Caching's."""

    flask_caching.backends.RedisCache = RedisCacheOfFlask  # type: ignore[misc,assignment]
    flask_caching.backends.rediscache.RedisCache = RedisCacheOfFlask  # type: ignore[misc,assignment]

cachelib.RedisCache = RedisCache  # type: ignore[misc,assignment]
