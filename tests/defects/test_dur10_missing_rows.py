"""DUR10: a batch for `insert=False` with some missing rows was halved again and again, for minutes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.embedded import Postgres
from ephemera.patterns.write_behind import Applied, Batch, CounterTable
from ephemera.patterns.write_behind._tables import NoSuchRow
from tests.patterns.write_behind_fixtures import SHARES, VIEWS, prepare_database, rows

COLUMNS = ("presentation_id", "view_count")


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on a database with all tables, empty."""
    engine = await prepare_database(postgres)
    yield engine
    await engine.dispose()


@pytest.mark.parametrize("missing", [1, 100])
async def test_dur10_missing_rows_cost_no_further_statements(engine: AsyncEngine, missing: int) -> None:
    """However many rows are missing, a batch takes the same few statements, and rejects just those."""
    counted = [(f"p{number}", 2) for number in range(1000)]
    present = counted[missing:]
    async with engine.begin() as sql:
        await sql.execute(sa.insert(SHARES), [{"presentation_id": name} for name, _ in present])
    statements: list[str] = []

    @sa.event.listens_for(engine.sync_engine, "before_cursor_execute")
    def _(*called: Any) -> None:
        statements.append(called[2])

    sink = CounterTable(engine, SHARES, VIEWS, insert=False)
    assert await sink.apply(Batch("views", 0, "e", 1, COLUMNS, [*counted])) == Applied(rejected=missing)
    assert len(statements) < 20
    assert await rows(engine, SHARES) == sorted(present)
    refused = await sink.rejected("views", limit=1000)
    assert sorted(each.values()["presentation_id"] for each in refused) == sorted(
        name for name, _ in counted[:missing]
    )


async def test_dur10_a_direct_write_for_a_missing_row_raises(engine: AsyncEngine) -> None:
    """Without a batch there is no table of rejected rows: the caller gets the reason."""
    sink = CounterTable(engine, SHARES, VIEWS, insert=False)
    with pytest.raises(NoSuchRow, match="no row with this presentation_id"):
        await sink.write(COLUMNS, [("gone", 1)])
