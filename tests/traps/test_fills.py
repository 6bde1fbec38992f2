"""Trap I4: a reader that loaded the old row writes it back after the updater's delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import Store, connect
from tests.patterns.session_fixtures import new_user
from tests.patterns.test_entitlements import CATALOGUE, LIMITS, PlanLimits, Table
from tests.wire.conditions import eventually


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store for entitlements."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


async def test_i4_an_old_row_is_not_written_back_after_its_change(store: Store, server: Valkey) -> None:
    """Cache-aside keeps the old row for its whole lifetime; a fenced fill is refused."""
    table, organization = Table(), new_user()
    table.rows[organization] = PlanLimits("old")
    naive = f"naive:{organization}"
    assert await store.call("GET", naive) is None
    loaded = await table.load(organization)  # the reader has the old row
    table.rows[organization] = PlanLimits("new")  # the updater commits
    await store.call("DEL", naive)
    assert loaded is not None
    await store.call("SETEX", naive, 300, loaded.plan_name)
    assert await store.call("GET", naive) == b"old"

    table.rows[organization] = PlanLimits("old")
    table.gate.clear()
    async with connect(server.url, CATALOGUE) as elsewhere:
        reading = asyncio.create_task(elsewhere[LIMITS].get(table.load, organization_id=organization))
        await eventually(lambda: table.loads == 2)
        table.rows[organization] = PlanLimits("new")
        await store[LIMITS].invalidate(organization_id=organization)
        table.gate.set()
        assert await reading == PlanLimits("old")
        for reader in (store, elsewhere):
            assert await reader[LIMITS].get(table.load, organization_id=organization) == PlanLimits("new")


async def test_i4_fills_and_changes_in_any_order_never_leave_an_old_row(store: Store) -> None:
    """With concurrent readers and updaters, a read after an invalidation has that change or a newer one."""
    organization, version = new_user(), 0

    async def load(organization_id: str) -> PlanLimits:
        seen = version
        for _ in range(seen % 3):
            await asyncio.sleep(0)
        return PlanLimits(organization_id, seen)

    async def update() -> None:
        nonlocal version
        for _ in range(200):
            version += 1
            await store[LIMITS].invalidate(organization_id=organization)

    async def read() -> None:
        invalidated = -1
        while version < 200:
            at_least = invalidated
            found = await store[LIMITS].get(load, organization_id=organization)
            assert found is not None
            assert found.storage_gb >= at_least
            invalidated = version - 1  # every change but the latest was invalidated before we ask again

    await asyncio.gather(update(), *(read() for _ in range(5)))
    found = await store[LIMITS].get(load, organization_id=organization)
    assert found == PlanLimits(organization, 200)
