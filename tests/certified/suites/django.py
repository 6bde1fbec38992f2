"""Django's own tests of its Redis cache and of its session engines, on our cache and our sessions."""

from tests.certified.suite import Suite

_VERSION = "5.2.19"
_SETTINGS = ("django_settings",)
_CACHE = "tests/cache/tests.py::RedisCacheTests::"
_SESSIONS = "tests/sessions_tests/tests.py::CacheSessionTests::"
_PRIVATE = "reads private attributes of Django's backend: its redis-py client, pools and serializer"
_ELSEWHERE = "looks for the session in the cache of the settings; ours has its own key, under a digest"

SUITES = [
    Suite(
        name="django_cache",
        distribution="Django",
        version=_VERSION,
        tests=("tests/cache/tests.py::RedisCacheTests",),
        short=("-k", "not expiration and not timeout and not touch"),
        what="cache backend of Django",
        ours="django_cache_on_ephemera",
        plugins=_SETTINGS,
        requirements=("redis==8.1.0",),
        differences={
            **{
                f"{_CACHE}test_{name}": _PRIVATE
                for name in (
                    "cache_client_class",
                    "get_client",
                    "get_connection_pool",
                    "incr_write_connection",
                    "serializer_dumps",
                )
            },
            f"{_CACHE}test_redis_pool_options": "options of redis-py's pool; ours stand in the URL",
        },
    ),
    Suite(
        name="django_cached_sessions",
        distribution="Django",
        version=_VERSION,
        tests=(
            "tests/sessions_tests/tests.py::CacheSessionTests",
            "tests/sessions_tests/tests.py::CacheDBSessionTests",
        ),
        what="Django's cached session engines on our cache backend",
        ours="django_cache_on_ephemera",
        plugins=_SETTINGS,
        requirements=("redis==8.1.0",),
    ),
    Suite(
        name="django_sessions",
        distribution="Django",
        version=_VERSION,
        tests=("tests/sessions_tests/tests.py::CacheSessionTests",),
        what="session engine of Django",
        ours="django_sessions_on_ephemera",
        plugins=_SETTINGS,
        requirements=("redis==8.1.0",),
        differences={
            f"{_SESSIONS}test_{name}": _ELSEWHERE
            for name in ("create_and_save", "default_cache", "non_default_cache")
        },
    ),
]
