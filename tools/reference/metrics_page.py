"""The reference of all metrics: those of every store, and those that a built-in service has besides."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from typing import get_args

from prometheus_client import CollectorRegistry

from ephemera.operations.metrics import HTTP_REQUESTS, METRICS, SQL_CONNECTIONS, Metric, Section
from ephemera_services import SERVICES

_INTRODUCTION = """\
# Reference of metrics

<!-- Made by `make docs`; do not edit. -->

What `StoreMetrics` shows of any service. *Shared* figures are read from a server or a database, and are the
same in every process: take the largest of them, not the sum. [Metrics](../operations/metrics.md) says how to
have them, what a scrape costs, and what to alert on.
"""


def reference() -> str:
    """The whole page."""
    own = "\n".join(_section(name) for name in SERVICES if _has_metrics(name))
    return f"{_INTRODUCTION}\n{_store_metrics()}\n{own}"


def service_metrics(name: str) -> list[tuple[str, str, str, str]]:
    """Name, type, labels and meaning of what a built-in service measures besides its store."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    importlib.import_module(f"ephemera_services.{name}.metrics").Metrics(registry)
    return sorted(_declared(registry))


def _store_metrics() -> str:
    """A table per section: name, type, labels, meaning."""
    return "\n\n".join(_table(section) for section in get_args(Section)) + "\n"


def _table(section: str) -> str:
    rows = [
        _row(metric) for metric in (*METRICS, HTTP_REQUESTS, SQL_CONNECTIONS) if metric.section == section
    ]
    title = section[0].upper() + section[1:]
    return "\n".join([f"### {title}", "", "| name | type | labels | meaning |", "|---|---|---|---|", *rows])


def _row(metric: Metric) -> str:
    meaning = f"{metric.help} *Shared.*" if metric.shared else metric.help
    return f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {meaning} |"


def _has_metrics(name: str) -> bool:
    return importlib.util.find_spec(f"ephemera_services.{name}.metrics") is not None


def _section(name: str) -> str:
    metrics = service_metrics(name)
    rows = [f"| `{named}` | {kind} | {labels} | {means} |" for named, kind, labels, means in metrics]
    head = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    return "\n".join([f"### The service {name}", "", *head, *rows, ""])


def _declared(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    """Each metric once; prometheus_client leaves the `_total` of counters out of a family's name."""
    for collector in set(registry._collector_to_names):
        family = collector.describe()[0]  # type: ignore[attr-defined]
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(collector._labelnames)  # type: ignore[attr-defined]
        yield name, family.type, labels, f"{family.documentation}."
