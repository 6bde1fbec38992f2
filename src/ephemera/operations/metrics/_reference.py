"""The reference of all metrics, as the tables of docs/reference/metrics.md."""

from __future__ import annotations

from typing import get_args

from ephemera.operations.metrics._families import METRICS, Metric, Part


def as_markdown() -> str:
    """A table for each part: name, type, labels, meaning."""
    return "\n\n".join(_table(part) for part in get_args(Part)) + "\n"


def _table(part: str) -> str:
    rows = [_row(metric) for metric in METRICS if metric.part == part]
    title = part[0].upper() + part[1:]
    return "\n".join([f"### {title}", "", "| name | type | labels | meaning |", "|---|---|---|---|", *rows])


def _row(metric: Metric) -> str:
    means = f"{metric.help} *Shared.*" if metric.shared else metric.help
    return f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {means} |"
