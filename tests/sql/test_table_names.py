"""Names of the library's tables that a service chooses: those of write-behind, and of the versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidDeclaration, InvalidValue, SchemaMismatch
from ephemera.patterns.events import OnceGuard
from ephemera.patterns.jobs import Jobs
from ephemera.patterns.locks import FenceGuard
from ephemera.patterns.write_behind import (
    Applied,
    Batch,
    CounterTable,
    DeferredCounters,
    DeferredRecords,
    Flusher,
    RecordTable,
    SinkTables,
    create_tables,
)
from ephemera.sql import SchemaVersion, include_object, migrate, schemas_of, upgrade_sql, versions
from tests.patterns.write_behind_fixtures import NO_DELAY, Vote
from tests.sql.databases import empty_database, proposals

_COLUMNS = ("user_id", "match_id", "choice")


class Shop:
    """A service whose tables all have names of its own."""

    def __init__(self, place: str | None, versions: str = "shop_versions") -> None:
        self.metadata = sa.MetaData(schema=place, info={"ephemera_version_table": versions})
        self.tables = SinkTables("shop_flush", self.metadata)
        self.catalogue = Catalogue("table-names")
        self.jobs = Jobs(
            self.catalogue, "shop-job:{job_id}", queues=("w",), name="shop_jobs", metadata=self.metadata
        )
        self.hits = DeferredCounters(
            self.catalogue, "hits", key=["page"], measures=["n"], purpose="Hits", tables=self.tables
        )
        self.votes = DeferredRecords(self.catalogue, "votes", Vote, purpose="Votes", tables=self.tables)
        prefix = "" if place is None else f"{place}."
        self.once = OnceGuard(f"{prefix}shop_once", version_table=versions)
        self.fences = FenceGuard(f"{prefix}shop_fences", version_table=versions)
        own = sa.MetaData(schema=place)
        self.pages = sa.Table(
            "pages", own, sa.Column("page", sa.Text, primary_key=True), sa.Column("n", sa.BigInteger)
        )
        self.voted = sa.Table("voted", own, *(sa.Column(name, sa.Text) for name in _COLUMNS))
        self.own = own

    @property
    def all(self) -> tuple[Any, ...]:
        """Everything that has tables."""
        return self.catalogue, self.once, self.fences


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on an empty database."""
    async with empty_database(postgres) as opened:
        yield opened


async def _tables(engine: AsyncEngine) -> set[str]:
    """Every table of a database, with its schema unless that is the default."""
    listed = sa.text("SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^(pg_|information_)'")
    async with engine.connect() as sql:
        return {name if place == "public" else f"{place}.{name}" for place, name in await sql.execute(listed)}


@pytest.mark.parametrize("place", [None, "shop"])
async def test_every_table_has_the_chosen_name(engine: AsyncEngine, place: str | None) -> None:
    """After `migrate` there are the chosen tables, and none of ours beside them; Alembic proposes nothing."""
    shop = Shop(place)
    await migrate(engine, *shop.all)
    names = {table.fullname for schema in schemas_of(*shop.all) for table in schema.tables}
    prefix = "" if place is None else f"{place}."
    assert {f"{prefix}shop_flush_{each}" for each in ("last_batches", "rejected", "idempotency")} < names
    assert await _tables(engine) == names | {f"{prefix}shop_versions"}
    assert all(each.is_current for each in await versions(engine, *shop.all))
    assert await proposals(engine, shop.metadata, include_object=include_object) == []
    assert await proposals(engine, sa.MetaData(), include_object=include_object) == []


@pytest.mark.parametrize("place", [None, "shop"])
async def test_batches_use_the_chosen_tables(server: Valkey, engine: AsyncEngine, place: str | None) -> None:
    """Counters and records are flushed, rejected and repeated rows are found, all in the chosen tables."""
    shop = Shop(place)
    await migrate(engine, *shop.all)
    async with engine.begin() as sql:
        await sql.run_sync(shop.own.create_all)
    hits = CounterTable(engine, shop.pages, shop.hits)
    votes = RecordTable(engine, shop.voted, tables=shop.tables)
    once: dict[str, Any] = {"page": "a", "n": 3, "idempotency_key": f"in {place}"}
    async with connect(server.url, shop.catalogue) as store:
        bound = store[shop.hits]
        await bound.add(**once)
        assert (await Flusher(bound, hits, **NO_DELAY).flush()).batches == 1
        assert not await bound.add(**once, fallback=hits)
        await store[shop.votes].append(Vote("7", "final\x00", "a"), Vote("8", "final", "b"))
        flushed = await Flusher(store[shop.votes], votes, **NO_DELAY).flush()
    assert (flushed.rejected, len(await votes.rejected("votes"))) == (1, 1)
    assert (await hits.totals(0, ("a",)))[2] == {"n": 3}
    await votes.delete_rejected(*await votes.rejected("votes"))
    assert await votes.rejected("votes") == []
    assert not {each for each in await _tables(engine) if "write_behind" in each or "ephemera" in each}


async def test_two_sets_of_tables_know_nothing_of_each_other(engine: AsyncEngine) -> None:
    """A batch that one set has is new to another, and to the default tables."""
    own = sa.MetaData()
    voted = sa.Table("voted", own, *(sa.Column(name, sa.Text) for name in _COLUMNS))
    async with engine.begin() as sql:
        await sql.run_sync(own.create_all)
    batch = Batch("votes", 0, "epoch", 1, _COLUMNS, [("7", "final", "a")])
    for tables in (SinkTables("one"), SinkTables("two"), None):
        with pytest.raises(SchemaMismatch):
            await RecordTable(engine, voted, tables=tables).apply(batch)
        await create_tables(engine, tables)
        sink = RecordTable(engine, voted, tables=tables)
        assert await sink.apply(batch) == Applied()
        assert await sink.apply(batch) == Applied(duplicate=True)


async def test_a_flusher_refuses_a_sink_with_other_tables(server: Valkey, engine: AsyncEngine) -> None:
    """What is migrated for a declaration, and what its sink uses, must be the same tables."""
    shop = Shop(None)
    async with connect(server.url, shop.catalogue) as store:
        with pytest.raises(InvalidValue, match="a sink with <SinkTables 'shop_flush'>"):
            Flusher(store[shop.votes], RecordTable(engine, shop.voted))


def test_the_sql_to_review_has_the_chosen_names() -> None:
    """`ephemera migrate sql` prints the chosen names, and no others of ours."""
    shop = Shop("shop")
    sql = upgrade_sql([SchemaVersion(schema, 0, 0) for schema in schemas_of(*shop.all)])
    assert "CREATE TABLE IF NOT EXISTS shop.shop_versions" in sql
    assert "INSERT INTO shop.shop_versions" in sql
    assert "ephemera_schema" not in sql
    assert "write_behind_" not in sql


def test_a_strange_name_is_refused() -> None:
    """The name is part of the names of tables and indexes."""
    with pytest.raises(InvalidDeclaration, match="is not a plain name"):
        SinkTables("a; DROP TABLE users")
