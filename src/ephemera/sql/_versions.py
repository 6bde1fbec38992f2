"""Versions of tables: what the database has recorded, compared with what this code needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, Table, inspect, select
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import SchemaMismatch
from ephemera.sql._schema import HasTables, SqlSchema, schemas_of, version_table

_log = logging.getLogger("ephemera.sql")


class SchemaVersion(NamedTuple):
    """The tables of one declaration: their version in a database, and what the code needs."""

    schema: SqlSchema
    found: int
    """The version in the database; 0 if there is none."""
    compatible_from: int
    """The oldest version whose code works with the tables in the database."""

    @property
    def is_current(self) -> bool:
        """Whether the database has the code's version, or a later one."""
        return self.found >= self.schema.version

    @property
    def is_usable(self) -> bool:
        """Whether the code works with the tables."""
        return self.is_current and self.compatible_from <= self.schema.version

    def require_usable(self) -> None:
        """Raise `SchemaMismatch` unless the code works with the tables."""
        if not self.is_usable:
            schema = self.schema
            raise SchemaMismatch(schema.component, schema.name, found=self.found, needed=schema.version)


def read_versions(connection: Connection, schemas: Sequence[SqlSchema]) -> list[SchemaVersion]:
    """Read the versions of schemas."""
    places = {(schema.key[0], schema.version_table) for schema in schemas}
    recorded = {place: _recorded(connection, version_table(*place)) for place in places}
    return [
        SchemaVersion(
            schema,
            *recorded[schema.key[0], schema.version_table].get((schema.component, schema.name), (0, 0)),
        )
        for schema in schemas
    ]


def _recorded(connection: Connection, table: Table) -> dict[tuple[str, str], tuple[int, int]]:
    # Not `to_regclass`: within a transaction it repeats its first answer from a cache.
    if not inspect(connection).has_table(table.name, schema=table.schema):
        return {}
    c = table.c
    rows = connection.execute(select(c.component, c.name, c.version, c.compatible_from))
    return {(component, own): (version, oldest) for component, own, version, oldest in rows}


def unchecked(engine: AsyncEngine) -> AsyncEngine:
    """The same engine without the check of a `CheckedEngine`."""
    return AsyncEngine(engine.sync_engine.execution_options())


async def versions(engine: AsyncEngine, *declarations: HasTables) -> list[SchemaVersion]:
    """The versions of declarations, or of all in a catalogue, in a database."""
    async with unchecked(engine).connect() as sql:
        return await sql.run_sync(read_versions, schemas_of(*declarations))


async def verify(engine: AsyncEngine, *declarations: HasTables) -> None:
    """Raise `SchemaMismatch` unless this code works with the tables of declarations in a database."""
    for version in await versions(engine, *declarations):
        version.require_usable()


def verify_at_start(engine: AsyncEngine, *declarations: HasTables) -> None:
    """`verify` in a process that has no event loop yet, with an engine for this purpose alone.

    A database that is down is logged only, since it may come back.
    """

    async def verified() -> None:
        try:
            await verify(engine, *declarations)
        finally:
            await engine.dispose()

    try:
        asyncio.run(verified())
    except (OperationalError, InterfaceError) as problem:
        _log.warning("the version of the SQL tables is not known yet: %s", problem)
