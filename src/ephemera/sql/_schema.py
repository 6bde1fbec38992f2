"""The tables of one declaration and their revisions, and how Alembic recognizes them.

Each table has a comment that names its declaration. The comment is in the database too, so that autogenerate
recognizes a table that it reflects even in a project whose metadata does not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from sqlalchemy import Column, DateTime, Integer, MetaData, Table, Text, func
from sqlalchemy.schema import CreateIndex, CreateTable, SetColumnComment, SetTableComment, sort_tables

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue

if TYPE_CHECKING:  # importing Alembic is slow, and only upgrades need it
    from alembic.operations import Operations

_MARK = "migrated by `ephemera migrate` alone"
_APPLICATION = "ephemera application column"
_VERSION_TABLE = "ephemera_version_table"  # in the `info` of the tables' metadata
_DEFAULT_VERSION_TABLE = "ephemera_schema"


@dataclass(frozen=True)
class Revision:
    """A step from one version to the next.

    Args:
        upgrade: Changes the tables by Alembic's operations; it runs in a transaction with all other steps.
        breaks_older: Whether code of the version before cannot work with the tables afterwards. That code is
            refused then, and a rolling deploy is not possible.

    """

    upgrade: Callable[[Operations, SqlSchema], None]
    breaks_older: bool = False


def create_declared_tables(op: Operations, schema: SqlSchema) -> None:
    """The first revision: create the tables as they are declared, always in the same order."""
    for table in sort_tables(schema.tables):
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            op.execute(CreateIndex(index))
        op.execute(SetTableComment(table))
        for column in table.columns:
            if column.comment is not None:
                op.execute(SetColumnComment(column))


_INITIAL = (Revision(create_declared_tables),)


class SqlSchema:
    """The tables of one declaration, with the revisions that lead to them.

    Args:
        component: The pattern, such as `jobs`.
        name: The declaration's name, which differs from those of the component's other declarations.
        tables: The tables as this code uses them, all in one PostgreSQL schema. The table beside them that
            has their version is `ephemera_schema`, or what their metadata's `info["ephemera_version_table"]`
            says.
        revisions: The steps from nothing to these tables; their number is the version.
        application_columns: Columns that the application added. The first revision creates them; their later
            changes belong to the application's own migrations.

    """

    def __init__(
        self,
        component: str,
        name: str,
        tables: Sequence[Table],
        *,
        revisions: Sequence[Revision] = _INITIAL,
        application_columns: Sequence[Column[Any]] = (),
    ) -> None:
        self.component = component
        self.name = name
        self.tables = tuple(tables)
        self.revisions = tuple(revisions)
        self.version_table = str(self.tables[0].metadata.info.get(_VERSION_TABLE, _DEFAULT_VERSION_TABLE))
        """The name of the table that has the version."""
        for table in self.tables:
            table.comment = f"{component} {name}: {_MARK}"
        for column in application_columns:
            column.info[_APPLICATION] = True

    @classmethod
    def of_table(
        cls, component: str, table: str, *columns: Column[Any], version_table: str | None = None
    ) -> SqlSchema:
        """The schema of one table, by its name or `schema.name` as an unquoted SQL statement has it."""
        place, _, name = table.lower().rpartition(".")
        info = {} if version_table is None else {_VERSION_TABLE: version_table}
        return cls(component, name, [Table(name, MetaData(schema=place or None, info=info), *columns)])

    @property
    def key(self) -> tuple[str | None, str, str]:
        """PostgreSQL schema, component and name: what identifies it in a database."""
        return self.tables[0].schema, self.component, self.name

    @property
    def version(self) -> int:
        """The version of these tables."""
        return len(self.revisions)

    @property
    def compatible_from(self) -> int:
        """The oldest version whose code works with these tables."""
        breaking = [number for number, each in enumerate(self.revisions, start=1) if each.breaks_older]
        return breaking[-1] if breaking else 1

    def __repr__(self) -> str:
        return f"<SqlSchema {self.component} {self.name!r}, version {self.version}>"


@runtime_checkable
class SqlDeclaration(Protocol):
    """A declaration with tables in SQL: `Jobs`, `Planner`, `OnceGuard` and others."""

    @property
    def sql_schema(self) -> SqlSchema:
        """Its tables."""


HasTables: TypeAlias = Catalogue | SqlDeclaration | SqlSchema
"""What has tables in SQL: a catalogue, a declaration, or the schema itself."""


def schemas_of(*declarations: HasTables) -> list[SqlSchema]:
    """The schemas of declarations and catalogues, each once; a catalogue may have none."""
    found: dict[tuple[str | None, str, str], SqlSchema] = {}
    for declaration in declarations:
        for schema in _schemas_of_one(declaration):
            other = found.setdefault(schema.key, schema)
            if other is not schema:
                raise InvalidDeclaration(
                    schema.name, f"two declarations of {schema.component} have this name", "rename one"
                )
    return list(found.values())


def _schemas_of_one(declaration: HasTables) -> Iterator[SqlSchema]:
    if isinstance(declaration, SqlSchema):
        yield declaration
    elif isinstance(declaration, Catalogue):
        yield from (each.sql_schema for each in declaration.patterns if isinstance(each, SqlDeclaration))
    elif isinstance(declaration, SqlDeclaration):
        yield declaration.sql_schema
    else:
        raise InvalidDeclaration(
            repr(declaration), "it has no SQL tables", "pass a catalogue, or a declaration such as Jobs"
        )


def version_table(schema: str | None, name: str = _DEFAULT_VERSION_TABLE) -> Table:
    """The table of versions in a PostgreSQL schema."""
    return Table(
        name,
        MetaData(schema=schema),
        Column("component", Text, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("version", Integer, nullable=False),
        Column("compatible_from", Integer, nullable=False, comment="the oldest version whose code works"),
        Column("migrated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        comment=f"versions of tables: {_MARK}",
    )


def include_object(item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
    """Whether Alembic's autogenerate should look at an object: pass it to `context.configure` in `env.py`.

    It leaves the library's tables alone, except for columns that your application added to them. Of those,
    new and changed ones are proposed, and removed ones are not.

    Args:
        item: The object of SQLAlchemy.
        name: Its name.
        kind: What it is, such as "table" or "column".
        reflected: Whether it was read from the database.
        compare_to: What it is compared with, if anything.

    """
    del name
    table = item if kind == "table" else getattr(item, "table", None)
    if table is None or not (table.comment or "").endswith(_MARK):
        return True
    if reflected:
        return False
    columns = list(item.columns) if hasattr(item, "columns") else [item]
    if kind == "table":
        return compare_to is not None and any(_APPLICATION in column.info for column in columns)
    return all(_APPLICATION in column.info for column in columns)
