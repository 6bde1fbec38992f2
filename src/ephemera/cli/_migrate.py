"""`ephemera migrate up|current|sql`: the SQL tables that declarations of a catalogue need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from ephemera.cli._catalogue_lookup import load_catalogue, load_declaration
from ephemera.cli._command import AsJson, Command, flag, run
from ephemera.cli._job_flags import DatabaseUrl, database_errors
from ephemera.cli._screens import print_table

if TYPE_CHECKING:
    from ephemera.sql import SchemaVersion, SqlSchema

Catalogues = Annotated[
    list[Any] | None,
    flag(
        "--catalogue",
        "All tables of a catalogue, by registered name or module:object; repeatable.",
        metavar="NAME",
        parser=load_catalogue,
    ),
]
Declarations = Annotated[
    list[Any] | None,
    flag(
        "--declaration",
        "One declaration with tables, such as a OnceGuard, as module:object; repeatable.",
        metavar="NAME",
        parser=load_declaration,
    ),
]


def up(
    database_url: DatabaseUrl,
    catalogues: Catalogues = None,
    declarations: Declarations = None,
    json: AsJson = False,
) -> None:
    """Create or upgrade the tables, to the version of this release.

    It is one transaction, under an advisory lock: any number of processes may run it at once, and if it
    fails, nothing was changed. Run it before a new release starts.
    """
    from ephemera.sql import migrate

    before = _with_engine(database_url, migrate, _schemas(catalogues, declarations))
    if json:
        _print_json(before)
        return
    for schema, found, _ in before:
        state = f"{found} -> {schema.version}" if found < schema.version else f"{found} already"
        typer.echo(f"{schema.component} {schema.name}: {state}")


def current(
    database_url: DatabaseUrl,
    catalogues: Catalogues = None,
    declarations: Declarations = None,
    json: AsJson = False,
) -> None:
    """Show the versions of the tables in a database, and those that this release needs."""
    from ephemera.sql import versions

    found = _with_engine(database_url, versions, _schemas(catalogues, declarations))
    if json:
        _print_json(found)
    else:
        print_table(_table(found))
    if not all(each.is_usable for each in found):
        raise typer.Exit(1)


def sql(
    catalogues: Catalogues = None, declarations: Declarations = None, database_url: DatabaseUrl = ""
) -> None:
    """Print the SQL that `up` would execute, and execute nothing.

    With --database-url it is what that database needs; otherwise, what an empty one needs.
    """
    from ephemera.sql import SchemaVersion, upgrade_sql, versions

    schemas = _schemas(catalogues, declarations)
    if database_url:
        before = _with_engine(database_url, versions, schemas)
    else:
        before = [SchemaVersion(schema, 0, 0) for schema in schemas]
    typer.echo(upgrade_sql(before), nl=False)


def _schemas(catalogues: list[Any] | None, declarations: list[Any] | None) -> list[SqlSchema]:
    from ephemera.sql import schemas_of

    if not catalogues and not declarations:
        raise typer.BadParameter(
            "name a catalogue or a declaration with tables", param_hint="--catalogue or --declaration"
        )
    found = schemas_of(*catalogues or (), *declarations or ())
    if not found:
        typer.echo("No tables are declared.", err=True)
    return found


def _with_engine(database_url: str, read: Any, schemas: list[SqlSchema]) -> list[SchemaVersion]:
    from ephemera.sql import sql_engine

    async def opened() -> list[SchemaVersion]:
        engine = sql_engine(database_url)
        try:
            found: list[SchemaVersion] = await read(engine, *schemas)
            return found
        finally:
            await engine.dispose()

    with database_errors():
        return run(opened())


def _print_json(found: list[SchemaVersion]) -> None:
    rows = [
        {
            "component": version.schema.component,
            "name": version.schema.name,
            "schema": version.schema.key[0],
            "found": version.found,
            "needed": version.schema.version,
            "usable": version.is_usable,
        }
        for version in found
    ]
    typer.echo(msgspec.json.format(msgspec.json.encode(rows)))


def _table(found: list[SchemaVersion]) -> Table:
    table = Table("component", "name", "tables", "in the database", "needed", "")
    for each in found:
        schema = each.schema
        state = (
            "" if each.is_usable else "run migrate up" if not each.is_current else "this release is too old"
        )
        tables = ", ".join(escape(one.fullname) for one in schema.tables)
        row = (schema.component, escape(schema.name), tables, str(each.found or "none"), str(schema.version))
        table.add_row(*row, state)
    return table


_CATALOGUE = "--catalogue myservice.keys:catalogue"
_SERVER = "--database-url postgresql://db.internal/service"
COMMANDS = [
    Command(
        "migrate up",
        up,
        examples=(
            ("all tables of a catalogue's declarations", f"{_CATALOGUE} {_SERVER}"),
            ("those of one declaration", f"--declaration myservice.jobs:JOBS {_SERVER}"),
        ),
    ),
    Command(
        "migrate current",
        current,
        examples=(
            ("what the database has", f"{_CATALOGUE} {_SERVER}"),
            ("as JSON", f"{_CATALOGUE} {_SERVER} --json"),
        ),
        exits={1: "failure, or tables that this release cannot use"},
    ),
    Command(
        "migrate sql",
        sql,
        examples=(
            ("for an empty database", f"{_CATALOGUE} > tables.sql"),
            ("what this database still needs", f"{_CATALOGUE} {_SERVER} > upgrade.sql"),
        ),
    ),
]
