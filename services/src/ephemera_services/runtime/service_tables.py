"""The tables of a service's own, versioned and migrated as those of patterns are.

    declare_tables(catalogue, metadata)     # after the patterns, whose tables it leaves out

`ephemera migrate up --catalogue slides` creates and upgrades them, with those of the service's patterns, and
so does a start of the service. To change a table, follow the rules for a table of a pattern: the declaration
is changed, the first revision becomes the statements of today, and a `Revision` for the change is appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import MetaData

from ephemera import Catalogue
from ephemera.sql import Revision, SqlSchema, create_declared_tables, schemas_of

_COMPONENT = "service"
_INITIAL = (Revision(create_declared_tables),)


@dataclass(frozen=True)
class ServiceTables:
    """What `ephemera migrate` finds in a service's catalogue."""

    sql_schema: SqlSchema


def declare_tables(
    catalogue: Catalogue, metadata: MetaData, *, revisions: Sequence[Revision] = _INITIAL
) -> ServiceTables:
    """Have the tables of a service migrated: all of its metadata that belong to no pattern."""
    patterns = {table for schema in schemas_of(catalogue) for table in schema.tables}
    own = [table for table in metadata.sorted_tables if table not in patterns]
    declared = ServiceTables(SqlSchema(_COMPONENT, catalogue.name, own, revisions=revisions))
    catalogue.patterns.append(declared)
    return declared
