"""redis-py's tests of its synchronous client, on ours."""

from tests.certified.suite import Suite
from tests.certified.suites.redis_py_async import MODULES, MULTIDB, OTHER_SERVERS, WITHOUT_TRACING

_FILES = (
    "cache", "client", "command_parser", "command_policies", "commands", "connect", "connection",
    "connection_pool", "credentials", "defaults", "encoding", "event", "exceptions", "function", "hash",
    "himport", "himport_integration", "keyspace_notifications", "legacy_responses_arg", "lock",
    "max_connections_error", "monitor", "multiprocessing", "pipeline", "pubsub", "retry", "scripting",
    "sentinel", "sentinel_managed_connection", "utils", "vsets",
)  # fmt: skip
_UNTOUCHED = "parts of redis-py that ours neither replaces nor calls"
_NOT_RUN = {
    **{f"tests/test_{name}.py": _UNTOUCHED for name in (
        "background", "backoff", "crc", "data_structure", "driver_info", "helpers",
    )},
    **{f"tests/test_{name}/": _UNTOUCHED for name in ("auth", "http", "parsers")},
    "tests/test_cluster": "`RedisCluster` keeps redis-py's own way",
    **{f"tests/test_{name}": MODULES for name in ("bloom", "json", "search", "timeseries")},
    **{f"tests/{name}": why for name, why in OTHER_SERVERS.items()},
}  # fmt: skip
_OTHER_SERVERS = "redismod or onlycluster or ssl or replica or cp_integration or multidb_integration"

SUITE = Suite(
    name="redis-py-sync",
    distribution="redis",
    version="8.1.0",
    tests=(*(f"tests/test_{name}.py" for name in _FILES), "tests/test_observability", "tests/test_multidb"),
    what="`redis.Redis`: commands, pipelines, transactions, pub/sub, locks, scripts, connection pools",
    ours="redis_py_sync_on_ephemera",
    requirements=("hiredis==3.5.0", "redis-entraid==1.2.2", MULTIDB),
    plugins=("pytest_asyncio",),
    arguments=("--redis-url", "{url}", "-m", f"not ({_OTHER_SERVERS})"),
    replacements=WITHOUT_TRACING,
    left_out=_NOT_RUN,
    short=(
        "tests/test_pipeline.py",
        "tests/test_scripting.py",
        "tests/test_encoding.py",
        "tests/test_lock.py",
    ),
)
