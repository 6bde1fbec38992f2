"""Upgrades: all pending revisions in one transaction, by one process at a time, or as SQL to read first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, inspect, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateSchema

from ephemera.errors import InvalidDeclaration
from ephemera.sql._schema import HasTables, SqlSchema, schemas_of, version_table
from ephemera.sql._versions import SchemaVersion, read_versions, unchecked

if TYPE_CHECKING:  # importing Alembic is slow, and only upgrades need it
    from alembic.operations import Operations

_LOCK = select(func.pg_advisory_xact_lock(int.from_bytes(b"ephemera")))
"""One upgrade at a time in a database, until the end of its transaction."""


async def migrate(engine: AsyncEngine, *declarations: HasTables) -> list[SchemaVersion]:
    """Upgrade the tables of declarations, or of all in a catalogue; returns the versions from before.

    It is safe in any number of processes at once. Tables that have the code's version, or a later one, are
    left as they are.
    """
    async with unchecked(engine).connect() as sql:
        # Whatever the engine's default: no snapshot from before the lock, and no commit after each statement.
        await sql.execution_options(isolation_level="READ COMMITTED")
        async with sql.begin():
            return await sql.run_sync(upgrade, *declarations)


def upgrade(connection: Connection, *declarations: HasTables) -> list[SchemaVersion]:
    """Upgrade as part of a connection's transaction, for instance in a migration of your own."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    schemas = schemas_of(*declarations)
    before = read_versions(connection, schemas)
    if all(each.is_current for each in before):
        return before
    connection.execute(_LOCK)
    before = read_versions(connection, schemas)
    for each in before:
        if each.found == 0:
            _refuse_unrecorded_tables(connection, each.schema)
    op = Operations(MigrationContext.configure(connection))
    for place, name in _places(before):
        if place is not None and not inspect(connection).has_schema(place):
            op.execute(CreateSchema(place))
        if not inspect(connection).has_table(name, place):
            op.impl.create_table(version_table(place, name))
    _run_revisions(op, before)
    return before


def upgrade_sql(before: Sequence[SchemaVersion]) -> str:
    """The statements that `upgrade` would execute on a database with these versions."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    written = StringIO()
    options = {"as_sql": True, "output_buffer": written, "literal_binds": True}
    # Not a driver's paramstyle, in which a percent sign is written twice.
    dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    context = MigrationContext.configure(dialect=dialect, opts=options)
    op = Operations(context)
    context.impl.emit_begin()
    op.execute(_LOCK)
    for place, name in _places(each for each in before if each.found == 0):
        if place is not None:
            op.execute(CreateSchema(place, if_not_exists=True))
        context.impl.create_table(version_table(place, name), if_not_exists=True)
    _run_revisions(op, before)
    context.impl.emit_commit()
    return written.getvalue()


def _run_revisions(op: Operations, before: Iterable[SchemaVersion]) -> None:
    for schema, found, _ in before:
        for revision in schema.revisions[found:]:
            revision.upgrade(op, schema)
        if found < schema.version:
            op.execute(_record(schema))


def _record(schema: SqlSchema) -> Any:
    changed = {"version": schema.version, "compatible_from": schema.compatible_from}
    row = {"component": schema.component, "name": schema.name, **changed}
    recorded = insert(version_table(schema.key[0], schema.version_table)).values(row)
    return recorded.on_conflict_do_update(
        index_elements=["component", "name"], set_={**changed, "migrated_at": func.now()}
    )


def _places(versions: Iterable[SchemaVersion]) -> list[tuple[str | None, str]]:
    """The PostgreSQL schemas and names of version tables, each once."""
    return list(dict.fromkeys((each.schema.key[0], each.schema.version_table) for each in versions))


def _refuse_unrecorded_tables(connection: Connection, schema: SqlSchema) -> None:
    for table in schema.tables:
        if inspect(connection).has_table(table.name, schema=table.schema):
            raise InvalidDeclaration(
                schema.name,
                f"the table {table.fullname} exists, and was not created by migrations",
                "drop or rename it, and migrate before `create_all`; or give the declaration another name",
            )
