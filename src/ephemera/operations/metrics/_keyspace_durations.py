"""Latencies by keyspace, from a sample of the writes of each connection.

The sample is taken at the interval of the sampler, by the task of the event loop that also fills it; a scrape
returns what was added up until then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ephemera.keyspace import Store
from ephemera.operations.metrics import _families as f
from ephemera.operations.metrics._client_counts import nodes
from ephemera.operations.metrics._families import Buckets, Sample
from ephemera.wire import LATENCY_BOUNDS, LatencySample


class KeyspaceDurations:
    """How long round trips for each keyspace took; counted from its first `take`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[str, list[float]] = {}
        self._seconds: dict[str, float] = {}

    def take(self) -> None:
        """Add what the connections have measured since the last time, and start with new ones."""
        for node in nodes(self._store):
            latencies = node.link.latencies
            if latencies.sample is None:
                latencies.sample = LatencySample()
            for key, seconds, weight in latencies.sample.take():
                pattern = self._pattern_of(key)
                if pattern is not None:
                    counts = self._counts.setdefault(pattern, [0.0] * (len(LATENCY_BOUNDS) + 1))
                    counts[bisect_left(LATENCY_BOUNDS, seconds)] += weight
                    self._seconds[pattern] = self._seconds.get(pattern, 0.0) + seconds * weight

    def samples(self) -> Iterator[Sample]:
        """A histogram for each keyspace that was used."""
        for pattern, counts in list(self._counts.items()):
            buckets = Buckets(LATENCY_BOUNDS, tuple(counts), self._seconds.get(pattern, 0.0))
            yield Sample(f.KEYSPACE_DURATION, (pattern,), buckets)

    def _pattern_of(self, key: bytes) -> str | None:
        found = (catalogue.classify(key) for catalogue in self._store.catalogues)
        return next((keyspace.pattern for keyspace in found if keyspace is not None), None)
