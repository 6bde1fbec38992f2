"""redis-py's tests of its synchronous client, on ours."""

from tests.certified.suite import Suite
from tests.certified.suites.redis_py_async import WITHOUT_TRACING

_FILES = (
    "cache", "client", "commands", "connect", "connection", "connection_pool", "encoding", "event",
    "exceptions", "function", "hash", "himport", "himport_integration", "keyspace_notifications",
    "legacy_responses_arg", "lock", "max_connections_error", "monitor",
    "multiprocessing", "pipeline", "pubsub", "retry", "scripting", "vsets",
)  # fmt: skip
_OTHER_SERVERS = "redismod or onlycluster or ssl or replica or cp_integration or multidb_integration"

SUITE = Suite(
    name="redis-py-sync",
    distribution="redis",
    version="8.1.0",
    tests=(*(f"tests/test_{name}.py" for name in _FILES), "tests/test_observability"),
    what="`redis.Redis`: commands, pipelines, transactions, pub/sub, locks, scripts, connection pools",
    ours="redis_py_sync_on_ephemera",
    requirements=("hiredis==3.5.0",),
    plugins=("pytest_asyncio",),
    arguments=("--redis-url", "{url}", "-m", f"not ({_OTHER_SERVERS})"),
    replacements=WITHOUT_TRACING,
    short=(
        "tests/test_pipeline.py",
        "tests/test_scripting.py",
        "tests/test_encoding.py",
        "tests/test_lock.py",
    ),
)
