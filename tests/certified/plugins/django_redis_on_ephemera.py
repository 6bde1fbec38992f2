"""A pytest plugin that puts our cache backend in place of that of django-redis."""

from __future__ import annotations

from typing import Any

import django_redis.cache

from ephemera.adapters.django import RedisCache


class Cache(RedisCache):
    """Ours, with the settings of django-redis: a list of URLs, the database as `?db=`, values as pickles."""

    def __init__(self, servers: Any, params: dict[str, Any]) -> None:
        first = servers.split(",")[0] if isinstance(servers, str) else servers[0]
        super().__init__(first.replace("?db=", "/"), {**params, "OPTIONS": {"serializer": "pickle"}})

    @property
    def client(self) -> Cache:
        """What the tests ask for its serializer, to know what to expect."""
        return self


django_redis.cache.RedisCache = Cache
