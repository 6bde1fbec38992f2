"""The tests of cachelib and of Flask-Caching for their Redis backends, on ours."""

from __future__ import annotations

from dataclasses import replace

from tests.certified.suite import Suite

_CACHELIB = Suite(
    name="cachelib",
    distribution="cachelib",
    version="0.17.0",
    tests=("tests/test_redis_cache.py",),
    what="cachelib backend; serializer pickle",
    ours="cachelib_on_ephemera",
    requirements=("pytest-xprocess==1.0.2",),
    plugins=("xprocess.pytest_xprocess",),
    environment={"CI": "true", "CERTIFIED_SERIALIZER": "pickle"},  # CI: its server runs already
    replacements={"6360": "{port}"},
    short=("-k", "not expiration"),
)
_SAMPLES = (
    "set_get",
    "set_get_many",
    "get_dict",
    "delete",
    "delete_many",
    "add",
    "expiration",
    "has",
    "clear",
)
_BYTES = "JSON cannot express bytes, and says so where they are stored; choose pickle"
_KEYS = "a sample value has the key 256, which JSON would turn into text; it is refused where it is stored"
_CACHELIB_JSON = replace(
    _CACHELIB,
    name="cachelib-json",
    what="cachelib backend; serializer JSON",
    environment={**_CACHELIB.environment, "CERTIFIED_SERIALIZER": "json"},
    differences={
        "*::test_no_serializer_uses_default[RedisCache": _BYTES,
        **{f"*::test_{name}[RedisCache": _KEYS for name in _SAMPLES},
    },
)
_FLASK_CACHING = replace(
    _CACHELIB,
    name="flask-caching",
    distribution="Flask-Caching",
    version="2.5.1",
    tests=("tests/test_backend_cache.py", "tests/test_basic_app.py", "tests/test_cache.py"),
    what="Flask-Caching backend; serializer pickle",
    arguments=("-k", "redis or (unlink and not if_not)"),
    left_out={"*::TestRedisCacheClientsOverride": "of the Sentinel backend, on dummies of redis-py"},
    short=("-k", "(redis or (unlink and not if_not)) and not timeout"),
)
_FLASK_CACHING_JSON = replace(
    _FLASK_CACHING,
    name="flask-caching-json",
    what="Flask-Caching backend; serializer JSON",
    environment={**_FLASK_CACHING.environment, "CERTIFIED_SERIALIZER": "json"},
    differences={
        "*::test_generic_get_bytes": _BYTES,
        "*::test_compat": "a value that another program wrote, and that is not JSON, is a miss",
    },
)
_LONG = (
    "entry_written_late_keeps",
    "version_key_outlives",
    "version_key_expires",
    "delete_resets_version_key",
)
_FLASK_CACHING_APPLICATIONS = replace(
    _FLASK_CACHING,
    name="flask-caching-applications",
    tests=("tests/test_cache.py", "tests/test_memoize.py", "tests/test_templates.py", "tests/test_view.py"),
    what="cached views, functions and templates of Flask-Caching; serializer pickle",
    plugins=(*_FLASK_CACHING.plugins, "flushed_server"),
    arguments=(),
    replacements={
        **_FLASK_CACHING.replacements,
        'app.config["CACHE_TYPE"] = "SimpleCache"': (
            'app.config.update(CACHE_TYPE="RedisCache", CACHE_REDIS_PORT={port})'
        ),
        "self.now += seconds": "import time; time.sleep(seconds)",  # a server's clock cannot be moved
    },
    left_out={f"*::test_memoize_{name}": "it moves the clock by minutes" for name in _LONG},
    short=("tests/test_templates.py",),
)
SUITES = (_CACHELIB, _CACHELIB_JSON, _FLASK_CACHING, _FLASK_CACHING_JSON, _FLASK_CACHING_APPLICATIONS)
