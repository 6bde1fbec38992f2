"""Keyspaces: every declared keyspace with its keys, and undeclared keys."""

from __future__ import annotations

from time import time
from typing import Any

from nicegui import ui

from ephemera.console._components import Column, Empty, section, table, tile, tiles
from ephemera.console._connections import Service
from ephemera.console._formats import format_percent
from ephemera.console._survey_cache import KeyspaceSurvey, ServiceSurvey, SurveyCache
from ephemera.console._view import ConsolePage, View
from ephemera.keyspace import Keyspace
from ephemera.operations.formatting import format_size
from ephemera.operations.survey import Interval

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


def build(view: View) -> None:
    """Draw it."""
    where = [Column("service", "Service")] if len(view.services) > 1 else []
    with tiles():
        keyspaces, keys = tile("Declared keyspaces"), tile("Declared keys")
        size, unknown = tile("Size of declared keys", "from a sample"), tile("Undeclared keys")
    with section("Declared keyspaces", "Open one for its documentation, TTLs and sample entries.") as head:
        with head:
            status = ui.label().classes("e-note e-stand")
        declared = table(
            [*_COLUMNS[:1], *where, *_COLUMNS[1:]],
            empty=Empty(
                "Nothing is declared", "Start the console with a --catalogue that has keyspaces.", "key_off"
            ),
            on_open=lambda row: view.go("/keyspace", service=row["service"], keyspace=row["keyspace"]),
            rows_per_page=25,
            search=True,
        )
    with section("Undeclared keys", "Keys that are in no catalogue, grouped by shape."):
        shapes = table(
            [
                Column("shape", "Shape", "mono"),
                *where,
                Column("keys", "Keys", "number"),
                Column("types", "Types"),
                Column("examples", "Examples", "mono"),
            ],
            empty=Empty("No undeclared keys", "Every key seen is declared.", "verified"),
        )

    def refresh() -> None:
        surveys = view.console.surveys
        surveys.refresh_if_stale()
        found = {service: surveys.of(service) for service in view.services}
        all_keyspaces = [each for one in found.values() for each in one.keyspaces.values()]
        keyspaces.show(f"{sum(len(service.keyspaces) for service in view.services):,}")
        known = any(one.at for one in found.values())
        keys.show(f"{sum(each.report.keys for each in all_keyspaces):,}" if known else "—")
        size.show(format_size(sum(each.report.size.value for each in all_keyspaces if each.report.size)))
        undeclared = sum(each.keys for one in found.values() for _, each in one.unknown)
        unknown.show(f"{undeclared:,}" if known else "—", tone="warn" if undeclared else "good")
        status.text = _status(surveys, found)
        declared.show(
            [
                _row(service, keyspace, found[service])
                for service in view.services
                for keyspace in service.keyspaces
            ]
        )
        shapes.show([row for service in view.services for row in _unknown(service, found[service])])

    view.every(1, refresh)


def _status(surveys: SurveyCache, found: dict[Service, ServiceSurvey]) -> str:
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


def _row(service: Service, keyspace: Keyspace[Any], found: ServiceSurvey) -> dict[str, Any]:
    seen = found.keyspaces.get(keyspace.pattern)
    no_ttl, tone = _without_ttl(keyspace, seen)
    ratio = service.hit_ratios.of(keyspace.pattern)
    size = seen.report.size if seen else None
    return {
        "id": f"{keyspace.catalogue}/{keyspace.pattern}",
        "service": service.name,
        "keyspace": keyspace.pattern,
        "kind": keyspace.kind,
        "lifetime": str(keyspace.lifetime),
        "role": keyspace.role,
        "role_tone": "info" if keyspace.role == "queue" else "plain",
        "keys": _keys(seen),
        "keys_sort": seen.report.keys if seen else -1,
        "size": _size(size),
        "size_sort": size.value if size else -1,
        "ratio": format_percent(ratio),
        "ratio_sort": -1 if ratio is None else ratio,
        "no_ttl": no_ttl,
        "no_ttl_tone": tone,
        "no_ttl_sort": seen.without_ttl if seen else -1,
    }


def _keys(seen: KeyspaceSurvey | None) -> str:
    if seen is None:
        return "—"
    if seen.report.estimated_keys is not None:
        return f"≈ {seen.report.estimated_keys.value:,.0f}"
    return f"{seen.report.keys:,}"


def _size(size: Interval | None) -> str:
    if size is None:
        return "—"
    return format_size(size.value) if size.exact else f"≈ {format_size(size.value)}"


def _without_ttl(keyspace: Keyspace[Any], seen: KeyspaceSurvey | None) -> tuple[str, str]:
    """Sampled keys without a TTL; expected where they are declared permanent."""
    if seen is None or not seen.report.sampled:
        return "", "plain"
    count, of = seen.without_ttl, seen.report.sampled
    if keyspace.lifetime.milliseconds is None and count:
        return "as declared", "plain"
    if not count:
        return "none", "plain"
    return (f"{count} of {of}" if of < seen.report.keys else f"{count}"), "bad"


def _unknown(service: Service, found: ServiceSurvey) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{service.name}/{server}/{number}",
            "service": service.name,
            "shape": shape.pattern or shape.reason or "",
            "keys": f"{shape.keys:,}",
            "keys_sort": shape.keys,
            "types": ", ".join(shape.types),
            "examples": ", ".join(shape.examples) or "not shown: they may be secrets",
        }
        for server, unknown in found.unknown
        for number, shape in enumerate(unknown.shapes[:100])
    ]


PAGE = ConsolePage("/keyspaces", "Keyspaces", "key", build)
