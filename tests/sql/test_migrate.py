"""Migrations: what they create, record and refuse, and an upgrade from one version to the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa
from alembic.operations import Operations
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ephemera import connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidDeclaration, SchemaMismatch
from ephemera.patterns.write_behind import Batch, RecordTable
from ephemera.sql import (
    Revision,
    SchemaVersion,
    SqlSchema,
    create_declared_tables,
    migrate,
    schemas_of,
    upgrade,
    upgrade_sql,
    verify,
    versions,
)
from tests.sql.databases import empty_database, proposals, url_of
from tests.sql.declared_tables import Declared


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on an empty database."""
    async with empty_database(postgres) as opened:
        yield opened


def _first_tables(name: str) -> list[sa.Table]:
    return [sa.Table(name, sa.MetaData(), sa.Column("id", sa.Text, primary_key=True))]


def _create_first_tables(op: Operations, schema: SqlSchema) -> None:
    create_declared_tables(op, SqlSchema(schema.component, schema.name, _first_tables(schema.name)))


def _add_note(op: Operations, schema: SqlSchema) -> None:
    op.add_column(schema.name, sa.Column("note", sa.Text))


def _version_1(name: str = "parts") -> SqlSchema:
    """A component as its first release has it."""
    return SqlSchema("test", name, _first_tables(name))


def _version_2(name: str = "parts", *, breaks_older: bool = False) -> SqlSchema:
    """The same as its second release has it: one column more."""
    columns = sa.Column("id", sa.Text, primary_key=True), sa.Column("note", sa.Text)
    revisions = Revision(_create_first_tables), Revision(_add_note, breaks_older=breaks_older)
    return SqlSchema("test", name, [sa.Table(name, sa.MetaData(), *columns)], revisions=revisions)


async def _found(engine: AsyncEngine, *schemas: Any) -> list[int]:
    return [version.found for version in await versions(engine, *schemas)]


async def test_versions_are_recorded_per_declaration(engine: AsyncEngine) -> None:
    """Each declaration has a version of its own, whatever the others of its component have."""
    declared = Declared(sa.MetaData(schema="app"))
    assert await _found(engine, *declared.all) == [0] * 8
    await migrate(engine, declared.mails)
    assert await _found(engine, declared.mails, declared.jobs) == [1, 0]
    before = await migrate(engine, *declared.all)
    assert [version.found for version in before] == [0, 1, *[0] * 6]
    assert await _found(engine, *declared.all) == [1] * 8


async def test_an_upgrade_keeps_rows_and_equals_a_new_installation(engine: AsyncEngine) -> None:
    """Version 2 on top of version 1 keeps its rows, and both ways lead to the declared tables."""
    await migrate(engine, _version_1())
    async with engine.begin() as sql:
        await sql.execute(sa.text("INSERT INTO parts (id) VALUES ('kept')"))
    upgraded, new = _version_2(), _version_2("others")
    await migrate(engine, upgraded, new)
    assert await _found(engine, upgraded, new) == [2, 2]
    async with engine.begin() as sql:
        assert (await sql.execute(sa.select(upgraded.tables[0]))).all() == [("kept", None)]
    both = [upgraded.tables[0].metadata, new.tables[0].metadata]
    mine = {"include_name": lambda name, kind, _: kind != "table" or name in ("parts", "others")}
    assert await proposals(engine, *both, **mine) == []


async def test_a_failed_revision_changes_nothing(engine: AsyncEngine) -> None:
    """All declarations are upgraded in one transaction: if one fails, neither tables nor versions change."""

    def fail(op: Operations, _: SqlSchema) -> None:
        op.execute("SELECT 1/0")

    table = sa.Table("broken", sa.MetaData(), sa.Column("id", sa.Text, primary_key=True))
    broken = SqlSchema(
        "test", "broken", [table], revisions=[Revision(create_declared_tables), Revision(fail)]
    )
    with pytest.raises(sa.exc.DataError):
        await migrate(engine, _version_1(), broken)
    assert await _found(engine, _version_1(), broken) == [0, 0]
    await migrate(engine, _version_1())


async def test_missing_and_older_tables_are_refused(engine: AsyncEngine) -> None:
    """Tables that are missing or older than the code raise an error that names the command."""
    with pytest.raises(SchemaMismatch, match=r"are missing.*ephemera migrate up") as missing:
        await verify(engine, _version_2())
    assert (missing.value.found, missing.value.needed) == (0, 2)
    await migrate(engine, _version_1())
    with pytest.raises(SchemaMismatch, match=r"have version 1.*needs version 2.*ephemera migrate up"):
        await verify(engine, _version_2())
    await migrate(engine, _version_2())
    await verify(engine, _version_2())


@pytest.mark.parametrize("breaks_older", [False, True])
async def test_newer_tables_are_refused_only_if_they_break_older_code(
    engine: AsyncEngine, breaks_older: bool
) -> None:
    """Older code keeps working during a rolling deploy, unless the newer revision says that it cannot."""
    await migrate(engine, _version_2(breaks_older=breaks_older))
    if breaks_older:
        with pytest.raises(SchemaMismatch, match=r"have version 2.*pip install --upgrade ephemera-data"):
            await verify(engine, _version_1())
    else:
        await verify(engine, _version_1())
    await migrate(engine, _version_1())  # leaves newer tables alone
    assert await _found(engine, _version_1()) == [2]


