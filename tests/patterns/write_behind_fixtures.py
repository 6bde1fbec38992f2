"""Write-behind for tests: counters, records, their tables and an engine for them."""

from __future__ import annotations

from datetime import timedelta
from itertools import chain
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ephemera import Catalogue, Store
from ephemera.embedded import Postgres
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords, create_tables


class Vote(msgspec.Struct):
    """One vote of a user for a match."""

    user_id: str
    match_id: str
    choice: str


class Event(msgspec.Struct):
    """Something that happened, with a part that SQL keeps as JSON."""

    number: int
    text: str | None = None
    details: dict[str, int] = msgspec.field(default_factory=dict)


NO_DELAY: dict[str, Any] = {"write_delay": timedelta(0)}
"""Options of a flusher whose server need not reach its disk first."""

CATALOGUE = Catalogue("test-write-behind")
CLICKS = DeferredCounters(
    CATALOGUE,
    "clicks",
    key=("page", "day"),
    measures=("clicks", "spent"),
    purpose="Clicks a page and day",
    shards=4,
)
VIEWS = DeferredCounters(
    CATALOGUE,
    "presentation_view_count",
    key=("presentation_id",),
    measures=("view_count",),
    purpose="Views of presentations",
    flush_every=timedelta(milliseconds=200),
)
FEW = DeferredCounters(
    CATALOGUE, "few", key=("page",), measures=("clicks",), purpose="A small backlog", backlog=3, shards=1
)
WIDE = DeferredCounters(
    CATALOGUE,
    "wide",
    key=("page",),
    measures=tuple(f"m{number}" for number in range(8)),
    purpose="Many measures",
)
VOTES = DeferredRecords(CATALOGUE, "votes", Vote, purpose="Votes", flush_every=timedelta(milliseconds=200))
EVENTS = DeferredRecords(
    CATALOGUE,
    "events",
    Event,
    purpose="Events",
    batch=10,
    backlog=200,
    shards=2,
    flush_every=timedelta(days=1),
)

METADATA = sa.MetaData()
CLICKED = sa.Table(
    "behind_clicks",
    METADATA,
    sa.Column("page", sa.Text, primary_key=True),
    sa.Column("day", sa.Text, primary_key=True),
    sa.Column("clicks", sa.BigInteger, nullable=False),
    sa.Column("spent", sa.BigInteger, nullable=False),
    sa.CheckConstraint("page <> 'forbidden'", name="not_forbidden"),
)
SHARES = sa.Table(
    "behind_shares",
    METADATA,
    sa.Column("presentation_id", sa.Text, primary_key=True),
    sa.Column("view_count", sa.BigInteger, nullable=False, server_default="0"),
)
VOTED = sa.Table(
    "behind_votes",
    METADATA,
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("match_id", sa.Text, primary_key=True),
    sa.Column("choice", sa.Text, nullable=False),
)
HAPPENED = sa.Table(
    "behind_events",
    METADATA,
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("text", sa.String(10)),
    sa.Column("details", sa.JSON),
)


def sql_url(postgres: Postgres) -> str:
    """Return the URL in the form SQLAlchemy takes."""
    return postgres.url.replace("postgresql://", "postgresql+psycopg://", 1)


async def prepare_database(postgres: Postgres) -> AsyncEngine:
    """Return an engine on a database with all tables, empty."""
    engine = create_async_engine(sql_url(postgres))
    await create_tables(engine)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.drop_all)
        await connection.run_sync(METADATA.create_all)
        await connection.execute(sa.text("DELETE FROM write_behind_last_batches"))
        await connection.execute(sa.text("DELETE FROM write_behind_rejected"))
        await connection.execute(sa.text("DELETE FROM write_behind_idempotency"))
    return engine


async def rows(engine: AsyncEngine, table: sa.Table) -> list[tuple[Any, ...]]:
    """Return all rows of a table, in order."""
    async with engine.connect() as connection:
        found = await connection.execute(sa.select(table).order_by(*list(table.c)[:2]))
        return [tuple(row) for row in found]


async def empty_backlog(store: Store) -> None:
    """Empty every shard."""
    found: list[tuple[str, ...]] = []
    for counters in (CLICKS, VIEWS, FEW):
        found += counters.shards.keys(counters.pending, counters.sealed, counters.shards.state)
    for records in (VOTES, EVENTS):
        found += records.shards.keys(records.pending, records.shards.state)
    for key in chain(*found):
        await store.client("queue").call("UNLINK", key)
