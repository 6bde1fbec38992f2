"""DUR14: when Redis was down at the end of a reservation's block, that hid the error of the block."""

from __future__ import annotations

import pytest

from ephemera import connect, embedded
from ephemera.embedded import Postgres
from ephemera.errors import ConnectionFailed
from tests.patterns import usage_fixtures
from tests.patterns.usage_fixtures import CATALOGUE, bound_usage
from tests.patterns.write_behind_fixtures import prepare_database


async def test_dur14_the_error_of_the_body_is_raised(postgres: Postgres) -> None:
    """The caller sees why the work failed; a block that ends well, and cannot release, raises the outage."""
    engine = await prepare_database(postgres)
    async with engine.begin() as sql:
        await sql.run_sync(usage_fixtures.METADATA.drop_all)
        await sql.run_sync(usage_fixtures.METADATA.create_all)
    with embedded.valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            usage = bound_usage(store, engine)
            limits = {"tokens": 10}
            first, second = [await usage.reserve("acme", tokens=1, limits=limits) for _ in range(2)]
            server.kill()
            with pytest.raises(RuntimeError, match="why the work failed"):
                async with first:
                    raise RuntimeError("why the work failed")
            with pytest.raises(ConnectionFailed):
                async with second:
                    pass
    await engine.dispose()