async def test_each_pattern_checks_its_tables_on_first_use(engine: AsyncEngine, server: Valkey) -> None:
    """Jobs, planners and sinks refuse to work without their tables, and work as soon as they are there."""
    declared = Declared(sa.MetaData())
    visits = sa.Table("visits", sa.MetaData(), sa.Column("page", sa.Text))
    sink, batch = RecordTable(engine, visits), Batch("visits", 0, "epoch", 1, ("page",), [("home",)])
    resources = {declared.jobs: engine, declared.news: engine}
    async with connect(server.url, declared.catalogue, resources=resources) as store:
        jobs, news = store[declared.jobs], store[declared.news]
        for use in (jobs.find, news.queue_length, lambda: sink.apply(batch)):
            with pytest.raises(SchemaMismatch, match="ephemera migrate up"):
                await use()
        await jobs.create_tables()
        assert await jobs.find() == []
        with pytest.raises(SchemaMismatch, match="planner 'news'"):
            await news.queue_length()
        await news.create_tables()
        assert await news.queue_length() == 0


async def test_the_check_is_made_once(engine: AsyncEngine, server: Valkey) -> None:
    """After the first use, nothing reads the versions again."""
    declared, statements = Declared(sa.MetaData()), list[str]()
    await migrate(engine, declared.jobs)
    sa.event.listen(
        engine.sync_engine, "before_cursor_execute", lambda *call: statements.append(str(call[2]))
    )
    async with connect(server.url, declared.catalogue, resources={declared.jobs: engine}) as store:
        await asyncio.gather(*(store[declared.jobs].find() for _ in range(3)))
        assert any("ephemera_schema" in statement for statement in statements)
        statements.clear()
        await store[declared.jobs].find()
    assert len(statements) == 1


async def test_tables_without_a_version_are_refused(engine: AsyncEngine) -> None:
    """A table that something else created is neither used nor changed."""
    async with engine.begin() as sql:
        await sql.execute(sa.text("CREATE TABLE parts (mine text)"))
    with pytest.raises(InvalidDeclaration, match="parts exists, and was not created by migrations"):
        await migrate(engine, _version_1())


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "REPEATABLE READ"])
async def test_the_engines_isolation_level_does_not_matter(engine: AsyncEngine, level: Any) -> None:
    """Concurrent upgrades are serialized by the lock also on engines with another isolation level."""
    engine = engine.execution_options(isolation_level=level)
    before = await asyncio.gather(*(migrate(engine, Declared(sa.MetaData()).catalogue) for _ in range(4)))
    assert sorted(versions[0].found for versions in before) == [0, 1, 1, 1]


async def test_an_upgrade_can_be_part_of_a_migration_of_ones_own(engine: AsyncEngine) -> None:
    """`upgrade` works in a transaction of the caller, who may roll it back."""
    async with engine.connect() as sql:
        await sql.run_sync(upgrade, _version_1())
        await sql.rollback()
    assert await _found(engine, _version_1()) == [0]
    async with engine.begin() as sql:
        await sql.run_sync(upgrade, _version_1())
    assert await _found(engine, _version_1()) == [1]


@pytest.mark.parametrize("place", [None, "app"])
async def test_the_printed_sql_does_what_an_upgrade_does(engine: AsyncEngine, place: str | None) -> None:
    """The printed statements create exactly the declared tables, and record their versions."""
    declared = Declared(sa.MetaData(schema=place))
    schemas = schemas_of(*declared.all)
    printed = upgrade_sql([SchemaVersion(schema, 0, 0) for schema in schemas])
    with psycopg.connect(url_of(engine), autocommit=True) as sql:
        sql.execute(printed.encode())
    assert await _found(engine, *schemas) == [1] * len(schemas)
    ours = {table.metadata for schema in schemas for table in schema.tables}
    mine = {"include_name": lambda name, kind, _: kind != "table" or name != "ephemera_schema"}
    assert await proposals(engine, *ours, **mine) == []


def test_the_printed_sql_is_always_the_same() -> None:
    """The statements have one order, so that a file of them can be compared with the last one."""
    printed = {
        upgrade_sql([SchemaVersion(schema, 0, 0) for schema in schemas_of(*Declared(sa.MetaData()).all)])
        for _ in range(3)
    }
    assert len(printed) == 1


async def test_a_service_needs_no_right_to_create(engine: AsyncEngine, server: Valkey) -> None:
    """With rights on the rows alone, jobs work, and so does an upgrade that has nothing to do."""
    declared, role = Declared(sa.MetaData()), f"limited_{uuid4().hex}"
    await migrate(engine, declared.jobs)
    tables = ", ".join(table.name for table in declared.jobs.tables)
    async with engine.begin() as sql:
        await sql.execute(sa.text(f"CREATE ROLE {role}"))
        await sql.execute(sa.text(f"GRANT SELECT ON ephemera_schema TO {role}"))
        await sql.execute(sa.text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}"))
    limited = create_async_engine(engine.url, connect_args={"options": f"-c role={role}"})
    async with connect(server.url, declared.catalogue, resources={declared.jobs: limited}) as store:
        await store[declared.jobs].create_tables()
        assert await store[declared.jobs].find() == []
    with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
        await migrate(limited, declared.mails)
    await limited.dispose()


async def test_the_printed_sql_of_an_upgrade(engine: AsyncEngine) -> None:
    """For a database with version 1, only the step to version 2 is printed, and it can be executed."""
    await migrate(engine, _version_1())
    printed = upgrade_sql(await versions(engine, _version_2()))
    assert "ADD COLUMN note" in printed
    assert "CREATE" not in printed
    with psycopg.connect(url_of(engine), autocommit=True) as sql:
        sql.execute(printed.encode())
    await verify(engine, _version_2())


def test_two_declarations_of_one_name_are_refused() -> None:
    """Two declarations of a component with one name would share their tables, which is refused."""
    with pytest.raises(InvalidDeclaration, match="two declarations of test have this name"):
        schemas_of(_version_1(), _version_2())
    with pytest.raises(InvalidDeclaration, match="has no SQL tables"):
        schemas_of(cast("Any", object()))
