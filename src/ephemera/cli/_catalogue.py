"""`ephemera catalogue`: the documentation tables of a catalogue."""

from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from ephemera.cli._command import AsJson, CatalogueArgument, Command, flag
from ephemera.cli._screens import print_table, screen
from ephemera.keyspace import Catalogue
from ephemera.operations import documentation
from ephemera.operations.documentation import as_json, as_markdown, tables


def catalogue(
    name: CatalogueArgument,
    form: Annotated[
        Literal["table", "markdown", "json"],
        flag("--format", "A table for the terminal, Markdown for a document, or JSON."),
    ] = "table",
    json: AsJson = False,
) -> None:
    """Show what a catalogue declares: every key, its contents, its lifetime and its purpose.

    These are the tables of design documents, generated from the declarations.
    """
    if json or form == "json":
        typer.echo(as_json(name))
    elif form == "markdown":
        typer.echo(as_markdown(name), nl=False)
    else:
        _print_tables(name)


def _print_tables(name: Catalogue) -> None:
    console = screen()
    for table in tables(name):
        print_table(rendered(table), console)
        console.print()


def rendered(documented: documentation.Table) -> Table:
    """A documentation table for a terminal."""
    table = Table(title=documented.title, title_justify="left", show_lines=True)
    columns = [column for column in documented.rows[0] if any(row[column] for row in documented.rows)]
    for position, column in enumerate(columns):
        table.add_column(column, style=None if position else "cyan", overflow="fold")
    for row in documented.rows:
        table.add_row(*(escape(row[column]) for column in columns))
    return table


COMMAND = Command(
    "catalogue",
    catalogue,
    examples=(
        ("your own catalogue", "myservice.keys:catalogue"),
        ("a registered catalogue", "identity"),
        ("a page for a design document", "myservice.keys:catalogue --format markdown > docs/keys.md"),
        ("as JSON", "myservice.keys:catalogue --json"),
    ),
)
