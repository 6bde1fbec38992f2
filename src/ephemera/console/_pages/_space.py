"""One space: what is written about it, how long its keys live, and some of them with what they hold."""

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
    problem,
    section,
    table,
    text_block,
)
from ephemera.console._connections import Place
from ephemera.console._formatting import HIDDEN, per_cent
from ephemera.console._page import Page
from ephemera.console._survey_cache import SpaceFound
from ephemera.console._view import View
from ephemera.keyspace import Keyspace
from ephemera.operations.audit import TTL_BUCKETS
from ephemera.operations.documentation import KeyspaceDoc, describe
from ephemera.operations.formatting import format_duration, format_size

_LINE = 160  # characters of a value in the table


def build(view: View) -> None:
    """Draw it."""
    chosen = _chosen(view)
    ui.link("← Keyspaces", "/keyspaces").classes("e-back")
    if chosen is None:
        problem(
            "There is no such space", "It may have been renamed: choose one among the keyspaces.", "key_off"
        )
        return
    place, space = chosen
    entry = next(each for catalogue in place.catalogues if catalogue.name == space.catalogue
                 for each in describe(catalogue) if each.pattern == space.pattern)  # fmt: skip
    with ui.element("div").classes("e-page-title"):
        with ui.element("h1").classes("e-mono"):
            ui.label(space.pattern)
        badge(space.kind, "info")
        badge(space.role, "info" if space.role == "queue" else "plain")
        if space.sensitive:
            badge("sensitive", "warn")
    with columns():
        with section("Documentation"):
            facts(_documented(entry))
            _fields(entry)
        with section("Now"):
            now = facts([("Keys", "—")])
    with section("What is left of lives", "Sampled keys by their time to live."):
        lives = bars()
    panel = drawer()
    shown: list[SpaceFound] = []  # the sample on the page, which stays until another is asked for
    with section("Entries", _about_entries(space)) as head:
        with head:
            ui.button("Another sample", icon="casino", on_click=lambda: shown.clear()).props(
                "outline no-caps"
            ).classes("e-button")
        entries = table(
            [
                Column("key", "Key", "mono"),
                Column("value", "Value", "mono"),
                Column("ttl", "Lives for", "time"),
                Column("size", "Bytes", "number"),
            ],
            empty=Empty(
                "No entry was seen", "Either there is no key, or the survey has not come to it yet.", "inbox"
            ),
            on_open=lambda row: _open(panel, row),
        )
        entries.show([])

    def refresh() -> None:
        surveys = view.console.surveys
        surveys.wanted()
        found = surveys.of(place).spaces.get(space.pattern)
        if found is None:
            return
        now.show(_now(found, place.hit_ratios.of(space.pattern), bool(place.hit_ratios.urls)))
        lives.show(TTL_BUCKETS, [found.state.ttl.get(life, 0) for life in TTL_BUCKETS])
        if found.entries and not shown:
            shown.append(found)
            entries.show([_row(number, each) for number, each in enumerate(found.entries)])

    view.every(1, refresh)


def _chosen(view: View) -> tuple[Place, Keyspace[Any]] | None:
    wanted, named = view.arguments.get("space"), view.arguments.get("place")
    return next(
        (
            (place, space)
            for place in view.places
            if place.name == named
            for space in place.spaces
            if space.pattern == wanted
        ),
        None,
    )


def _documented(entry: KeyspaceDoc) -> list[tuple[str, str]]:
    told = [
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
    return [(name, value) for name, value in told if value]


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


def _about_entries(space: Keyspace[Any]) -> str:
    if space.sensitive:
        return "The space is declared sensitive: values are not read, and of keys only the pattern is shown."
    return "A random sample, decoded as declared."


def _now(found: SpaceFound, ratio: float | None, told: bool) -> list[tuple[str, str]]:
    state = found.state
    keys = f"{state.keys:,}"
    if state.estimated_keys is not None:
        keys = f"about {state.estimated_keys.value:,.0f} ({state.keys:,} counted)"
    size = "—"
    if state.size is not None:
        margin = (
            ""
            if state.size.exact or state.size.high is None
            else f" (at most {format_size(state.size.high)})"
        )
        size = format_size(state.size.value) + margin
    return [
        ("Keys", keys),
        ("Bytes", size),
        ("Looked at", f"{state.sampled:,}"),
        ("Without TTL", f"{found.without_ttl:,} of those"),
        ("Longest life", format_duration(state.longest_ttl) if state.longest_ttl is not None else "—"),
        ("Hit ratio", per_cent(ratio) if told else "unknown: give --metrics-url"),
        ("Not readable", f"{found.unreadable:,} of those"),
    ]


def _row(number: int, entry: Any) -> dict[str, Any]:
    line = " ".join(entry.value.split())
    return {
        "id": number,
        "key": entry.key,
        "value": line if len(line) <= _LINE else f"{line[:_LINE]}…",
        "whole": entry.value,
        "ttl": "no end" if entry.ttl < 0 else format_duration(entry.ttl),
        "ttl_sort": entry.ttl,
        "size": "—" if entry.size is None else f"{entry.size:,}",
        "size_sort": entry.size or 0,
    }


def _open(panel: Any, row: dict[str, Any]) -> None:
    with panel.open("Entry"):
        facts([("Key", row["key"]), ("Lives for", row["ttl"]), ("Bytes", row["size"])])
        if row["whole"] != HIDDEN:
            text_block(row["whole"])
        else:
            ui.label("The value is not shown: its space is declared sensitive.").classes("e-note")


PAGE = Page("/space", "Keyspace", "key", build, listed=False)
