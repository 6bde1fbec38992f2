"""`ephemera doctor`: check a server's health and capacity, with advice."""

from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from ephemera.cli._catalogue_lookup import load_catalogue
from ephemera.cli._command import AsJson, Command, Url, flag, run
from ephemera.cli._durations import seconds
from ephemera.cli._screens import screen
from ephemera.keyspace import Catalogue, Role
from ephemera.operations.formatting import format_count, format_size
from ephemera.operations.health import (
    Capacity,
    Check,
    Health,
    HotKey,
    check_server,
    estimate_capacity,
    find_hot_keys,
)

_SIGNS = {
    "ok": "[green]ok[/]",
    "note": "[blue]note[/]",
    "warning": "[yellow]warning[/]",
    "problem": "[red]problem[/]",
}
_BUDGET = 30.0  # seconds to measure the sizes of keyspaces


class Diagnosis(msgspec.Struct, frozen=True):
    """The JSON output."""

    health: Health
    capacity: Capacity | None
    days_until_full: float | None
    hot_keys: list[HotKey] | None


def doctor(
    url: Url,
    catalogue: Annotated[
        list[Catalogue] | None,
        flag(
            "--catalogue",
            "A catalogue of the server, by name or module:object; repeatable.",
            metavar="NAME",
            parser=load_catalogue,
            show_default="roles and sizes are not checked",
        ),
    ] = None,
    role: Annotated[
        Role | None, flag("--role", "The only role that this server carries.", show_default="both")
    ] = None,
    identity: Annotated[
        str | None,
        flag(
            "--identity", "The name that the server must be marked with.", show_default="any", metavar="NAME"
        ),
    ] = None,
    watch: Annotated[
        float,
        flag(
            "--watch",
            "How long to observe its growth: 10s, 5m.",
            metavar="TIME",
            parser=seconds,
            show_default="2s",
        ),
    ] = 2.0,
    hot_keys: Annotated[
        float | None,
        flag(
            "--hot-keys",
            "How long to sample its commands, by MONITOR, for hot keys: 1s.",
            metavar="TIME",
            parser=seconds,
            show_default="not at all",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Check a server's health, and give advice.

    Checks reachability, the mark, eviction and persistence for the roles of its keyspaces, hit ratio,
    evictions, latency, memory, fragmentation, slow log, replication, refused clients and clock; each with its
    figure and its rule. With a catalogue also shows the memory of each keyspace, and the days until memory is
    full at the current growth. It reads and never writes. With --hot-keys also lists the keys that get 5 % or
    more of the commands of their server; a busy server is slower for as long, and the user needs +monitor.
    """
    catalogues = catalogue or []
    with Console(stderr=True).status("Checking"):
        health = run(check_server(url, catalogues, role=role, identity=identity))
        reached = all(check.name != "reachable" or check.status == "ok" for check in _checks(health))
        capacity = None
        if catalogues and reached:
            capacity = run(estimate_capacity(url, catalogues, observe=watch, budget=_BUDGET))
            undeclared = capacity.undeclared  # the settings must suit those keys, too
            health = run(check_server(url, catalogues, role=role, identity=identity, undeclared=undeclared))
        hot = run(find_hot_keys(url, catalogues, seconds=hot_keys)) if hot_keys and reached else None
    if json:
        days = capacity.days_until_full if capacity else None
        typer.echo(msgspec.json.format(msgspec.json.encode(Diagnosis(health, capacity, days, hot))))
    else:
        _show(health, capacity, hot)
    if health.status == "problem":
        raise typer.Exit(1)


def _checks(health: Health) -> list[Check]:
    return [check for server in health.servers for check in server.checks]


def _show(health: Health, capacity: Capacity | None, hot_keys: list[HotKey] | None) -> None:
    console = screen(highlight=False)
    for server in health.servers:
        folded = (Column("figure", overflow="fold"), Column("rule", overflow="fold"))
        table = Table("", "check", *folded, title=escape(f"{server.name} {server.version}"))
        for check in server.checks:
            table.add_row(_SIGNS[check.status], check.name, escape(check.figure), escape(check.rule))
        console.print(table)
    if capacity is not None:
        _show_capacity(console, capacity)
    if hot_keys is not None:
        _show_hot_keys(console, hot_keys)
    for advised in health.advice:
        console.print(f"{_SIGNS[advised.status]} {advised.name}: {escape(advised.advice)}")
        for command in advised.commands:
            console.print(f"  [bold]{escape(command)}[/]")
    if not health.advice:
        console.print("[green]No problems.[/]")


def _show_capacity(console: Console, capacity: Capacity) -> None:
    table = Table(Column("keyspace", overflow="fold"), "keys", "bytes per key", "total", title="Capacity")
    for keyspace in capacity.keyspaces:
        size = "" if keyspace.size is None else format_size(keyspace.size.value)
        table.add_row(escape(keyspace.pattern), f"{keyspace.keys:,}", f"{keyspace.bytes_per_key:,.0f}", size)
    console.print(table)
    console.print(_outlook(capacity))


def _show_hot_keys(console: Console, hot_keys: list[HotKey]) -> None:
    if not hot_keys:
        console.print("No hot keys.")
        return
    table = Table(
        Column("key", overflow="fold"), "command", "per second", "share", "server", title="Hot keys"
    )
    for hot in hot_keys:
        shown = (escape(hot.key or "(hidden)"), hot.command, f"{hot.per_second:,.0f}", f"{hot.share:.0%}")
        table.add_row(*shown, escape(hot.server))
    console.print(table)


def _outlook(capacity: Capacity) -> str:
    limit = f"of {format_size(capacity.limit)} " if capacity.limit else ""
    used = f"{format_size(capacity.used)} {limit}used"
    unknown = f", {format_count(capacity.unknown_keys, 'undeclared key')}" if capacity.unknown_keys else ""
    left = capacity.time_until_full
    if left is not None:
        outlook = f"full in {left} at the current {format_size(capacity.growth)}/s"
    elif not capacity.limit:
        outlook = "no limit"
    elif capacity.evicts:
        outlook = "evicts when it is full"
    else:
        outlook = "not growing"
    return f"{used}{unknown}; observed for {capacity.observed:.0f} s: {outlook}."


COMMAND = Command(
    "doctor",
    doctor,
    examples=(
        ("check a server", "--url redis://cache.internal"),
        (
            "a cache, with the memory of its keyspaces",
            "--url redis://cache.internal --role cache --catalogue myservice.keys:catalogue",
        ),
        (
            "which keys are hot",
            "--url redis://cache.internal --catalogue myservice.keys:catalogue --hot-keys 1s",
        ),
        ("as JSON", "--url redis://queue.internal --role queue --identity slides-queue --json"),
    ),
    exits={1: "failure, or a problem was found"},
)
