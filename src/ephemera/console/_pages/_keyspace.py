"""One keyspace: its documentation, the TTLs of its keys, and sample entries."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from ephemera.console._components import (
    Column,
    Empty,
    badge,
    bars,
    columns,
    drawer,
    facts,
    plot,
    problem,
    section,
    table,
    text_block,
)
from ephemera.console._components._tables import ConsoleTable
from ephemera.console._connections import Service
from ephemera.console._formats import HIDDEN, NO_VALUE, format_percent
from ephemera.console._history import QUANTILES
from ephemera.console._keyspace_groups import KeyspaceGroup
from ephemera.console._survey_cache import KeyspaceSurvey
from ephemera.console._view import ConsolePage, View
from ephemera.keyspace import Keyspace
from ephemera.operations.audit import TTL_BUCKETS
from ephemera.operations.documentation import KeyspaceDoc, describe
from ephemera.operations.formatting import format_duration, format_size

_MAX_LINE = 160  # characters of a value in the table


def build(view: View) -> None:
    """Draw it."""
    chosen = _chosen(view)
    ui.link("← Keyspaces", "/keyspaces").classes("e-back")
    if chosen is None:
        problem("Keyspace not found", "It may have been renamed: choose one from the list.", "key_off")
        return
    service, keyspace = chosen
    entry = next(each for catalogue in service.catalogues if catalogue.name == keyspace.catalogue
                 for each in describe(catalogue) if each.pattern == keyspace.pattern)  # fmt: skip
    with ui.element("div").classes("e-page-title"):
        with ui.element("h1").classes("e-mono"):
            ui.label(keyspace.pattern)
        badge(keyspace.kind, "info")
        badge(keyspace.role, "info" if keyspace.role == "queue" else "plain")
        if keyspace.sensitive:
            badge("sensitive", "warn")
    with columns():
        with section("Documentation"):
            facts(_documented(entry))
            _fields(entry)
        with section("Now"):
            now = facts([("Keys", "—")])
    with section("TTLs", "Sampled keys by remaining TTL."):
        ttls = bars()
    history = view.console.history
    with columns():
        with section("Hit ratio", "Of each minute with lookups, in the last hours, over all processes."):
            ratios = plot("", "percent", "Hit ratio")
        with section("Latency", "Of its round trips, by minute, in the last hours, from a sample."):
            latencies = plot("", "seconds", *QUANTILES)
    group = next(each for each in service.groups if keyspace in each.keyspaces)
    members = _members_table(view, service, group) if len(group.keyspaces) > 1 else None
    panel = drawer()
    shown: list[KeyspaceSurvey] = []  # the sample on the page; it stays until the user asks for another
    with section("Entries", _about_entries(keyspace)) as head:
        with head:
            browser = view.link("/browser", service=service.name, keyspace=keyspace.pattern)
            if keyspace.kind != "channel":
                ui.link("Browse and search", browser)
            ui.button("Another sample", icon="casino", on_click=lambda: shown.clear()).props(
                "outline no-caps"
            ).classes("e-button")
        entries = table(
            [
                Column("key", "Key", "mono"),
                Column("value", "Value", "mono"),
                Column("ttl", "TTL", "time"),
                Column("size", "Bytes", "number"),
            ],
            empty=Empty("No entries", "There are no keys, or the survey has not reached them yet.", "inbox"),
            on_open=lambda row: _open(panel, row),
        )
        entries.show([])

    def refresh() -> None:
        ratios.show_lines([history.hit_ratio(service.name, keyspace.pattern)])
        latencies.show_lines(
            [history.latency(service.name, share, keyspace.pattern) for share in QUANTILES.values()]
        )
        surveys = view.console.surveys
        surveys.refresh_if_stale()
        surveyed = surveys.of(service).keyspaces
        if members is not None:
            members.show([_member(each, surveyed.get(each.pattern)) for each in group.keyspaces])
        found = surveyed.get(keyspace.pattern)
        if found is None:
            return
        now.show(_now(found, service.hit_ratios.of(keyspace.pattern), bool(service.hit_ratios.urls)))
        ttls.show(TTL_BUCKETS, [found.report.ttl.get(bucket, 0) for bucket in TTL_BUCKETS])
        if found.entries and not shown:
            shown.append(found)
            entries.show([_row(number, each) for number, each in enumerate(found.entries)])

    view.every(1, refresh)


def _chosen(view: View) -> tuple[Service, Keyspace[Any]] | None:
    wanted, named = view.arguments.get("keyspace"), view.arguments.get("service")
    return next(
        (
            (service, keyspace)
            for service in view.services
            if service.name == named
            for keyspace in service.keyspaces
            if keyspace.pattern == wanted
        ),
        None,
    )


def _members_table(view: View, service: Service, group: KeyspaceGroup) -> ConsoleTable:
    title = f"Keyspaces of this pattern ({group.kind})"
    with section(title, "A pattern declares keys of its own: indexes, claims, markers, channels."):
        return table(
            [
                Column("keyspace", "Keyspace", "mono"),
                Column("kind", "Kind"),
                Column("purpose", "Purpose"),
                Column("lifetime", "Lifetime"),
                Column("keys", "Keys", "number"),
                Column("size", "Bytes", "number"),
            ],
            empty=Empty("No keyspaces", ""),
            on_open=lambda row: view.go("/keyspace", service=service.name, keyspace=row["keyspace"]),
        )


def _member(keyspace: Keyspace[Any], found: KeyspaceSurvey | None) -> dict[str, Any]:
    report = found.report if found is not None else None
    size = report.size if report is not None else None
    return {
        "id": keyspace.pattern,
        "keyspace": keyspace.pattern,
        "kind": keyspace.kind,
        "purpose": keyspace.purpose,
        "lifetime": str(keyspace.lifetime),
        "keys": NO_VALUE if report is None else f"{report.keys:,}",
        "keys_sort": -1 if report is None else report.keys,
        "size": NO_VALUE if size is None else format_size(size.value),
        "size_sort": -1 if size is None else size.value,
    }


def _documented(entry: KeyspaceDoc) -> list[tuple[str, str]]:
    found = [
        ("Purpose", entry.purpose),
        ("Holds", entry.holds),
        ("Lifetime", entry.lifetime),
        ("Saves", entry.saves),
        ("Invalidated by", ", ".join(entry.invalidated_by)),
        ("If lost", entry.if_lost),
        ("Outlives", entry.outlives or ""),
        ("Written by", entry.owner),
        ("At most", f"{entry.max_length:,} entries" if entry.max_length else ""),
        ("Cluster slot by", entry.hash_tag or ""),
    ]
    return [(name, value) for name, value in found if value]


def _fields(entry: KeyspaceDoc) -> None:
    if entry.fields:
        shown = table(
            [
                Column("name", "Field", "mono"),
                Column("type", "Type", "mono"),
                Column("default", "Default", "mono"),
            ],
            empty=Empty("No fields", ""),
            rows_per_page=50,
        )
        shown.show(
            [
                {"id": field.name, "name": field.name, "type": field.type, "default": field.default or ""}
                for field in entry.fields
            ]
        )


def _about_entries(keyspace: Keyspace[Any]) -> str:
    if keyspace.sensitive:
        return "The keyspace is declared sensitive: values are not read, and keys appear as the pattern."
    return "A random sample, decoded as declared."


def _now(found: KeyspaceSurvey, ratio: float | None, known: bool) -> list[tuple[str, str]]:
    report = found.report
    keys = f"{report.keys:,}"
    if report.estimated_keys is not None:
        keys = f"about {report.estimated_keys.value:,.0f} ({report.keys:,} counted)"
    size = "—"
    if report.size is not None:
        margin = (
            ""
            if report.size.exact or report.size.high is None
            else f" (at most {format_size(report.size.high)})"
        )
        size = format_size(report.size.value) + margin
    return [
        ("Keys", keys),
        ("Bytes", size),
        ("Sampled", f"{report.sampled:,}"),
        ("Without TTL", f"{found.without_ttl:,} of those"),
        ("Longest TTL", format_duration(report.longest_ttl) if report.longest_ttl is not None else "—"),
        ("Hit ratio", format_percent(ratio) if known else "unknown: needs --metrics-url"),
        ("Undecodable", f"{found.undecodable:,} of those"),
    ]


def _row(number: int, entry: Any) -> dict[str, Any]:
    line = " ".join(entry.value.split())
    return {
        "id": number,
        "key": entry.key,
        "value": line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…",
        "whole": entry.value,
        "ttl": "no TTL" if entry.ttl < 0 else format_duration(entry.ttl),
        "ttl_sort": entry.ttl,
        "size": "—" if entry.size is None else f"{entry.size:,}",
        "size_sort": entry.size or 0,
    }


def _open(panel: Any, row: dict[str, Any]) -> None:
    with panel.open("Entry"):
        facts([("Key", row["key"]), ("TTL", row["ttl"]), ("Bytes", row["size"])])
        if row["whole"] != HIDDEN:
            text_block(row["whole"])
        else:
            ui.label("The value is hidden: its keyspace is declared sensitive.").classes("e-note")


PAGE = ConsolePage("/keyspace", "Keyspace", "key", build, listed=False)
