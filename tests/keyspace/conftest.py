"""Stores on Valkey and on Redis 7 for tests of the keyspace; property tests have no deadline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import settings

from ephemera.embedded import Valkey
from ephemera.keyspace import Store, connect
from tests import least_privilege
from tests.keyspace.every_kind import catalogue
from tests.wire.debian_redis import BINARY, DebianRedis

settings.register_profile("keyspace", deadline=None)
settings.load_profile("keyspace")


@pytest.fixture(scope="session", params=["valkey", "redis7"])
def url(request: pytest.FixtureRequest, server: Valkey) -> Iterator[str]:
    """A server of each supported kind."""
    if request.param == "valkey":
        yield server.url
    elif not BINARY.exists():
        pytest.skip(f"Redis 7 is not installed: there is no {BINARY}")
    else:
        with DebianRedis() as redis:
            least_privilege.share(redis)
            yield redis.url


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with the keyspaces of `every_kind.py`; each test uses ids that hold its own name."""
    async with connect(url, catalogue) as opened:
        yield opened
