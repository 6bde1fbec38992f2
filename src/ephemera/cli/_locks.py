"""`ephemera locks list`: which locks are held, and by whom."""

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ephemera.cli._command import AsJson, CatalogueArgument, Command, Url, run
from ephemera.cli._screens import screen
from ephemera.operations.inspect import LockState, held_locks


def list_locks(name: CatalogueArgument, url: Url, json: AsJson = False) -> None:
    """Show the locks of a catalogue that are held on a server: by whom, since when, and how many wait.

    It looks at the keys by SCAN and changes nothing. A lock whose holder died goes by itself when its lease
    ends.
    """
    with Console(stderr=True).status("Looking for locks"):
        found = run(held_locks(url, name))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found)))
    elif not found:
        typer.echo("No lock is held.")
    else:
        screen().print(_table(found))


def _table(found: list[LockState]) -> Table:
    table = Table("lock", "holder", "fence", "since (UTC)", "lease left", "waiting")
    for held in found:
        since = "" if held.since is None else f"{held.since:%Y-%m-%d %H:%M:%S}"
        holder = escape(held.holder) if held.holder else "being handed over"
        fence = "" if held.fence is None else str(held.fence)
        table.add_row(escape(held.key), holder, fence, since, f"{held.lease_left:.1f} s", str(held.waiters))
    return table


COMMAND = Command(
    "locks list",
    list_locks,
    examples=(
        ("who holds what", "myservice.keys:catalogue --url redis://queue.internal"),
        ("for a machine", "myservice.keys:catalogue --url redis://queue.internal --json"),
    ),
)
