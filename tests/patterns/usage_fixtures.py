"""Usage for tests: a declaration of months, one of days, and their table."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, Store
from ephemera.patterns.usage import BoundUsage, Usage
from ephemera.patterns.write_behind import CounterTable
from tests.resources import with_resources

CATALOGUE = Catalogue("test-usage")
MEASURES = ("presentations", "tokens", "cost_micros")
USAGE = Usage(CATALOGUE, measures=MEASURES, purpose="What organizations use")
DAILY = Usage(
    CATALOGUE,
    "daily",
    measures=("calls", "errors"),
    purpose="Calls a day",
    period="day",
    backlog=2,
    shards=1,
)
METADATA = sa.MetaData()
RECORDS, DAYS = (
    sa.Table(
        name,
        METADATA,
        sa.Column("organization_id", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        *(sa.Column(measure, sa.BigInteger, nullable=False) for measure in usage.counters.measures),
    )
    for name, usage in (("test_usage_records", USAGE), ("test_usage_days", DAILY))
)
BRIEFLY = timedelta(milliseconds=1)


def table_of(engine: AsyncEngine) -> CounterTable:
    """The table of `USAGE`."""
    return CounterTable(engine, RECORDS, USAGE.counters)


def bound_usage(store: Store, engine: AsyncEngine) -> BoundUsage:
    """Bind `USAGE` to a store with its table."""
    return with_resources(store, {USAGE: table_of(engine)})[USAGE]
