"""redis-py's tests of its synchronous client, on ours."""

from tests.certified.suite import Suite
from tests.certified.suites.redis_py_async import (
    ARGUMENTS,
    MODULES,
    MULTIDB,
    OTHER_SERVERS,
    REPLACEMENTS,
    server_and_sentinels,
)

_FILES = (
    "background", "backoff", "cache", "client", "command_parser", "command_policies", "commands", "connect",
    "connection", "connection_pool", "crc", "credentials", "data_structure", "defaults", "driver_info",
    "encoding", "event", "exceptions", "function", "hash", "helpers", "himport", "himport_integration",
    "keyspace_notifications", "legacy_responses_arg", "lock", "max_connections_error", "monitor",
    "multiprocessing", "pipeline", "pubsub", "retry", "scripting", "sentinel", "sentinel_managed_connection",
    "utils", "vsets",
)  # fmt: skip
_FOLDERS = ("auth", "http", "multidb", "observability", "parsers")
_NOT_RUN = {
    "tests/test_cluster": "`RedisCluster` keeps redis-py's own way",
    **{f"tests/test_{name}": MODULES for name in ("bloom", "json", "search", "timeseries")},
    **{f"tests/{name}": why for name, why in OTHER_SERVERS.items()},
}
_OTHER_SERVERS = "redismod or onlycluster or ssl or replica or cp_integration or multidb_integration"

SUITE = Suite(
    name="redis-py-sync",
    distribution="redis",
    version="8.1.0",
    tests=(*(f"tests/test_{name}.py" for name in _FILES), *(f"tests/test_{name}" for name in _FOLDERS)),
    what="`redis.Redis`: commands, pipelines, transactions, pub/sub, locks, scripts, connection pools",
    ours="redis_py_sync_on_ephemera",
    requirements=("hiredis==3.5.0", "redis-entraid==1.2.2", MULTIDB),
    plugins=("pytest_asyncio.plugin",),
    arguments=(*ARGUMENTS, "-m", f"not ({_OTHER_SERVERS})"),
    servers=server_and_sentinels,
    replacements=REPLACEMENTS,
    left_out=_NOT_RUN,
    short=(
        "tests/test_pipeline.py",
        "tests/test_scripting.py",
        "tests/test_encoding.py",
        "tests/test_lock.py",
    ),
)
