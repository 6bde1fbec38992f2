"""limits' own tests of its Redis storages and of all strategies on them, on ours."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from ephemera.embedded import sentinel, valkey
from tests.certified.servers import valkey_and_cluster
from tests.certified.suite import Suite


def servers(stack: ExitStack) -> Mapping[str, str]:
    """A server by TCP and one by a unix socket, a cluster with a password, Sentinels with it and without.

    Their masters have no replicas: limits reads from one if it can, and that may lag behind the test's write.
    """
    values = valkey_and_cluster(stack)
    passwords = {"sentinel_port": "", "sentinel_auth_port": values["cluster_password"]}
    found = {
        name: stack.enter_context(sentinel(0, down_after=15_000, password=password)).sentinels[0]
        for name, password in passwords.items()
    }
    return {
        **values,
        **{name: str(each.port) for name, each in found.items()},
        "socket": str(stack.enter_context(valkey(unix=True)).address),
    }


SUITE = Suite(
    name="limits",
    distribution="limits",
    version="5.8.0",
    tests=(
        "tests/test_storage.py",
        "tests/test_strategy.py",
        "tests/storage",
        "tests/aio",
        "tests/integration",
    ),
    what="storages of limits, sync and async, and all strategies on them",
    ours="limits_on_ephemera",
    requirements=(
        "coredis==5.7.0",
        "packaging==25.0",
        "flaky==3.8.1",
        "pymemcache==4.0.0",
        "pytest-lazy-fixtures==1.4.1",
    ),
    plugins=(
        "pytest_asyncio.plugin",
        "pytest_lazy_fixtures.plugin",
        "flaky.flaky_pytest_plugin",
        "limits_servers",
    ),
    arguments=(
        "-m",
        "redis or redis_cluster or redis_sentinel",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    ),
    servers=servers,
    replacements={
        "localhost:7379": "localhost:{port}",
        '("localhost", 7379': '("localhost", {port}',
        "/tmp/limits.redis.sock": "{socket}",
        "cluster://localhost:7001": "cluster://:{cluster_password}@localhost:{cluster_port}",
        '("localhost", 7001)': '("localhost", {cluster_port}, password="{cluster_password}")',
        "localhost:26379": "localhost:{sentinel_port}",
        '("localhost", 26379)': '("localhost", {sentinel_port})',
        "localhost:36379": "localhost:{sentinel_auth_port}",
        '("localhost", 36379)': '("localhost", {sentinel_auth_port})',
        "localhost:8400": "localhost:{cluster_port}",
        '("localhost", 8400': '("localhost", {cluster_port}',
        "sekret": "{cluster_password}",
    },
    left_out={
        "*[redis-ssl-cluster": "the embedded cluster has no TLS",
        "*startup-nodes": "they pass nodes as objects of redis-py, where ours takes a URL",
    },
    short=("-k", "storage_reset or storage_clear or custom_amount or (Concurrency and not cluster)"),
)
