"""`ephemera sweep`: remove the keys that only an earlier version of a catalogue declares."""

from typing import Annotated

import msgspec
import typer

from ephemera.cli._command import AsJson, Command, Url, flag, run
from ephemera.cli._plan import VERSIONS, NewVersion, OldVersion
from ephemera.cli._progress import progress_bar
from ephemera.operations.change import SweepOptions, SweepResult
from ephemera.operations.change import sweep as sweep_server
from ephemera.operations.formatting import format_count


def sweep(
    old: OldVersion,
    new: NewVersion,
    url: Url,
    delete: Annotated[bool, flag("--delete", "Remove the keys; without it they are only counted.")] = False,
    rate: Annotated[float, flag("--rate", "Keys removed per second and server, at most.", min=1)] = 1000,
    at_most: Annotated[int, flag("--at-most", "Keys removed in total.", min=1)] = 100_000,
    cursor: Annotated[
        str | None, flag("--cursor", "Resume where an earlier sweep stopped.", show_default="the beginning")
    ] = None,
    json: AsJson = False,
) -> None:
    """Remove keys that only the earlier version of a catalogue declares.

    Run it without --delete first: it counts them by pattern. A key that the new version could render is never
    removed. It reads names by SCAN and unlinks slowly; when it stops early it prints where to resume.
    """
    options = SweepOptions(delete=delete, rate=rate, at_most=at_most, cursor=cursor)
    with progress_bar() as progress:
        report = run(sweep_server(url, old, new, options, progress))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        typer.echo("\n".join(_lines(report, delete=delete)))
    if report.cursor is not None:
        raise typer.Exit(1)


def _lines(report: SweepResult, *, delete: bool) -> list[str]:
    found = sum(report.found.values())
    lines = [f"{keys:>12,}  {pattern}" for pattern, keys in report.found.items()]
    lines.append(f"{format_count(found, 'orphaned key')} among {format_count(report.scanned, 'name')}")
    if delete:
        lines.append(f"{format_count(report.removed, 'key')} removed")
    elif found:
        lines.append("nothing was removed: add --delete")
    if report.stopped is not None:
        lines.append(f"stopped early: {report.stopped}")
    if report.cursor is not None:
        lines.append(f"resume with --cursor {report.cursor}")
    return lines


COMMAND = Command(
    "sweep",
    sweep,
    examples=(
        ("what would be removed", f"{VERSIONS} --url redis://cache.internal"),
        ("remove it slowly", f"{VERSIONS} --url redis://cache.internal --delete --rate 200"),
    ),
    exits={1: "failure, or stopped early"},
)
