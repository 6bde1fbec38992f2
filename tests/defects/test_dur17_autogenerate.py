"""DUR17: Alembic's autogenerate in a user's project proposed to drop `handled_events`."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from ephemera.embedded import Postgres
from ephemera.sql import include_object, migrate, schemas_of
from ephemera.sql._schema import version_table
from tests.sql.databases import empty_database, proposals
from tests.sql.declared_tables import Declared

PLACES = pytest.mark.parametrize("place", [None, "app"])


@PLACES
async def test_dur17_the_tables_are_what_the_metadata_says(postgres: Postgres, place: str | None) -> None:
    """After `up`, Alembic finds no difference between any declared table and the database."""
    declared = Declared(sa.MetaData(schema=place))
    async with empty_database(postgres) as engine:
        await migrate(engine, *declared.all)
        ours = {table.metadata for schema in schemas_of(*declared.all) for table in schema.tables}
        versions = [version_table(each).metadata for each in {place, None}]
        assert await proposals(engine, *ours, *versions) == []


@PLACES
async def test_dur17_a_project_with_our_tables_in_its_metadata_gets_no_proposals(
    postgres: Postgres, place: str | None
) -> None:
    """With `include_object`, nothing is proposed for our tables in a metadata, migrated or not."""
    declared = Declared(sa.MetaData(schema=place))
    async with empty_database(postgres) as engine:
        assert await proposals(engine, declared.metadata, include_object=include_object) == []
        await migrate(engine, *declared.all)
        assert await proposals(engine, declared.metadata, include_object=include_object) == []


@PLACES
async def test_dur17_a_project_without_our_tables_in_its_metadata_gets_no_proposals(
    postgres: Postgres, place: str | None
) -> None:
    """With `include_object`, none of our tables is dropped from a project that does not know them."""
    declared, own = Declared(sa.MetaData(schema=place)), sa.MetaData()
    sa.Table("accounts", own, sa.Column("id", sa.Text, primary_key=True))
    async with empty_database(postgres) as engine:
        await migrate(engine, *declared.all)
        proposed = await proposals(engine, own, include_object=include_object)
        assert [(change, table.name) for change, table in proposed] == [("add_table", "accounts")]
        dropped = {table.name for change, table in await proposals(engine, own) if change == "remove_table"}
        assert {"handled_events", "jobs", "news_channels", "ephemera_schema"} < dropped  # without it


async def test_dur17_columns_of_the_application_are_proposed(postgres: Postgres) -> None:
    """A column that the application adds to a table of ours is proposed, with its index, and nothing else."""
    async with empty_database(postgres) as engine:
        await migrate(engine, *Declared(sa.MetaData()).all)
        changed = Declared(sa.MetaData(), insight_columns=("text", "language")).metadata
        proposed = await proposals(engine, changed, include_object=include_object)
        assert [change[0] for change in proposed] == ["add_column", "add_index"]
        assert (proposed[0][2], proposed[0][3].name) == ("insights", "language")
        without = Declared(sa.MetaData(), insight_columns=()).metadata
        assert await proposals(engine, without, include_object=include_object) == []
