"""Keyspaces: what is declared, what libraries write, and undeclared keys.

The keyspaces of one pattern are one row. Keys that a known library writes are a section of their own, with
what to know about it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any

from nicegui import ui

from ephemera.console._components import Column, Empty, section, table, tile, tiles
from ephemera.console._components._cards import Tone
from ephemera.console._components._tables import ConsoleTable
from ephemera.console._connections import Service
from ephemera.console._formats import format_percent
from ephemera.console._key_search import UNDECLARED
from ephemera.console._keyspace_groups import KeyspaceGroup
from ephemera.console._survey_cache import KeyspaceSurvey, ServiceSurvey, SurveyCache
from ephemera.console._view import ConsolePage, View
from ephemera.operations.audit import UnknownKeys, UnknownShape
from ephemera.operations.formatting import format_count, format_size
from ephemera.operations.libraries import library_of

_COLUMNS = (
    Column("keyspace", "Keyspace", "mono"),
    Column("kind", "Kind"),
    Column("lifetime", "Lifetime"),
    Column("role", "Role", "badge"),
    Column("keys", "Keys", "number"),
    Column("size", "Bytes", "number"),
    Column("ratio", "Hit ratio", "number"),
    Column("no_ttl", "Without TTL", "badge"),
)


_Found = dict[Service, ServiceSurvey]
_Show = Callable[[_Found], None]
"""Shows what surveys found."""


def build(view: View) -> None:
    """Draw it; without a catalogue, libraries come first."""
    where = [Column("service", "Service")] if len(view.services) > 1 else []
    catalogued = any(service.keyspaces for service in view.services)
    show_first = _declared(view, where) if catalogued else _library_figures()
    libraries = _Libraries(view, where)
    title, note = (
        ("Undeclared keys", "Keys that are in no catalogue, by shape. Open one for its keys.")
        if catalogued
        else ("Other keys", "Keys of no known library, by shape. Open one for its keys.")
    )
    with section(title, note) as head:
        with head:
            status = None if catalogued else ui.label().classes("e-note e-stand")
        shapes = table(
            [
                Column("shape", "Shape", "mono"),
                *where,
                Column("keys", "Keys", "number"),
                Column("types", "Types"),
                Column("examples", "Examples", "mono"),
            ],
            empty=Empty("No undeclared keys", "Every key seen is declared.", "verified")
            if catalogued
            else Empty("No other keys", "Every key seen belongs to a library.", "verified"),
            on_open=lambda row: _browse(view, row),
        )

    def refresh() -> None:
        surveys = view.console.surveys
        surveys.refresh_if_stale()
        found = {service: surveys.of(service) for service in view.services}
        show_first(found)
        if status is not None:
            status.text = _status(surveys, found)
        rows = [row for service in view.services for row in _unknown(service, found[service])]
        libraries.show([row for row in rows if row["library"]])
        shapes.show([row for row in rows if not row["library"]])

    view.every(1, refresh)


def _declared(view: View, where: list[Column]) -> _Show:
    """The figures and the table of declared keyspaces."""
    with tiles():
        keyspaces, keys = tile("Declared keyspaces"), tile("Declared keys")
        size, unknown = tile("Size of declared keys", "from a sample"), tile("Undeclared keys")
    with section("Declared keyspaces", "Open one for its documentation, TTLs and sample entries.") as head:
        with head:
            status = ui.label().classes("e-note e-stand")
        declared = table(
            [*_COLUMNS[:1], *where, *_COLUMNS[1:]],
            empty=Empty("Nothing is declared", "These catalogues have no keyspaces.", "key_off"),
            on_open=lambda row: view.go("/keyspace", service=row["service"], keyspace=row["keyspace"]),
            rows_per_page=25,
            search=True,
        )

    def show(found: _Found) -> None:
        all_keyspaces = [each for one in found.values() for each in one.keyspaces.values()]
        groups = [(service, group) for service in view.services for group in service.groups]
        declared_keyspaces = sum(len(service.keyspaces) for service in view.services)
        keyspaces.show(f"{declared_keyspaces:,}", f"in {format_count(len(groups), 'row')}, by pattern")
        known = any(one.at for one in found.values())
        keys.show(f"{sum(each.report.keys for each in all_keyspaces):,}" if known else "—")
        size.show(format_size(sum(each.report.size.value for each in all_keyspaces if each.report.size)))
        undeclared = sum(each.keys for each in _undeclared(found))
        unknown.show(f"{undeclared:,}" if known else "—", tone="warn" if undeclared else "good")
        status.text = _status(view.console.surveys, found)
        declared.show([_row(service, group, found[service]) for service, group in groups])

    return show


def _library_figures() -> _Show:
    """The figures of a server without a catalogue."""
    with tiles():
        libraries, theirs = tile("Libraries"), tile("Keys of libraries")
        others, size = tile("Other keys"), tile("Size of all keys", "from a sample")

    def show(found: _Found) -> None:
        if not any(one.at for one in found.values()):
            return
        unknown = _undeclared(found)
        shapes = [shape for each in unknown for shape in each.shapes if shape.library]
        recognized = sum(shape.keys for shape in shapes)
        libraries.show(str(len({shape.library for shape in shapes})))
        theirs.show(f"{recognized:,}")
        others.show(f"{sum(each.keys for each in unknown) - recognized:,}")
        size.show(format_size(sum(each.size.value for each in unknown if each.size)))

    return show


def _undeclared(found: _Found) -> list[UnknownKeys]:
    return [unknown for one in found.values() for _, unknown in one.unknown]


class _Libraries:
    """A section for each library whose keys were found."""

    def __init__(self, view: View, where: list[Column]) -> None:
        self._view = view
        self._box = ui.element("div").classes("e-stack")
        self._where = where
        self._tables: dict[str, ConsoleTable] = {}

    def show(self, rows: list[dict[str, Any]]) -> None:
        names = sorted({row["library"] for row in rows})
        if names != list(self._tables):
            self._box.clear()
            with self._box:
                self._tables = {name: self._section(name) for name in names}
        for name, found in self._tables.items():
            found.show([row for row in rows if row["library"] == name])

    def _section(self, name: str) -> ConsoleTable:
        library = library_of(name)
        with section(name, _sentence(f"to replace it: {library.first}") if library.first else ""):
            found = table(
                [
                    Column("purpose", "Purpose"),
                    Column("shape", "Shape", "mono"),
                    *self._where,
                    Column("keys", "Keys", "number"),
                    Column("types", "Types"),
                    Column("role", "Role", "badge"),
                    Column("no_ttl", "Without TTL", "badge"),
                ],
                empty=Empty("No keys", "They have expired or were deleted."),
                on_open=lambda row: _browse(self._view, row),
            )
            for hazard in library.hazards:
                with ui.element("div").classes("e-hazard"):
                    ui.icon("warning_amber", size="18px").props('aria-hidden="true"')
                    ui.label(_sentence(hazard))
        return found


def _browse(view: View, row: dict[str, Any]) -> None:
    """Show the keys of a shape."""
    view.go("/browser", service=row["service"], keyspace=row["pattern"] or UNDECLARED)


def _sentence(text: str) -> str:
    """A remark about a library as a sentence without marks of code."""
    return text[:1].upper() + text[1:].replace("`", "") + "."


def _status(surveys: SurveyCache, found: _Found) -> str:
    """The age of the figures, what is missing, and whether a survey is running."""
    known = [one for one in found.values() if one.at]
    if not known:
        phase, done, total = surveys.progress
        counting = f"counting {phase}: {done:,} of {total:,}" if total else "counting"
        return counting if surveys.running else "not counted yet"
    age = int(time() - min(one.at for one in known))
    when = f"{age // 5 * 5} s ago" if age >= 5 else "just now"
    part = "" if all(one.complete for one in known) else ", part of the keys"
    missing = f", {len(found) - len(known)} services not yet" if len(known) < len(found) else ""
    return f"counted {when}{part}{missing}"


def _row(service: Service, group: KeyspaceGroup, found: ServiceSurvey) -> dict[str, Any]:
    main, stored = group.main, [each for each in group.keyspaces if each.kind != "channel"]
    seen = [one for each in stored if (one := found.keyspaces.get(each.pattern)) is not None]
    no_ttl, tone = _without_ttl(seen)
    ratio = service.hit_ratios.of(main.pattern)
    sizes = [each.report.size for each in seen if each.report.size is not None]
    size = sum(each.value for each in sizes)
    more = len(group.keyspaces) - 1
    return {
        "id": f"{service.name}/{main.pattern}",
        "service": service.name,
        "keyspace": main.pattern,
        "kind": f"{group.kind}, +{more}" if more else group.kind,
        "lifetime": str(main.lifetime),
        "role": main.role,
        "role_tone": "info" if main.role == "queue" else "plain",
        "keys": _keys(seen),
        "keys_sort": sum(each.report.keys for each in seen) if seen else -1,
        "size": _size(size, exact=all(each.exact for each in sizes)) if sizes else "—",
        "size_sort": size if sizes else -1,
        "ratio": format_percent(ratio),
        "ratio_sort": -1 if ratio is None else ratio,
        "no_ttl": no_ttl,
        "no_ttl_tone": tone,
        "no_ttl_sort": sum(each.without_ttl for each in seen) if seen else -1,
        "search": " ".join(each.pattern for each in group.keyspaces),
    }


def _keys(seen: list[KeyspaceSurvey]) -> str:
    if not seen:
        return "—"
    reports = [each.report for each in seen]
    if any(each.estimated_keys is not None for each in reports):
        about = sum(each.estimated_keys.value if each.estimated_keys else each.keys for each in reports)
        return f"≈ {about:,.0f}"
    return f"{sum(each.keys for each in reports):,}"


def _size(size: float, *, exact: bool) -> str:
    return format_size(size) if exact else f"≈ {format_size(size)}"


def _without_ttl(seen: list[KeyspaceSurvey]) -> tuple[str, Tone]:
    """Sampled keys without a TTL; expected where they are declared permanent."""
    sampled = [each for each in seen if each.report.sampled]
    if not sampled:
        return "", "plain"
    unexpected = [each for each in sampled if each.keyspace.lifetime.milliseconds is not None]
    count, of = sum(each.without_ttl for each in unexpected), sum(each.report.sampled for each in unexpected)
    if count:
        return (
            f"{count} of {of}" if of < sum(each.report.keys for each in unexpected) else f"{count}"
        ), "bad"
    return ("as declared" if any(each.without_ttl for each in sampled) else "none"), "plain"


def _unknown(service: Service, found: ServiceSurvey) -> list[dict[str, Any]]:
    return [
        _unknown_row(f"{service.name}/{server}/{number}", service, shape)
        for server, unknown in found.unknown
        for number, shape in enumerate(unknown.shapes[:100])
    ]


def _unknown_row(row_id: str, service: Service, shape: UnknownShape) -> dict[str, Any]:
    return {
        "id": row_id,
        "service": service.name,
        "library": shape.library or "",
        "purpose": shape.purpose,
        "pattern": shape.pattern,
        "shape": shape.pattern or shape.reason or "",
        "keys": f"{shape.keys:,}",
        "keys_sort": shape.keys,
        "types": ", ".join(shape.types),
        "role": shape.role or "",
        "role_tone": "info" if shape.role == "queue" else "plain",
        "no_ttl": "some" if shape.permanent else "none",
        "no_ttl_tone": "warn" if shape.permanent and shape.role == "cache" else "plain",
        "examples": ", ".join(shape.examples) or "not shown: they may be secrets",
    }


PAGE = ConsolePage("/keyspaces", "Keyspaces", "key", build)
