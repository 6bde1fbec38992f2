"""dogpile.cache's tests of its Redis backend, on ours: with its own format, and with JSON."""

from __future__ import annotations

from dataclasses import replace

from tests.certified.suite import Suite

_PICKLE = Suite(
    name="dogpile",
    distribution="dogpile.cache",
    version="1.5.0",
    tests=("tests/cache/test_redis_backend.py",),
    what="region backend of dogpile.cache, with its mutex; serializer pickle",
    ours="dogpile_on_ephemera",
    # Their addopts; and the conftest that declares the marker is not in the distribution.
    arguments=("-p", "no:warnings", "-o", "markers=time_intensive: slow"),
    environment={"DOGPILE_REDIS_PORT": "{port}", "CERTIFIED_SERIALIZER": "pickle"},
    left_out={"*::RedisConnectionTest": "they check which arguments a mock of redis-py is called with"},
    short=("-m", "not time_intensive"),
)
_JSON = replace(
    _PICKLE,
    name="dogpile-json",
    what="region backend of dogpile.cache, with its mutex; serializer JSON",
    environment={**_PICKLE.environment, "CERTIFIED_SERIALIZER": "json"},
)
SUITES = (_PICKLE, _JSON)
