"""The reference of all metrics, as the tables of docs/operations/metrics.md.

`python -m ephemera.operations.metrics.reference docs/operations/metrics.md` writes them anew.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

from ephemera.operations.metrics.families import METRICS, Metric, Part

BEGIN = "<!-- begin: generated from operations/metrics/families.py -->"
END = "<!-- end -->"


def as_markdown() -> str:
    """A table for each part: name, type, labels, meaning."""
    return "\n\n".join(_table(part) for part in get_args(Part)) + "\n"


def written_into(page: str) -> str:
    """A page with the tables of now between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{as_markdown()}\n{END}{rest.partition(END)[2]}"


def _table(part: str) -> str:
    rows = [_row(metric) for metric in METRICS if metric.part == part]
    title = part[0].upper() + part[1:]
    return "\n".join([f"### {title}", "", "| name | type | labels | meaning |", "|---|---|---|---|", *rows])


def _row(metric: Metric) -> str:
    means = f"{metric.help} *Shared.*" if metric.shared else metric.help
    return f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {means} |"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(written_into(page.read_text(encoding="utf-8")), encoding="utf-8")
