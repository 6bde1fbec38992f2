"""Stores with the tests' catalogues, on one server and on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from ephemera import keyspace
from ephemera.embedded import Cluster, Valkey
from ephemera.keyspace import Store
from tests import isolation, least_privilege
from tests.patterns import lock_fixtures
from tests.patterns.session_fixtures import CATALOGUE
from tests.wire.debian_redis import BINARY, DebianRedis


@pytest.fixture(params=["server", "redis7", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """Where a pattern must work: on Valkey, on Redis 7 and on a cluster."""
    running: Valkey | DebianRedis | Cluster = request.getfixturevalue(request.param)
    return running.url


@pytest.fixture
async def accounts(url: str) -> AsyncIterator[Store]:
    """A store for sessions."""
    async with keyspace.connect(url, CATALOGUE) as store:
        yield store


@pytest.fixture(scope="session")
def redis7() -> Iterator[DebianRedis]:
    """Debian's Redis 7, where it is installed."""
    if not BINARY.exists():
        pytest.skip(f"Redis 7 is not installed: there is no {BINARY}")
    with DebianRedis() as running:
        least_privilege.share(running)
        isolation.share(running)
        yield running


@pytest.fixture(params=["server", "redis7", "cluster"])
async def locked(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store for locks, on Valkey, on Redis 7 and then on a cluster."""
    async with keyspace.connect(request.getfixturevalue(request.param).url, lock_fixtures.CATALOGUE) as store:
        yield store
