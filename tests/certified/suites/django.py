"""Django's own tests of its Redis cache and of its session engines, on our cache and our sessions."""

from dataclasses import replace

from tests.certified.suite import Suite

_VERSION = "5.2.19"
_SETTINGS = ("django_settings",)
_CACHE = "tests/cache/tests.py::RedisCacheTests::"
_SESSIONS = "tests/sessions_tests/tests.py::CacheSessionTests::"
_PRIVATE = "reads private attributes of Django's backend: its redis-py client, pools and serializer"
_ELSEWHERE = "looks for the session in the cache of the settings; ours has its own key, under a digest"
_OBJECTS = (
    "it stores tuples, bytes, models or responses, which JSON would change: refused where they are stored"
)
_OF_OBJECTS = (
    "binary_string",
    "cache_read_for_model_instance",
    "cache_write_for_model_instance_with_deferred",
    "cache_write_unpicklable_object",
    "data_types",
)
_ERROR = "expects PickleError for what cannot be stored; without pickle it is InvalidValue"
_PICKLE = {"CERTIFIED_SERIALIZER": "pickle"}
_CACHE_SUITE = Suite(
    name="django_cache",
    distribution="Django",
    version=_VERSION,
    tests=("tests/cache/tests.py::RedisCacheTests",),
    short=("-k", "not expiration and not timeout and not touch"),
    what="cache backend of Django; serializer pickle",
    ours="django_cache_on_ephemera",
    plugins=_SETTINGS,
    requirements=("redis==8.1.0",),
    environment=_PICKLE,
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
)

SUITES = [
    _CACHE_SUITE,
    replace(
        _CACHE_SUITE,
        name="django_cache-json",
        what="cache backend of Django; serializer JSON, the default",
        environment={"CERTIFIED_SERIALIZER": "json"},
        differences={
            **_CACHE_SUITE.differences,
            **{f"{_CACHE}test_{name}": _OBJECTS for name in _OF_OBJECTS},
            **{f"{_CACHE}test_{name}_fail_on_pickleerror": _ERROR for name in ("add", "set")},
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
        environment=_PICKLE,
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
