"""Keyspaces: every declared space and what is there of it, and the keys that nobody declared."""

from __future__ import annotations

from time import time
from typing import Any

from nicegui import ui

from ephemera.console._components import Column, Empty, section, table, tile, tiles
from ephemera.console._connections import Place
from ephemera.console._formatting import per_cent
from ephemera.console._page import Page
from ephemera.console._survey_cache import Found, SpaceFound, Surveys
from ephemera.console._view import View
from ephemera.keyspace import Keyspace
from ephemera.operations.formatting import format_size
from ephemera.operations.survey import Interval

_COLUMNS = (
    Column("space", "Keyspace", "mono"),
    Column("kind", "Kind"),
    Column("lifetime", "Lifetime"),
    Column("role", "Role", "badge"),
    Column("keys", "Keys", "number"),
    Column("size", "Bytes", "number"),
    Column("ratio", "Hit ratio", "number"),
    Column("endless", "Without TTL", "badge"),
)


def build(view: View) -> None:
    """Draw it."""
    where = [Column("place", "Place")] if len(view.places) > 1 else []
    with tiles():
        spaces, keys = tile("Declared spaces"), tile("Keys in them")
        size, unknown = tile("Bytes in them", "from a sample"), tile("Undeclared keys")
    with section(
        "Declared spaces", "Open one for its documentation, its lives and some of its entries."
    ) as head:
        with head:
            stand = ui.label().classes("e-note e-stand")
        declared = table(
            [*_COLUMNS[:1], *where, *_COLUMNS[1:]],
            empty=Empty("Nothing is declared", "Give --catalogue a catalogue that has spaces.", "key_off"),
            on_open=lambda row: view.go("/space", place=row["place"], space=row["space"]),
            rows_per_page=25,
            search=True,
        )
    with section("Unknown keys", "What is on the servers and in no catalogue, by what it looks like."):
        shapes = table(
            [
                Column("shape", "Looks like", "mono"),
                *where,
                Column("keys", "Keys", "number"),
                Column("types", "Types"),
                Column("examples", "For example", "mono"),
            ],
            empty=Empty("None", "Every key that was seen is declared.", "verified"),
        )

    def refresh() -> None:
        surveys = view.console.surveys
        surveys.wanted()
        found = {place: surveys.of(place) for place in view.places}
        all_spaces = [each for one in found.values() for each in one.spaces.values()]
        spaces.show(f"{sum(len(place.spaces) for place in view.places):,}")
        known = any(one.at for one in found.values())
        keys.show(f"{sum(each.state.keys for each in all_spaces):,}" if known else "—")
        size.show(format_size(sum(each.state.size.value for each in all_spaces if each.state.size)))
        strangers = sum(each.keys for one in found.values() for _, each in one.unknown)
        unknown.show(f"{strangers:,}" if known else "—", tone="warn" if strangers else "good")
        stand.text = _stand(surveys, found)
        declared.show([_row(place, space, found[place]) for place in view.places for space in place.spaces])
        shapes.show([row for place in view.places for row in _unknown(place, found[place])])

    view.every(1, refresh)


def _stand(surveys: Surveys, found: dict[Place, Found]) -> str:
    """How old it is, what is missing, and whether it is being counted just now."""
    known = [one for one in found.values() if one.at]
    if not known:
        what, done, total = surveys.progress
        counting = f"counting {what}: {done:,} of {total:,}" if total else "counting"
        return counting if surveys.running else "not counted yet"
    age = int(time() - min(one.at for one in known))
    when = f"{age // 5 * 5} s ago" if age >= 5 else "just now"
    part = "" if all(one.complete for one in known) else ", a part of the keys"
    missing = f", {len(found) - len(known)} places not yet" if len(known) < len(found) else ""
    return f"counted {when}{part}{missing}"


def _row(place: Place, space: Keyspace[Any], found: Found) -> dict[str, Any]:
    seen = found.spaces.get(space.pattern)
    endless, tone = _endless(space, seen)
    ratio = place.hit_ratios.of(space.pattern)
    size = seen.state.size if seen else None
    return {
        "id": f"{space.catalogue}/{space.pattern}",
        "place": place.name,
        "space": space.pattern,
        "kind": space.kind,
        "lifetime": str(space.lifetime),
        "role": space.role,
        "role_tone": "info" if space.role == "queue" else "plain",
        "keys": _keys(seen),
        "keys_sort": seen.state.keys if seen else -1,
        "size": _size(size),
        "size_sort": size.value if size else -1,
        "ratio": per_cent(ratio),
        "ratio_sort": -1 if ratio is None else ratio,
        "endless": endless,
        "endless_tone": tone,
        "endless_sort": seen.without_ttl if seen else -1,
    }


def _keys(seen: SpaceFound | None) -> str:
    if seen is None:
        return "—"
    if seen.state.estimated_keys is not None:
        return f"≈ {seen.state.estimated_keys.value:,.0f}"
    return f"{seen.state.keys:,}"


def _size(size: Interval | None) -> str:
    if size is None:
        return "—"
    return format_size(size.value) if size.exact else f"≈ {format_size(size.value)}"


def _endless(space: Keyspace[Any], seen: SpaceFound | None) -> tuple[str, str]:
    """Sampled keys without an end: well where they are declared permanent."""
    if seen is None or not seen.state.sampled:
        return "", "plain"
    count, of = seen.without_ttl, seen.state.sampled
    if space.lifetime.milliseconds is None and count:
        return "as declared", "plain"
    if not count:
        return "none", "plain"
    return (f"{count} of {of}" if of < seen.state.keys else f"{count}"), "bad"


def _unknown(place: Place, found: Found) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{place.name}/{server}/{number}",
            "place": place.name,
            "shape": shape.pattern or shape.reason or "",
            "keys": f"{shape.keys:,}",
            "keys_sort": shape.keys,
            "types": ", ".join(shape.types),
            "examples": ", ".join(shape.examples) or "not shown: they may be secrets",
        }
        for server, unknown in found.unknown
        for number, shape in enumerate(unknown.shapes[:100])
    ]


PAGE = Page("/keyspaces", "Keyspaces", "key", build)
