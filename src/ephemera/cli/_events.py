"""`ephemera events groups|pending|dead|replay`: how streams stand, what failed, and trying it again."""

import re
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ephemera.cli._command import AsJson, CatalogueArgument, Command, Url, flag, run
from ephemera.cli._flag_errors import given_as
from ephemera.cli._progress import progress_bar
from ephemera.cli._screens import screen
from ephemera.operations.inspect import dead_letters, pending_events, stream_infos
from ephemera.operations.inspect import replay_dead_letters as put_back

_LETTER = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")  # what a stream's ids look like, and fits into one

Stream = Annotated[str | None, flag("--stream", "The key of one stream; all of the catalogue without it.")]
OneStream = Annotated[str, flag("--stream", "The key of the stream.")]
Limit = Annotated[int, flag("--limit", "How many to show of each, oldest first.", min=1)]
Ids = Annotated[list[str], flag("--id", "A dead letter to put back; may be given several times.")]
All = Annotated[bool, flag("--all", "Put back every dead letter of the stream.")]


def groups(name: CatalogueArgument, url: Url, json: AsJson = False) -> None:
    """Show the streams of a catalogue: how long they are, and each group's lag, pending events and consumers.

    A group that nobody consumes any more keeps its stream from being trimmed: its lag grows. Remove it with
    XGROUP DESTROY if it is not needed.
    """
    with Console(stderr=True).status("Looking at streams"):
        found = run(stream_infos(url, name))
    if json:
        _as_json(found)
        return
    table = Table("stream", "length", "dead", "group", "lag", "pending", "consumers")
    for stream in found:
        start = (escape(stream.key), str(stream.length), str(stream.dead))
        for group in stream.groups or (None,):
            told = (
                ("(none)", "", "", "")
                if group is None
                else (
                    escape(group.name),
                    "?" if group.lag is None else str(group.lag),
                    str(group.pending),
                    str(group.consumers),
                )
            )
            table.add_row(*start, *told)
            start = ("", "", "")
    _show(table, "The catalogue has no stream of events on this server.")


def pending(
    name: CatalogueArgument, url: Url, stream: Stream = None, limit: Limit = 100, json: AsJson = False
) -> None:
    """Show events that a group was given and has not acknowledged: being handled, or waiting for a retry."""
    with given_as(stream="--stream"), Console(stderr=True).status("Looking at pending events"):
        found = run(pending_events(url, name, stream, limit))
    if json:
        _as_json(found)
        return
    table = Table("stream", "group", "id", "consumer", "idle", "deliveries")
    for event in found:
        table.add_row(
            escape(event.stream), escape(event.group), event.id, escape(event.consumer),
            f"{event.idle:.1f} s", str(event.deliveries),
        )  # fmt: skip
    _show(table, "No event is pending.")


def dead(
    name: CatalogueArgument, url: Url, stream: Stream = None, limit: Limit = 100, json: AsJson = False
) -> None:
    """Show dead letters: events that a group could not handle, with the error of the last attempt.

    Events of a stream that is declared sensitive are not shown.
    """
    with given_as(stream="--stream"), Console(stderr=True).status("Looking at dead letters"):
        found = run(dead_letters(url, name, stream, limit))
    if json:
        _as_json(found)
        return
    table = Table("stream", "id", "group", "origin", "deliveries", "error", "event")
    for letter in found:
        event = msgspec.json.encode(letter.event).decode()
        table.add_row(
            escape(letter.stream), letter.id, escape(letter.group), letter.origin,
            str(letter.deliveries), escape(letter.error), escape(event),
        )  # fmt: skip
    _show(table, "There is no dead letter.")


def replay(
    name: CatalogueArgument,
    url: Url,
    stream: OneStream,
    ids: Ids = [],  # noqa: B006 - typer copies it
    every: All = False,
    json: AsJson = False,
) -> None:
    """Put dead letters back on their stream, for the group that could not handle them, as events anew.

    Mend what made them fail first. A letter that is put back is a dead letter no more; if it fails again, it
    becomes one again.
    """
    if bool(ids) == every:
        raise typer.BadParameter("give --id, once or several times, or --all", param_hint="--id / --all")
    for each in ids:
        if not _LETTER.fullmatch(each):
            problem = f"{each!r} is no id, as in 1700000000000-0; `ephemera events dead` shows them"
            raise typer.BadParameter(problem, param_hint="--id")
    with given_as(stream="--stream"), progress_bar() as tell:
        count = run(put_back(url, name, stream, ids, lambda done, total: tell("replaying", done, total)))
    if json:
        _as_json({"replayed": count})
    else:
        typer.echo(f"{count} dead {'letter was' if count == 1 else 'letters were'} put back on {stream}.")
    if ids and count < len(ids):
        missing = len(ids) - count
        typer.echo(f"ephemera: {missing} of them {'was' if missing == 1 else 'were'} not there", err=True)
        raise typer.Exit(1)


def _as_json(found: Any) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(found)))


def _show(table: Table, nothing: str) -> None:
    if not table.row_count:
        typer.echo(nothing)
        return
    screen().print(table)


_WHERE = "myservice.keys:catalogue --url redis://queue.internal"
COMMANDS = (
    Command("events groups", groups, examples=(("how the streams stand", _WHERE),)),
    Command(
        "events pending",
        pending,
        examples=(
            ("what is being handled, or waits for a retry", _WHERE),
            ("of one stream, for a machine", f"{_WHERE} --stream app:events:users --json"),
        ),
    ),
    Command(
        "events dead",
        dead,
        examples=(
            ("what failed, and why", _WHERE),
            ("the ten oldest of one stream", f"{_WHERE} --stream app:events:users --limit 10"),
        ),
    ),
    Command(
        "events replay",
        replay,
        examples=(
            ("try one again", f"{_WHERE} --stream app:events:users --id 1700000000000-0"),
            ("try all again", f"{_WHERE} --stream app:events:users --all"),
        ),
        exits={1: "failed, or some letters were not there"},
    ),
)
