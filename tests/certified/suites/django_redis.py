"""django-redis's tests of its cache backend, on ours: what both offer beyond Django."""

from tests.certified.suite import Suite

_TESTS = "tests/test_backend.py::TestDjangoRedisCache::test_"

_THEIR_CLIENT = "reads or replaces django-redis's own client objects; ours has no such layer"
_OF_THEIR_CLIENT = (
    "set_call_empty_pipeline",
    "delete_pattern_with_",
    "primary_replica_switching",
    "close_with_signal_parameter",
)
_STRUCTURES = "sets and hashes in a cache; here they are declared in a catalogue"
_OF_STRUCTURES = (
    *("hset", "hdel", "hlen", "hkeys", "hexists", "hash_version_support", "hash_key_structure_in_redis"),
    *("sadd", "scard", "sdiff", "sdiffstore", "sdiffstore_with_keys_version"),
    "sdiffstore_with_different_keys_versions_without_initial_set_in_version",
    "sdiffstore_with_different_keys_versions_with_initial_set_in_version",
    *(
        "sinter",
        "interstore",
        "sismember",
        "smove",
        "spop_default_count",
        "spop",
        "srandmember_default_count",
    ),
    *("srandmember", "srem", "sscan", "sscan_with_match", "sscan_iter", "sscan_iter_with_match"),
    *("smismember", "sunion", "sunionstore"),
)

SUITE = Suite(
    name="django_redis",
    distribution="django-redis",
    version="7.0.0",
    tests=("tests/test_backend.py",),
    what="cache backend of Django: what django-redis adds to it",
    ours="django_redis_on_ephemera",
    plugins=("xdist.plugin", "pytest_mock"),
    requirements=("redis==8.1.0", "pytest-mock==3.15.1", "msgpack==1.2.4"),
    # Only their plain settings: the others choose compressors, sharding and other clients of theirs.
    arguments=("-k", "sqlite and not sqlite_", "-o", "pythonpath=tests"),
    short=("-k", "sqlite and not sqlite_ and not timeout and not touch and not setnx"),
    left_out={f"{_TESTS}{name}[sqlite]": _STRUCTURES for name in _OF_STRUCTURES},
    differences={f"{_TESTS}{name}": _THEIR_CLIENT for name in _OF_THEIR_CLIENT},
    replacements={"127.0.0.1:6379": "127.0.0.1:{port}"},
)
