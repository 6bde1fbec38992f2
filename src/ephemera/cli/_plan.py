"""`ephemera plan`: what a changed catalogue means for keys that exist."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ephemera.cli._catalogue_lookup import load_catalogue
from ephemera.cli._command import AsJson, Command, flag, run
from ephemera.cli._screens import screen
from ephemera.errors import InvalidValue
from ephemera.operations.change import PlannedChange, count_keys, read_declarations
from ephemera.operations.change import plan as plan_change
from ephemera.operations.documentation import KeyspaceDoc, describe
from ephemera.operations.formatting import format_count

VERSIONS = "released.json myservice.keys:catalogue"
"""Arguments of the examples."""
_STYLES = {"problem": "bold red", "warning": "yellow", "note": "dim"}


class Declarations(list[KeyspaceDoc]):
    """The keyspaces of one version of a catalogue."""


def _declarations(name: str) -> Declarations:
    if not name.endswith(".json"):
        return Declarations(describe(load_catalogue(name)))
    try:
        return Declarations(read_declarations(Path(name)))
    except (OSError, InvalidValue) as problem:
        raise typer.BadParameter(str(problem)) from None


OldVersion = Annotated[
    Declarations,
    typer.Argument(
        help="The earlier version: JSON of `ephemera catalogue --json`, or a catalogue.",
        metavar="OLD",
        envvar="EPHEMERA_OLD",
        parser=_declarations,
    ),
]
"""The argument OLD."""
NewVersion = Annotated[
    Declarations,
    typer.Argument(
        help="The version to deploy: a catalogue, or its JSON.",
        metavar="NEW",
        envvar="EPHEMERA_NEW",
        parser=_declarations,
    ),
]
"""The argument NEW."""


def plan(
    old: OldVersion,
    new: NewVersion,
    url: Annotated[
        str | None,
        flag("--url", "A server, to count the keys of each change.", show_default="none"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show how a changed catalogue affects existing keys, before you deploy it.

    It reports keys that nothing declares any more, types and records that new code cannot read (or old code,
    while both run), roles that move to another server, and changed lifetimes. Keep the JSON of each release
    to compare with it.
    """
    changes = plan_change(old, new)
    if url is not None:
        changes = run(count_keys(url, old, changes))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(changes)))
    else:
        _show_plan(changes)
    if any(change.severity == "problem" for change in changes):
        raise typer.Exit(1)


def _show_plan(changes: list[PlannedChange]) -> None:
    console = screen(highlight=False)
    if not changes:
        console.print(Text("Nothing changes for existing keys.", style="bold green"))
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for change in changes:
        keys = "" if change.keys is None else f", {format_count(change.keys, 'key')}"
        lines = [f"[cyan]{escape(change.pattern)}[/]{keys}", escape(change.message)]
        lines += [f"[italic]{escape(change.advice)}[/]"] if change.advice else []
        table.add_row(Text(change.kind, style=_STYLES[change.severity]), "\n".join(lines))
    console.print(table)


COMMAND = Command(
    "plan",
    plan,
    examples=(
        ("since the last release", VERSIONS),
        ("with the number of keys affected", f"{VERSIONS} --url redis://cache.internal"),
        ("as JSON", f"{VERSIONS} --json"),
    ),
    exits={1: "failure, or a change that existing keys do not survive"},
)
