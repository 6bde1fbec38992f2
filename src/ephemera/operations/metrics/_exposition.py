"""The metrics in Prometheus' format; the only module that needs prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ephemera.errors import InvalidDeclaration, MissingExtra
from ephemera.operations.metrics._families import METRICS, Buckets, Metric, Sample

try:
    from prometheus_client import CollectorRegistry as CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import choose_encoder
except ModuleNotFoundError as _missing:
    raise MissingExtra("metrics need prometheus-client", "metrics", "prometheus_client") from _missing


Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Exposition:
    """A collector for a registry: returns metric families at each scrape."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def describe(self) -> list[Family]:
        """The families without samples, by whose names a registry detects duplicates."""
        return [_family(metric, {}) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """The families that have samples, in the order of the reference page."""
        found = _merged(self._samples())
        for metric in METRICS:
            if metric in found:
                yield _family(metric, found[metric])


def register(registry: CollectorRegistry, samples: Callable[[], Iterable[Sample]]) -> Exposition:
    """Add a collector to a registry that has no other store's metrics."""
    collector = Exposition(samples)
    try:
        registry.register(collector)
    except ValueError:
        raise InvalidDeclaration(
            "StoreMetrics",
            "this registry already has the metrics of another store",
            "give each store its own registry",
        ) from None
    return collector


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """A registry in a format that the scraper accepts, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _merged(samples: Iterable[Sample]) -> dict[Metric, dict[tuple[str, ...], float | Buckets]]:
    """Merge samples with the same labels: counts are added, of shared metrics the maximum is taken."""
    found: dict[Metric, dict[tuple[str, ...], float | Buckets]] = {}
    for metric, labels, value in samples:
        series = found.setdefault(metric, {})
        before = series.get(labels)
        if isinstance(value, float | int) and isinstance(before, float | int):
            value = max(value, before) if metric.shared else value + before
        series[labels] = value
    return found


def _family(metric: Metric, series: dict[tuple[str, ...], float | Buckets]) -> Family:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in series.items():
            if isinstance(value, Buckets):
                histogram.add_metric(labels, _cumulative(value), sum_value=value.sum)
        return histogram
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=metric.labels)
    for labels, value in series.items():
        if not isinstance(value, Buckets):
            family.add_metric(labels, value)
    return family


def _cumulative(buckets: Buckets) -> list[tuple[str, float]]:
    """Each upper bound with the count of values up to it."""
    counts, below = [], 0.0
    for bound, count in zip((*map(repr, buckets.bounds), "+Inf"), buckets.counts, strict=True):
        below += count
        counts.append((bound, below))
    return counts
