"""Metrics of a store for Prometheus, a Grafana dashboard for a catalogue, and OpenTelemetry spans.

    metrics = StoreMetrics(store)                    # in the service's startup; ends with the store
    app.mount("/metrics", MetricsEndpoint(lambda scope: metrics))        # of ephemera.web

Everything bound to the store is included: keyspaces, connections, caches, limits, locks, events, jobs,
write-behind, the planner. `METRICS` declares every metric; docs/operations/metrics.md describes them.

*Cost.* Counting is plain additions. A scrape reads them and makes no round trip, whatever the number of keys.
What only a server or a database knows is sampled every `every` seconds by one background task, in a handful
of commands, none of which is a scan, and shown with its age.

*When Redis is down.* Scrapes still answer; `ephemera_connection_up` is 0, and the age of the samples that
could not be taken grows.

*Keys.* None.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from ephemera.errors import InvalidValue
from ephemera.keyspace import Store
from ephemera.operations.metrics._client_counts import client_samples
from ephemera.operations.metrics._dashboard import dashboard, dashboard_json, dashboard_sections
from ephemera.operations.metrics._families import (
    CALL_DURATION,
    HTTP_REQUESTS,
    KEYSPACE_DURATION,
    KEYSPACE_HITS,
    KEYSPACE_MISSES,
    METRICS,
    SQL_CONNECTIONS,
    Metric,
    Sample,
    Section,
)
from ephemera.operations.metrics._sampler import Sampler
from ephemera.operations.metrics._spans import trace

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = [
    "CALL_DURATION",
    "HTTP_REQUESTS",
    "KEYSPACE_DURATION",
    "KEYSPACE_HITS",
    "KEYSPACE_MISSES",
    "METRICS",
    "SQL_CONNECTIONS",
    "Metric",
    "Sample",
    "Section",
    "StoreMetrics",
    "dashboard",
    "dashboard_json",
    "dashboard_sections",
    "trace",
]

_EVERY = timedelta(seconds=15)


class StoreMetrics:
    """The metrics of one store, from now until it is closed.

    `registry` is the registry they are added to, such as prometheus_client's `REGISTRY`; by default a new
    one, to which a service may add its own metrics. `every` is how often servers and databases are sampled.
    """

    def __init__(
        self, store: Store, *, every: timedelta = _EVERY, registry: CollectorRegistry | None = None
    ) -> None:
        # Imported here, so that only users of metrics need the extra.
        from ephemera.operations.metrics import _exposition as exposition

        if every <= timedelta(0):
            raise InvalidValue("every", "a positive duration", repr(every))
        self.registry = exposition.CollectorRegistry() if registry is None else registry
        self._store = store
        self._render = exposition.render
        self._collector = exposition.register(self.registry, self.samples)
        self._sampler = Sampler(store, every.total_seconds())
        store.before_close(self._aclose)

    def samples(self) -> Iterator[Sample]:
        """Every current value, without a round trip."""
        yield from client_samples(self._store)
        yield from self._sampler.samples()

    async def sample(self) -> None:
        """Sample servers and databases now, instead of at the next interval."""
        await self._sampler.sample()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The response to a scrape in a format it accepts, and the content type; callable from any thread."""
        return self._render(self.registry, accept)

    async def _aclose(self) -> None:
        self.registry.unregister(self._collector)
        await self._sampler.aclose()
