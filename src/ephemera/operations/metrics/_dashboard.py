"""A Grafana dashboard for a catalogue: rows for what it declares and no others, as JSON to be imported.

It is made of the plots in `dashboard_panels`, which name only metrics that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ephemera.keyspace import Catalogue
from ephemera.operations.metrics._client_counts import is_of
from ephemera.operations.metrics._dashboard_panels import PANELS, Panel
from ephemera.operations.metrics._families import CONNECTION_UP, Part
from ephemera.patterns.cache import Cache
from ephemera.patterns.events import Events
from ephemera.patterns.locks import Locks
from ephemera.patterns.rate_limits import RateLimits
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords

_SCHEMA = 39  # of Grafana 10 and later
_COLUMNS = 24
_WIDTH, _HEIGHT = 8, 8
_ROW = 1
_TITLES: dict[Part, str] = {
    "keyspaces": "Keyspaces",
    "connections": "Connections",
    "copies": "Local copies",
    "limits": "Limits",
    "locks": "Locks",
    "events": "Events",
    "jobs": "Jobs",
    "write-behind": "Write-behind",
    "planner": "Planner",
    "servers": "Servers",
    "samples": "Samples",
}


def parts_of(catalogue: Catalogue) -> set[Part]:
    """What of a dashboard a catalogue's service has."""
    parts: set[Part] = {"connections", "servers", "samples", "keyspaces"}
    for pattern in catalogue.patterns:
        match pattern:
            case Cache(local=local):
                parts |= {"copies"} if local is not None else set()
            case RateLimits():
                parts.add("limits")
            case Locks():
                parts.add("locks")
            case Events():
                parts.add("events")
            case DeferredCounters() | DeferredRecords():
                parts.add("write-behind")
        if is_of(pattern, "ephemera.patterns.jobs", "Jobs"):
            parts.add("jobs")
        elif is_of(pattern, "ephemera.patterns.planner._declaration", "Planner"):
            parts.add("planner")
    return parts


def dashboard(catalogue: Catalogue) -> dict[str, Any]:
    """The dashboard's model, as Grafana imports it."""
    return {
        "uid": f"ephemera-{catalogue.name}"[:40],
        "title": f"Ephemera: {catalogue.name}",
        "tags": ["ephemera"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_variables(catalogue))},
        "panels": list(_panels(parts_of(catalogue))),
    }


def as_json(catalogue: Catalogue) -> str:
    """The same as a file's text."""
    return msgspec.json.format(msgspec.json.encode(dashboard(catalogue))).decode()


def _variables(catalogue: Catalogue) -> Iterator[dict[str, Any]]:
    everything = {"includeAll": True, "multi": True, "allValue": ".*"}
    chosen = {"current": {"selected": True, "text": "All", "value": "$__all"}}
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    yield {
        "name": "job",
        "label": "Scrape job",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({CONNECTION_UP.name}, job)", "refId": "job"},
        "refresh": 2,
        **everything,
        **chosen,
    }
    patterns = [space.pattern for space in catalogue]
    yield {
        "name": "space",
        "label": "Keyspace",
        "type": "custom",
        "query": ",".join(pattern.replace(",", "\\,") for pattern in patterns),
        "options": [{"text": pattern, "value": pattern, "selected": False} for pattern in patterns],
        **everything,
        **chosen,
    }


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _panels(parts: set[Part]) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for part, title in _TITLES.items():
        panels = [panel for panel in PANELS if panel.part == part and part in parts]
        if not panels:
            continue
        number += 1
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": _ROW}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        y += _ROW
        for index, panel in enumerate(panels):
            number += 1
            x = index * _WIDTH % _COLUMNS
            yield _plot(number, panel, {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT})
            if x + 2 * _WIDTH > _COLUMNS or index == len(panels) - 1:
                y += _HEIGHT


def _plot(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
