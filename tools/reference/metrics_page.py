"""The reference of all metrics: those of every store, and those that a built-in service has besides."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from ephemera.operations.metrics._reference import as_markdown
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
    return f"{_INTRODUCTION}\n{as_markdown()}\n{own}"


def service_metrics(name: str) -> list[tuple[str, str, str, str]]:
    """Name, type, labels and meaning of what a built-in service measures besides its store."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    importlib.import_module(f"ephemera_services.{name}.metrics").Metrics(registry)
    return sorted(_declared(registry))


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
