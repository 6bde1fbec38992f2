"""Servers for one test alone, because an audit sees everything on a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey
from tests.operations.audit_fixtures import stock
from tests.wire.debian_redis import BINARY, DebianRedis


@pytest.fixture(scope="session")
def own_valkey() -> Iterator[Valkey]:
    """A Valkey that is emptied before each test."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture(scope="session")
def own_redis() -> Iterator[DebianRedis]:
    """Redis 7 as packaged by Debian, emptied before each test."""
    if not BINARY.exists():
        pytest.skip(f"Redis 7 is not installed: there is no {BINARY}")
    with DebianRedis() as running:
        yield running


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[Cluster]:
    """Three masters with a replica each, emptied before each test."""
    with embedded.cluster(node_timeout=60_000) as running:
        yield running


@pytest.fixture(params=["valkey", "redis"])
def own_url(request: pytest.FixtureRequest) -> str:
    """A server of each supported kind."""
    return str(request.getfixturevalue(f"own_{request.param}").url)


@pytest.fixture
async def shop(own_url: str) -> str:
    """The URL of a server that holds what the catalogue of `audit_fixtures` declares, and nothing else."""
    await stock(own_url)
    return own_url
