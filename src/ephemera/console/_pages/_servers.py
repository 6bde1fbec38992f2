"""Two servers side by side: their figures, and the keys of each keyspace on both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from ephemera.console._components import Column, Empty, badge, columns, empty, plot, section, table
from ephemera.console._formats import NO_VALUE, format_percent, format_seconds
from ephemera.console._server_monitor import MonitoredServer, ServerSample
from ephemera.console._survey_cache import KeyspaceSurvey
from ephemera.console._view import ConsolePage, View
from ephemera.operations.formatting import format_size

_SIDES = ("left", "right")


def build(view: View) -> None:
    """Draw it."""
    servers = {f"{server.name} ({server.address})": server for server in view.console.monitor.servers}
    if len(servers) < 2:
        empty(
            "There is one server",
            "Start the console with --compare-url to compare it with another one, or with --queue-url.",
            icon="compare",
        )
        return
    names = list(servers)
    with section("Servers", "Choose two.") as head:
        with head:
            chosen = [
                ui.select(names, value=names[position], label=f"On the {side}").props("dense outlined")
                for position, side in enumerate(_SIDES)
            ]
        figures = table(
            [Column("figure", "Figure"), *(Column(side, side.capitalize()) for side in _SIDES)],
            empty=Empty("No figures yet", "The first sample takes two seconds.", "hourglass_empty"),
            rows_per_page=50,
        )
    with columns():
        with section("Commands per second"):
            commands = plot("", "number", *_SIDES)
        with section("Memory"):
            memory = plot("", "bytes", *_SIDES)
    with section("Keyspaces", "Keys and bytes of each keyspace that was found on one of them.") as head:
        with head:
            differ = badge("", "plain")
        keyspaces = table(
            [
                Column("keyspace", "Keyspace", "mono"),
                *(Column(f"{side}_keys", f"Keys, {side}", "number") for side in _SIDES),
                *(Column(f"{side}_size", f"Bytes, {side}", "number") for side in _SIDES),
                Column("difference", "Keys", "badge"),
            ],
            empty=Empty("No declared keys", "Keys of declared keyspaces appear here.", "inbox"),
            search=True,
        )

    def refresh() -> None:
        view.console.surveys.refresh_if_stale()
        pair = [servers[select.value] for select in chosen]
        figures.show(_figures(pair))
        lines = [list(server.samples) for server in pair]
        commands.show_lines([[(each.at, each.commands) for each in line] for line in lines])
        memory.show_lines([[(each.at, each.memory) for each in line] for line in lines])
        rows = _keyspaces(*(_surveyed(view, server) for server in pair))
        keyspaces.show(rows)
        different = sum(row["difference"] != "equal" for row in rows)
        differ.show(f"{different} differ" if different else "equal", "warn" if different else "good")

    timer = view.every(2, refresh)
    for select in chosen:
        select.on_value_change(timer.now)


_FIGURES: tuple[tuple[str, Callable[[ServerSample], str]], ...] = (
    ("Memory", lambda now: format_size(now.memory or 0)),
    ("Limit", lambda now: format_size(now.limit) if now.limit else "none"),
    ("When it is full", lambda now: "evicts" if now.evicts else "refuses writes"),
    ("Keys", lambda now: f"{now.keys:,}"),
    ("Clients", lambda now: f"{now.clients:,}"),
    ("Commands per second", lambda now: NO_VALUE if now.commands is None else f"{now.commands:,.0f}"),
    ("Of this console", lambda now: NO_VALUE if now.own_commands is None else f"{now.own_commands:,.0f}"),
    ("Evictions per second", lambda now: NO_VALUE if now.evictions is None else f"{now.evictions:,.0f}"),
    ("Hit ratio", lambda now: format_percent(now.hit_ratio)),
    ("Version", lambda now: now.version),
    ("Up for", lambda now: format_seconds(now.uptime)),
)


def _figures(pair: list[MonitoredServer]) -> list[dict[str, Any]]:
    shown = [(name, *(_figure(server.now, value) for server in pair)) for name, value in _FIGURES]
    health = [server.health.status if server.health is not None else NO_VALUE for server in pair]
    rows = [("Health", *health), *shown]
    return [{"id": name, "figure": name, "left": left, "right": right} for name, left, right in rows]


def _figure(now: ServerSample | None, value: Callable[[ServerSample], str]) -> str:
    return "unavailable" if now is None else value(now)


def _surveyed(view: View, server: MonitoredServer) -> dict[str, KeyspaceSurvey]:
    return {
        pattern: found
        for service in server.services
        for pattern, found in view.console.surveys.of(service).keyspaces.items()
        if server.role in (None, found.keyspace.role)
    }


def _keyspaces(left: dict[str, KeyspaceSurvey], right: dict[str, KeyspaceSurvey]) -> list[dict[str, Any]]:
    rows = []
    for pattern in dict.fromkeys((*left, *right)):
        keys = [found[pattern].report.keys if pattern in found else None for found in (left, right)]
        if not any(keys):
            continue
        row: dict[str, Any] = {"id": pattern, "keyspace": pattern}
        for side, found, count in zip(_SIDES, (left, right), keys, strict=True):
            size = found[pattern].report.size if pattern in found else None
            row[f"{side}_keys"] = NO_VALUE if count is None else f"{count:,}"
            row[f"{side}_keys_sort"] = -1 if count is None else count
            row[f"{side}_size"] = NO_VALUE if size is None else format_size(size.value)
            row[f"{side}_size_sort"] = -1 if size is None else size.value
        row["difference"] = "equal" if keys[0] == keys[1] else f"{(keys[1] or 0) - (keys[0] or 0):+,}"
        row["difference_tone"] = "plain" if keys[0] == keys[1] else "warn"
        rows.append(row)
    return rows


PAGE = ConsolePage("/servers", "Servers", "compare", build)
