"""Stores with the tests' catalogues, on one server and on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ephemera import keyspace
from ephemera.keyspace import Store
from tests.patterns import lock_fixtures
from tests.patterns.session_fixtures import CATALOGUE


@pytest.fixture
async def accounts(url: str) -> AsyncIterator[Store]:
    """A store for sessions."""
    async with keyspace.connect(url, CATALOGUE) as store:
        yield store


@pytest.fixture(params=["server", "redis7", "cluster"])
async def locked(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store for locks, on Valkey, on Redis 7 and then on a cluster."""
    async with keyspace.connect(request.getfixturevalue(request.param).url, lock_fixtures.CATALOGUE) as store:
        yield store
