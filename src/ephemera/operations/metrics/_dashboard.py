"""A Grafana dashboard for a catalogue: rows for what it declares and no others, as JSON for import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ephemera.keyspace import Catalogue
from ephemera.operations._optional_types import is_instance
from ephemera.operations.metrics._dashboard_panels import HTTP_PANELS, PANELS, Panel
from ephemera.operations.metrics._families import CONNECTION_UP, Section
from ephemera.patterns.cache import Cache
from ephemera.patterns.events import Events
from ephemera.patterns.locks import LockDeclaration
from ephemera.patterns.rate_limits import RateLimits
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords

_SCHEMA = 39  # of Grafana 10 and later
_COLUMNS = 24
_WIDTH, _HEIGHT = 8, 8
_ROW = 1
_TITLES: dict[Section, str] = {
    "requests": "Requests and SQL",
    "keyspaces": "Keyspaces",
    "connections": "Connections",
    "local-cache": "Local cache",
    "limits": "Limits",
    "locks": "Locks",
    "events": "Events",
    "jobs": "Jobs",
    "write-behind": "Write-behind",
    "planner": "Planner",
    "servers": "Servers",
    "samples": "Samples",
}


def dashboard_sections(catalogue: Catalogue) -> set[Section]:
    """The sections of the dashboard that a catalogue's service fills."""
    sections: set[Section] = {"connections", "servers", "samples", "keyspaces"}
    for pattern in catalogue.patterns:
        match pattern:
            case Cache(local=local):
                sections |= {"local-cache"} if local is not None else set()
            case RateLimits():
                sections.add("limits")
            case LockDeclaration():
                sections.add("locks")
            case Events():
                sections.add("events")
            case DeferredCounters() | DeferredRecords():
                sections.add("write-behind")
        if is_instance(pattern, "ephemera.patterns.jobs", "Jobs"):
            sections.add("jobs")
        elif is_instance(pattern, "ephemera.patterns.planner", "Planner"):
            sections.add("planner")
    return sections


def dashboard(catalogue: Catalogue, *, http: bool = False) -> dict[str, Any]:
    """The dashboard's model, as Grafana imports it; `http` adds requests and SQL connections of a service."""
    return {
        "uid": f"ephemera-{catalogue.name}"[:40],
        "title": f"Ephemera: {catalogue.name}",
        "tags": ["ephemera"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_variables(catalogue))},
        "panels": list(_panels(dashboard_sections(catalogue) | ({"requests"} if http else set()))),
    }


def dashboard_json(catalogue: Catalogue, *, http: bool = False) -> str:
    """The dashboard as JSON text."""
    return msgspec.json.format(msgspec.json.encode(dashboard(catalogue, http=http))).decode()


def _variables(catalogue: Catalogue) -> Iterator[dict[str, Any]]:
    all_values = {"includeAll": True, "multi": True, "allValue": ".*"}
    selected = {"current": {"selected": True, "text": "All", "value": "$__all"}}
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    yield {
        "name": "job",
        "label": "Scrape job",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({CONNECTION_UP.name}, job)", "refId": "job"},
        "refresh": 2,
        **all_values,
        **selected,
    }
    patterns = [str(keyspace.pattern) for keyspace in catalogue]
    yield {
        "name": "keyspace",
        "label": "Keyspace",
        "type": "custom",
        "query": ",".join(pattern.replace(",", "\\,") for pattern in patterns),
        "options": [{"text": pattern, "value": pattern, "selected": False} for pattern in patterns],
        **all_values,
        **selected,
    }


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _panels(sections: set[Section]) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for section, title in _TITLES.items():
        panels = [
            panel for panel in (*HTTP_PANELS, *PANELS) if panel.section == section and section in sections
        ]
        if not panels:
            continue
        number += 1
        position = {"x": 0, "y": y, "w": _COLUMNS, "h": _ROW}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": position,
            "panels": [],
        }
        y += _ROW
        for index, panel in enumerate(panels):
            number += 1
            x = index * _WIDTH % _COLUMNS
            yield _plot(number, panel, {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT})
            if x + 2 * _WIDTH > _COLUMNS or index == len(panels) - 1:
                y += _HEIGHT


def _plot(number: int, panel: Panel, position: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": position,
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
