"""`ephemera locks list`: the held locks and their holders."""

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ephemera.cli._command import AsJson, CatalogueArgument, Command, Url, run
from ephemera.cli._screens import print_table
from ephemera.operations.inspect import LockState, held_locks


def list_locks(name: CatalogueArgument, url: Url, json: AsJson = False) -> None:
    """Show the held locks of a catalogue: holder, since when, and number of waiters.

    It finds them by SCAN and changes nothing. If a holder dies, its lock is released when the lease expires.
    """
    with Console(stderr=True).status("Reading locks"):
        found = run(held_locks(url, name))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found)))
    elif not found:
        typer.echo("No locks are held.")
    else:
        print_table(_table(found))


def _table(found: list[LockState]) -> Table:
    table = Table("lock", "held as", "holder", "fencing token", "since (UTC)", "lease left", "waiting")
    for held in found:
        since = "" if held.since is None else f"{held.since:%Y-%m-%d %H:%M:%S}"
        holder = escape(held.holder) if held.holder else "(changing holder)"
        fence = "" if held.fence is None else str(held.fence)
        left = f"{held.lease_left:.1f} s"
        table.add_row(escape(held.key), held.mode, holder, fence, since, left, str(held.waiters))
    return table


COMMAND = Command(
    "locks list",
    list_locks,
    examples=(
        ("all held locks", "myservice.keys:catalogue --url redis://queue.internal"),
        ("as JSON", "myservice.keys:catalogue --url redis://queue.internal --json"),
    ),
)
