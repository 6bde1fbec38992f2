"""DUR16: the values of a rejected row came back as texts: bytes as their `repr`."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from ephemera.embedded import Postgres
from ephemera.patterns.write_behind import Applied, Batch, RecordTable
from tests.patterns.write_behind_fixtures import prepare_database

ROW: dict[str, Any] = {
    "number": 13,
    "data": b"\x00\xff'",
    "at": datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    "day": date(2026, 3, 29),
    "hour": time(1, 30),
    "took": timedelta(seconds=1.5),
    "id": UUID(int=7),
    "price": Decimal("0.10"),
    "text": "ß",
    "nothing": None,
}
KINDS: dict[str, Any] = {
    "data": sa.LargeBinary,
    "at": sa.DateTime(timezone=True),
    "day": sa.Date,
    "hour": sa.Time,
    "took": sa.Interval,
    "id": sa.Uuid,
    "price": sa.Numeric,
}
TABLE = sa.Table(
    "dur16",
    sa.MetaData(),
    *(sa.Column(name, KINDS.get(name, sa.Integer if name == "number" else sa.Text)) for name in ROW),
    sa.CheckConstraint("number <> 13"),
)


async def test_dur16_rejected_values_round_trip(postgres: Postgres) -> None:
    """Bytes, times, ids and decimals of a rejected row can be recorded again without a change."""
    engine = await prepare_database(postgres)
    async with engine.begin() as sql:
        await sql.run_sync(TABLE.metadata.drop_all)
        await sql.run_sync(TABLE.metadata.create_all)
    sink = RecordTable(engine, TABLE)
    done = await sink.apply(Batch("dur16", 0, "e", 1, tuple(ROW), [tuple(ROW.values())]))
    assert done == Applied(rejected=1)
    (refused,) = await sink.rejected("dur16")
    assert refused.values() == ROW
    again = {**refused.values(), "number": 14}
    await sink.write(tuple(again), [tuple(again.values())])
    async with engine.connect() as sql:
        (stored,) = (await sql.execute(sa.select(TABLE))).mappings()
        assert dict(stored) == again
    await engine.dispose()
