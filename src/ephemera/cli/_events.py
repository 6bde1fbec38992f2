"""`ephemera events groups|pending|dead|replay`: lag, pending events, dead letters, and replays."""

import re
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ephemera.cli._command import AsJson, CatalogueArgument, Command, Url, flag, run
from ephemera.cli._flag_errors import option_errors
from ephemera.cli._progress import progress_bar
from ephemera.cli._screens import print_table
from ephemera.keyspace import Catalogue
from ephemera.operations.inspect import (
    dead_letters,
    pending_events,
    replay_dead_letters,
    replay_events,
    stream_infos,
)

_ENTRY_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")
_SHORTEST_ID = 13  # characters; what is shorter may be meant as a date

Stream = Annotated[
    str | None, flag("--stream", "The key of one stream; default: all streams of the catalogue.")
]
OneStream = Annotated[str, flag("--stream", "The key of the stream.")]
Limit = Annotated[int, flag("--limit", "How many to show per stream or group, oldest first.", min=1)]
Ids = Annotated[list[str] | None, flag("--id", "A dead letter to replay; repeatable.")]
All = Annotated[bool, flag("--all", "Replay every dead letter of the stream.")]
Since = Annotated[
    str | None,
    flag("--since", "Replay handled events from here on: a time such as 2026-01-31T12:00Z, or an id."),
]
Until = Annotated[str | None, flag("--until", "With --since: the last one, a time or an id.")]
Group = Annotated[str | None, flag("--group", "With --since: the group that gets them.")]
ReplayLimit = Annotated[int, flag("--limit", "With --since: how many events at most.", min=1)]
Again = Annotated[bool, flag("--again", "With --since: SQL guards (OnceGuard) take them for new events.")]


def groups(name: CatalogueArgument, url: Url, json: AsJson = False) -> None:
    """Show the streams of a catalogue: length, and each group's lag, pending events and consumers.

    A group without consumers keeps its stream from being trimmed, and its lag grows. Remove it with XGROUP
    DESTROY if it is not needed.
    """
    with Console(stderr=True).status("Reading streams"):
        found = run(stream_infos(url, name))
    if json:
        _as_json(found)
        return
    table = Table("stream", "length", "dead", "group", "lag", "pending", "consumers", "paused")
    for stream in found:
        start = (escape(stream.key), str(stream.length), str(stream.dead))
        for group in stream.groups or (None,):
            row = (
                ("(none)", "", "", "", "")
                if group is None
                else (
                    escape(group.name),
                    "?" if group.lag is None else str(group.lag),
                    str(group.pending),
                    str(group.consumers),
                    escape(group.paused or ""),
                )
            )
            table.add_row(*start, *row)
            start = ("", "", "")
    _show(table, "The catalogue has no event streams on this server.")


def pending(
    name: CatalogueArgument, url: Url, stream: Stream = None, limit: Limit = 100, json: AsJson = False
) -> None:
    """Show events delivered to a group and not acknowledged: in progress, or waiting for a retry."""
    with option_errors(stream="--stream"), Console(stderr=True).status("Reading pending events"):
        found = run(pending_events(url, name, stream, limit))
    if json:
        _as_json(found)
        return
    table = Table("stream", "group", "id", "consumer", "idle", "retry in", "deliveries")
    for event in found:
        table.add_row(
            escape(event.stream), escape(event.group), event.id, escape(event.consumer),
            f"{event.idle:.1f} s" if event.retry_in is None else "",
            "" if event.retry_in is None else f"{event.retry_in:.1f} s", str(event.deliveries),
        )  # fmt: skip
    _show(table, "No events are pending.")


def dead(
    name: CatalogueArgument, url: Url, stream: Stream = None, limit: Limit = 100, json: AsJson = False
) -> None:
    """Show dead letters: events that failed every attempt, with the last error.

    Events of a stream that is declared sensitive are hidden.
    """
    with option_errors(stream="--stream"), Console(stderr=True).status("Reading dead letters"):
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
    _show(table, "There are no dead letters.")


