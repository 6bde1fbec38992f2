"""Evaluates the queries of the dashboard on two scrapes, as Prometheus would on many.

It knows the forms that the panels use: `sum` and `max` by labels of a gauge or of the growth of a counter, a
ratio of such sums, and percentiles of histograms. The growth is that between the scrapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Scrape = dict[tuple[str, ...], float]
"""The samples: by name, then `label=value` in order."""
Series = dict[tuple[str, ...], float]
"""The values of a query, by those of its labels."""

_TOTAL = re.compile(r"(sum|max) by \(([^)]*)\) \((rate\()?([a-z_]+)\{([^}]*)\}(\[\$__rate_interval\]\))?\)")
_QUANTILE = re.compile(r"histogram_quantile\(([\d.]+), (.*)\)")
_STATUS = 'status=~"5.."'


def evaluate(expression: str, before: Scrape, after: Scrape) -> Series:
    """The values of a query."""
    if quantile := _QUANTILE.fullmatch(expression):
        return _quantiles(float(quantile[1]), _total(quantile[2], before, after))
    if " / " in expression:
        part, whole = expression.split(" / ")
        parts, wholes = (
            _total(part, before, after),
            [_total(each, before, after) for each in whole[1:-1].split(" + ")],
        )
        return {
            labels: value / sum(each[labels] for each in wholes)
            for labels, value in parts.items()
            if sum(each[labels] for each in wholes)
        }
    return _total(expression, before, after)


def _total(expression: str, before: Scrape, after: Scrape) -> Series:
    found = _TOTAL.fullmatch(expression)
    assert found is not None, f"unknown form: {expression}"
    operator, by, is_rate, metric, selectors = found.group(1, 2, 3, 4, 5)
    assert selectors.startswith('job=~"$job"')
    combine: Callable[[list[float]], float] = sum if operator == "sum" else max
    grouped: dict[tuple[str, ...], list[float]] = {}
    for (name, *pairs), value in after.items():
        labels = dict(pair.split("=", 1) for pair in pairs)
        if name != metric or (_STATUS in selectors and not labels["status"].startswith("5")):
            continue
        grown = value - before.get((name, *pairs), 0.0) if is_rate else value
        grouped.setdefault(tuple(labels[each] for each in filter(None, by.split(", "))), []).append(grown)
    return {labels: combine(values) for labels, values in grouped.items()}


def _quantiles(share: float, buckets: Series) -> Series:
    """The upper bounds of the buckets that the percentiles are in; without interpolation."""
    series: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for (bound, *rest), count in buckets.items():
        series.setdefault(tuple(rest), []).append((float(bound), count))
    found: Series = {}
    for labels, counts in series.items():
        total = max(count for _, count in counts)
        if total:
            found[labels] = min(bound for bound, count in counts if count >= share * total)
    return found
