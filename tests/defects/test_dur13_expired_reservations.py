"""DUR13: with more than a hundred expired reservations, a quota that was free was denied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import QuotaExceeded
from tests.patterns import usage_fixtures
from tests.patterns.usage_fixtures import CATALOGUE, bound_usage
from tests.patterns.write_behind_fixtures import prepare_database


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on a database with an empty table of usage."""
    engine = await prepare_database(postgres)
    async with engine.begin() as sql:
        await sql.run_sync(usage_fixtures.METADATA.drop_all)
        await sql.run_sync(usage_fixtures.METADATA.create_all)
    yield engine
    await engine.dispose()


async def test_dur13_no_expired_reservation_denies(server: Valkey, engine: AsyncEngine, key: str) -> None:
    """However many reservations have expired, the first to ask after that gets the whole quota."""
    async with connect(server.url, CATALOGUE) as store:
        usage = bound_usage(store, engine)
        limits = {"tokens": 2500}
        await asyncio.gather(*(usage.reserve(key, tokens=1, limits=limits) for _ in range(2500)))
        expiries = usage._account(key).own[2]
        reserved = await store.call("ZRANGE", expiries, 0, -1)
        await store.call("ZADD", expiries, *(part for each in reserved for part in (1, each)))  # long ago
        whole = await usage.reserve(key, tokens=2500, limits=limits)
        assert (await usage.totals(key)).reserved["tokens"] == 2500
        with pytest.raises(QuotaExceeded):
            await usage.reserve(key, tokens=1, limits=limits)
        assert await whole.release()
        assert (await usage.totals(key)).reserved["tokens"] == 0