def replay(
    name: CatalogueArgument,
    url: Url,
    stream: OneStream,
    ids: Ids = None,
    every: All = False,
    since: Since = None,
    until: Until = None,
    group: Group = None,
    limit: ReplayLimit = 10_000,
    again: Again = False,
    json: AsJson = False,
) -> None:
    """Replay events: dead letters for the group that failed, or handled events for one group.

    Fix the cause first. An event that fails again becomes a dead letter again. Handled events (--since) are
    available for the stream's retention; effects in SQL behind an OnceGuard are not repeated, unless you ask
    for it with --again.
    """
    ids = ids or []
    if [bool(ids), every, since is not None].count(True) != 1:
        raise typer.BadParameter("give one of them", param_hint="--id (repeatable) / --all / --since")
    if since is not None:
        _replay_since(url, name, stream, group, since, until, limit, again=again, as_json=json)
        return
    for each in ids:
        if not _ENTRY_ID.fullmatch(each):
            problem = f"{each!r} is not an id such as 1700000000000-0; `ephemera events dead` shows them"
            raise typer.BadParameter(problem, param_hint="--id")
    with option_errors(stream="--stream"), progress_bar() as show_progress:
        count = run(
            replay_dead_letters(
                url, name, stream, ids, lambda done, total: show_progress("replaying", done, total)
            )
        )
    if json:
        _as_json({"replayed": count})
    else:
        typer.echo(f"{count} dead {'letter' if count == 1 else 'letters'} replayed on {stream}.")
    if ids and count < len(ids):
        missing = len(ids) - count
        typer.echo(f"ephemera: {missing} {'was' if missing == 1 else 'were'} not found", err=True)
        raise typer.Exit(1)


def _replay_since(
    url: str,
    name: Catalogue,
    stream: str,
    group: str | None,
    since: str,
    until: str | None,
    limit: int,
    *,
    again: bool,
    as_json: bool,
) -> None:
    if group is None:
        raise typer.BadParameter("say which group gets the events", param_hint="--group")
    bounds = _moment("--since", since), None if until is None else _moment("--until", until)
    flags = {"stream": "--stream", "group": "--group", "since": "--since", "until": "--until"}
    with option_errors(**flags):
        done = run(replay_events(url, name, stream, group, bounds, limit=limit, again=again))
    if as_json:
        _as_json(done)
        return
    events = "event" if done.replayed == 1 else "events"
    typer.echo(f"{done.replayed} {events} of {stream} replayed to {group}.")
    if done.may_lack:
        lacking = "events since then may have been trimmed; declare a retention to keep handled events"
        typer.echo(f"ephemera: {lacking}", err=True)
    if done.following is not None:
        typer.echo(f"There may be more: continue with --since {done.following}")


def _moment(option: str, given: str) -> datetime | str:
    """A time, or the id of an event."""
    if _ENTRY_ID.fullmatch(given) and len(given) > _SHORTEST_ID:
        return given
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        problem = f"{given!r} is not a time such as 2026-01-31T12:00Z, nor an id such as 1700000000000-0"
        raise typer.BadParameter(problem, param_hint=option) from None


def _as_json(found: Any) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(found)))


def _show(table: Table, no_rows: str) -> None:
    if not table.row_count:
        typer.echo(no_rows)
        return
    print_table(table)


_WHERE = "myservice.keys:catalogue --url redis://queue.internal"
COMMANDS = (
    Command("events groups", groups, examples=(("all streams and groups", _WHERE),)),
    Command(
        "events pending",
        pending,
        examples=(
            ("all pending events", _WHERE),
            ("of one stream, as JSON", f"{_WHERE} --stream app:events:users --json"),
        ),
    ),
    Command(
        "events dead",
        dead,
        examples=(
            ("all dead letters", _WHERE),
            ("the ten oldest of one stream", f"{_WHERE} --stream app:events:users --limit 10"),
        ),
    ),
    Command(
        "events replay",
        replay,
        examples=(
            ("replay one", f"{_WHERE} --stream app:events:users --id 1700000000000-0"),
            ("replay all", f"{_WHERE} --stream app:events:users --all"),
            (
                "deliver handled events to a group again",
                f"{_WHERE} --stream app:events:users --group mailer --since 2026-01-31T12:00Z",
            ),
        ),
        exits={1: "failure, or some letters were not found"},
    ),
)
