"""redis-py's own tests of its asynchronous clients, and libraries that use them, with `install()`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from socket import socket

from ephemera.embedded import cluster, sentinel, valkey
from tests.certified.suite import Suite
from tests.certified.suites import limits

_OURS = "certified_redis_py_async"
_ASYNCIO = ("pytest_asyncio.plugin",)
_FILES = (
    "client",
    "command_parser",
    "command_policies",
    "commands",
    "connect",
    "connection",
    "connection_pool",
    "credentials",
    "cwe_404",
    "encoding",
    "hash",
    "himport_integration",
    "keyspace_notifications",
    "lock",
    "monitor",
    "pipeline",
    "pubsub",
    "retry",
    "scripting",
    "sentinel",
    "sentinel_managed_connection",
    "usage_counter",
    "utils",
    "vsets",
)
WITHOUT_TRACING = {"tracemalloc.start()": "pass"}
"""Their conftest traces every allocation, for warnings about what is left open: eight tenths of the time."""
REPLACEMENTS = {
    **WITHOUT_TRACING,
    '"redis-py-test"': '"mymaster"',
    'ip="127.0.0.1", port=6379': 'ip="127.0.0.1", port={port}',
    '"127.0.0.1", "port": 6379': '"127.0.0.1", "port": {port}',
    "127.0.0.1,port=6379": "127.0.0.1,port={port}",
    "(master_ip, 6379)": "(master_ip, {port})",
    "redis://localhost:6379/0?": "redis://localhost:{port}/0?",
    '{"host": master_host[0]}': '{"host": master_host[0], "port": master_host[1]}',
}
"""Of both clients' tests: their servers have fixed ports, and their Sentinels another name."""
ARGUMENTS = ("--redis-url", "{url}", "--sentinels", "{sentinels}")
MODULES = "commands of modules, which Valkey and these servers do not have"
OTHER_SERVERS = {
    "test_ssl.py": "it needs the certificates and TLS ports of redis-py's containers",
    "test_multidb/test_integration.py": "it needs several databases of redis-py's containers",
    "test_scenario/": "it needs a fault injector and an enterprise cluster",
    "maint_notifications/": "announcements of maintenance by an enterprise cluster",
}
"""Files of both clients' tests, and why they do not run."""
MULTIDB = "pybreaker==1.4.0"
_NOT_RUN = {
    **{f"tests/test_asyncio/test_{name}": MODULES for name in ("bloom", "json", "search", "timeseries")},
    **{
        f"tests/test_asyncio/{name}".replace("test_asyncio/maint", "maint"): why
        for name, why in OTHER_SERVERS.items()
    },
}
_SHORT = ("encoding", "pipeline", "scripting", "usage_counter")


def _paths(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/test_asyncio/test_{name}.py" for name in names)


def one_server(stack: ExitStack) -> Mapping[str, str]:
    """A server with DEBUG: `{url}`; and a free port for a proxy: `{proxy_port}`."""
    server = stack.enter_context(valkey(password="", config={"enable-debug-command": "yes"}))
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        proxy = probe.getsockname()[1]
    return {"url": f"redis://127.0.0.1:{server.port}/0", "proxy_port": str(proxy), "port": str(server.port)}


def server_and_sentinels(stack: ExitStack) -> Mapping[str, str]:
    """The same; and Sentinels of another server: `{sentinels}`."""
    found = stack.enter_context(sentinel(down_after=15_000, password="")).sentinels
    return {**one_server(stack), "sentinels": ",".join(f"127.0.0.1:{each.port}" for each in found)}


def one_cluster(stack: ExitStack) -> Mapping[str, str]:
    """Three masters with a replica each: `{url}` of one of them."""
    nodes = stack.enter_context(cluster(node_timeout=15_000)).nodes
    return {"url": f"{nodes[0].url.rstrip('/')}/0"}


SUITES = (
    Suite(
        name="redis-py-async",
        distribution="redis",
        version="8.1.0",
        tests=(
            *_paths(*_FILES),
            "tests/test_asyncio/test_observability",
            "tests/test_asyncio/test_multidb",
        ),
        what="redis.asyncio.Redis with install()",
        ours=_OURS,
        requirements=("redis-entraid==1.2.2", MULTIDB),
        plugins=_ASYNCIO,
        arguments=ARGUMENTS,
        servers=server_and_sentinels,
        seconds=900,
        replacements={**REPLACEMENTS, "5380": "{proxy_port}"},
        left_out=_NOT_RUN,
        short=_paths(*_SHORT),
    ),
    Suite(
        name="redis-py-async-cluster",
        distribution="redis",
        version="8.1.0",
        tests=_paths("cluster", "cluster_transaction"),
        what="redis.asyncio.RedisCluster with install()",
        ours=_OURS,
        requirements=("redis-entraid==1.2.2",),
        plugins=_ASYNCIO,
        arguments=("--redis-url", "{url}"),
        servers=one_cluster,
        seconds=900,
        replacements=WITHOUT_TRACING,
        differences={
            "tests/test_asyncio/test_cluster.py::TestRedisClusterObj::test_max_connections[": (
                "it expects an error when more commands run at once than a node may have connections; "
                "commands that share a connection do not reach that number"
            )
        },
        short=(*_paths("cluster_transaction"), "-k", "not migration"),
    ),
    Suite(
        name="channels-redis-on-redis-py",
        distribution="channels-redis",
        version="4.3.0",
        tests=("tests/test_core.py", "tests/test_pubsub.py"),
        what="channels_redis, unmodified, with install()",
        ours=_OURS,
        requirements=("channels==4.3.2", "async-timeout==5.0.1"),
        plugins=_ASYNCIO,
        servers=one_server,
        replacements={"redis://localhost:6379": "redis://127.0.0.1:{port}"},
        short=("tests/test_pubsub.py",),
    ),
    replace(
        limits.SUITE,
        name="limits-on-redis-py",
        tests=("tests/aio",),
        what="asynchronous storages of limits on redis-py, unmodified, with install()",
        ours=_OURS,
        arguments=(*limits.SUITE.arguments, "-k", "not coredis and not valkey"),
        left_out={"*[redis-ssl-cluster": "the embedded cluster has no TLS"},
        short=("-k", "(check or clear) and not coredis and not valkey"),
    ),
)
