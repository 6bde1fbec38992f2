"""`install()`: libraries that use redis.asyncio share connections, unmodified, until it is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio import Redis as ImportedBefore
from redis.asyncio.cluster import ClusterNode, RedisCluster

from ephemera.adapters.redis_py import install
from ephemera.embedded import Cluster, Valkey
from tests.adapters.redis_clients import connections

pytestmark = pytest.mark.standalone("redis.asyncio.Redis is the client of one server")


@pytest.fixture
def installed() -> Iterator[None]:
    """Shared connections for all of redis.asyncio."""
    with install():
        yield


class Subclass(ImportedBefore):  # type: ignore[misc]
    """A client as a library defines one."""


async def _load(client: Any, key: str) -> None:
    await asyncio.gather(*(client.incr(key) for _ in range(50)))
    await asyncio.gather(*(client.pipeline().incr(key).execute() for _ in range(50)))


@pytest.mark.parametrize("kind", [ImportedBefore, redis.asyncio.StrictRedis, Subclass])
async def test_classes_that_were_imported_before_take_part(
    server: Valkey, key: str, installed: None, kind: Any
) -> None:
    """Names, subclasses and aliases from before the installation share a connection."""
    async with kind.from_url(server.url, client_name=key) as client:
        await _load(client, key)
        assert connections(server, key) == 1


async def test_clients_that_exist_already_take_part_and_stay_usable(server: Valkey, key: str) -> None:
    """A client from before shares while it is installed, and works as before when it is undone."""
    async with ImportedBefore.from_url(server.url, client_name=key) as client:
        await client.set(key, 0)
        with install(), install():
            await _load(client, key)
            assert connections(server, key) == 2
        await _load(client, key)
        assert connections(server, key) > 2
        assert await client.get(key) == b"200"


def test_it_is_undone_as_a_whole() -> None:
    """The last of several installations that is closed restores every method."""
    owners = (redis.asyncio.Redis, redis.asyncio.client.Pipeline, ClusterNode)
    before = [dict(vars(owner)) for owner in owners]
    first, second = install(), install()
    first.close()
    assert [dict(vars(owner)) for owner in owners] != before
    second.close()
    second.close()
    assert [dict(vars(owner)) for owner in owners] == before


async def test_cashews_and_limits_share(server: Valkey, key: str, installed: None) -> None:
    """Unmodified libraries work on it: a cache, and a rate limiter with its scripts."""
    cashews, limits = import_module("cashews"), import_module("limits")
    cache = cashews.Cache()
    cache.setup(server.url, client_name=key)
    await asyncio.gather(*(cache.set(f"{key}:{n}", n, expire=60) for n in range(100)))
    assert await cache.get(f"{key}:7") == 7
    assert connections(server, key) == 1
    with pytest.warns(DeprecationWarning, match="deprecated close"):
        await cache.close()
    storage = limits.storage.storage_from_string(f"async+{server.url}", implementation="redispy")
    limiter = import_module("limits.aio.strategies").MovingWindowRateLimiter(storage)
    hits = await asyncio.gather(*(limiter.hit(limits.parse("5/minute"), key) for _ in range(20)))
    assert sum(hits) == 5
    await storage.bridge.get_connection().connection_pool.disconnect()


async def test_a_cluster_takes_part(cluster: Cluster, installed: None, key: str) -> None:
    """redis-py's RedisCluster has one connection to each node."""
    url = cluster.url.replace("redis+cluster://", "redis://").partition(",")[0]
    async with RedisCluster.from_url(url, client_name=key) as client:
        await asyncio.gather(*(client.set(f"{key}:{n}", n) for n in range(300)))
        assert await client.get(f"{key}:7") == b"7"
        assert all(connections(node, key) <= 2 for node in cluster.nodes)
