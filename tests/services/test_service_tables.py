"""The tables of services are versioned: created, upgraded and checked as those of patterns are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Connection, MetaData, Table, Text, text
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue
from ephemera.embedded import Postgres
from ephemera.errors import InvalidDeclaration, SchemaMismatch
from ephemera.patterns.jobs import sql_engine
from ephemera.sql import Revision, create_declared_tables, migrate, upgrade_sql, versions
from ephemera_services import feed, identity, league, scripture, slides
from ephemera_services.feed.keys import metadata as feed_tables
from ephemera_services.identity.tables import metadata as identity_tables
from ephemera_services.league.tables import metadata as league_tables
from ephemera_services.runtime import declare_tables
from ephemera_services.runtime.resources import open_engine
from ephemera_services.scripture.tables import metadata as scripture_tables
from ephemera_services.slides.tables import metadata as slides_tables

SERVICES = [
    pytest.param(slides.catalogue, slides_tables, id="slides"),
    pytest.param(identity.catalogue, identity_tables, id="identity"),
    pytest.param(scripture.catalogue, scripture_tables, id="scripture"),
    pytest.param(feed.catalogue, feed_tables, id="feed"),
    pytest.param(league.catalogue, league_tables, id="league"),
]


@pytest.fixture
def url(postgres: Postgres) -> str:
    """A database that is empty."""
    return postgres.database(f"tables_{uuid4().hex}")


@pytest.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on it."""
    opened = sql_engine(url)
    yield opened
    await opened.dispose()


@pytest.mark.parametrize(("catalogue", "metadata"), SERVICES)
async def test_migrations_lead_to_the_declared_tables(
    catalogue: Catalogue, metadata: MetaData, engine: AsyncEngine
) -> None:
    """After `ephemera migrate up`, the database has no difference to the tables that the code uses."""
    await migrate(engine, catalogue)

    def differences(connection: Connection) -> Any:
        def is_theirs(name: str | None, kind: str, _: Any) -> bool:
            return kind != "schema" or name == metadata.schema

        options = {"include_schemas": True, "include_name": is_theirs, "compare_type": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        return [each for each in found if "ephemera_schema" not in str(each)]

    async with engine.connect() as sql:
        assert await sql.run_sync(differences) == []
    assert all(each.is_current for each in await versions(engine, catalogue))


@pytest.mark.parametrize(("catalogue", "metadata"), SERVICES)
async def test_a_start_migrates_and_a_second_one_finds_it_done(
    catalogue: Catalogue, metadata: MetaData, url: str
) -> None:
    """Services that start on an empty database have versions; tables without one are refused by name."""
    for _ in range(2):
        async with open_engine(url, metadata, catalogue) as engine:
            found = {each.schema.component: each.found for each in await versions(engine, catalogue)}
            assert found["service"] == 1
    async with open_engine(url, metadata, catalogue) as engine, engine.begin() as sql:
        await sql.execute(text(f"DELETE FROM {metadata.schema}.ephemera_schema WHERE component = 'service'"))
    with pytest.raises(InvalidDeclaration, match=f"the table {metadata.schema}."):
        async with open_engine(url, metadata, catalogue):
            pass


class _Shop:
    """A service of one table, in a release of its history."""

    def __init__(self, *later: Revision, with_note: bool = False) -> None:
        self.catalogue = Catalogue("shop")
        self.metadata = MetaData(schema="shop")
        columns = [Column("note", Text)] if with_note else []
        self.orders = Table("orders", self.metadata, Column("id", Text, primary_key=True), *columns)
        first = Revision(_without_note if with_note else create_declared_tables)
        declare_tables(self.catalogue, self.metadata, revisions=(first, *later))


def _without_note(op: Any, _: Any) -> None:
    op.create_table("orders", Column("id", Text, primary_key=True), schema="shop")


def _add_note(op: Any, _: Any) -> None:
    op.add_column("orders", Column("note", Text), schema="shop")


async def test_an_upgrade_keeps_rows_and_may_exclude_older_code(url: str) -> None:
    """A start of the new release upgrades; the old one is refused then if the revision says so."""
    old = _Shop()
    async with open_engine(url, old.metadata, old.catalogue) as engine, engine.begin() as sql:
        await sql.execute(old.orders.insert().values(id="first"))
    new = _Shop(Revision(_add_note, breaks_older=True), with_note=True)
    async with open_engine(url, new.metadata, new.catalogue) as engine, engine.connect() as sql:
        rows = (await sql.execute(new.orders.select())).all()
        assert [tuple(row) for row in rows] == [("first", None)]
    with pytest.raises(SchemaMismatch):
        async with open_engine(url, old.metadata, old.catalogue):
            pass


async def test_the_statements_can_be_read_first(engine: AsyncEngine) -> None:
    """`ephemera migrate sql --catalogue slides` prints the tables of the service too."""
    printed = upgrade_sql(await versions(engine, slides.catalogue))
    assert "CREATE TABLE slides.presentation_slides" in printed
    assert "'service', 'slides', 1, 1" in printed
