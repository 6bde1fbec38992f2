"""The metrics as Prometheus takes them; the one module that needs prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ephemera.errors import InvalidDeclaration
from ephemera.operations.metrics._families import METRICS, Buckets, Metric, Sample

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import choose_encoder
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        "metrics need prometheus-client: pip install '/path/to/ephemera[metrics]'", name="prometheus_client"
    ) from _missing


Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

__all__ = ["CollectorRegistry", "Exposition", "exposed", "registered"]


class Exposition:
    """A collector of a registry: gives families of samples whenever it is scraped."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def describe(self) -> list[Family]:
        """The families without samples, by whose names a registry tells that it has them already."""
        return [_family(metric, {}) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """The families that have samples, in the order of the reference."""
        found = _merged(self._samples())
        for metric in METRICS:
            if metric in found:
                yield _family(metric, found[metric])


def registered(registry: CollectorRegistry, samples: Callable[[], Iterable[Sample]]) -> Exposition:
    """A collector of a registry that has no other store's."""
    collector = Exposition(samples)
    try:
        registry.register(collector)
    except ValueError:
        raise InvalidDeclaration(
            "StoreMetrics",
            "this registry has the metrics of another store",
            "give each a registry of its own",
        ) from None
    return collector


def exposed(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All of a registry in the form that a scraper accepts, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _merged(samples: Iterable[Sample]) -> dict[Metric, dict[tuple[str, ...], float | Buckets]]:
    """One value for each series, where several of a store's objects have the same labels.

    What each counted for itself is added; what they were both told by the same server is one thing.
    """
    found: dict[Metric, dict[tuple[str, ...], float | Buckets]] = {}
    for metric, labels, value in samples:
        series = found.setdefault(metric, {})
        before = series.get(labels)
        if isinstance(value, float | int) and isinstance(before, float | int):
            value = max(value, before) if metric.shared else value + before
        series[labels] = value
    return found


def _family(metric: Metric, series: dict[tuple[str, ...], float | Buckets]) -> Family:
    about = (metric.name, metric.help)
    family: Family
    match metric.kind:
        case "counter":
            family = CounterMetricFamily(*about, labels=metric.labels)
        case "gauge":
            family = GaugeMetricFamily(*about, labels=metric.labels)
        case "histogram":
            family = HistogramMetricFamily(*about, labels=metric.labels)
    for labels, value in series.items():
        if isinstance(value, Buckets):
            assert isinstance(family, HistogramMetricFamily)  # noqa: S101 - as it was declared
            family.add_metric(labels, _cumulative(value), sum_value=value.sum)
        else:
            assert not isinstance(family, HistogramMetricFamily)  # noqa: S101
            family.add_metric(labels, value)
    return family


def _cumulative(buckets: Buckets) -> list[tuple[str, float]]:
    """Each end with how many are below it, as Prometheus counts."""
    counts, below = [], 0.0
    for end, count in zip((*map(repr, buckets.ends), "+Inf"), buckets.counts, strict=True):
        below += count
        counts.append((end, below))
    return counts
