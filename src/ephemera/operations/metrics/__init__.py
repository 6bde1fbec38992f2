"""Metrics: what a service's store does, for Prometheus.

    metrics = StoreMetrics(store)                    # in the service's startup; ends with the store
    app.mount("/metrics", MetricsEndpoint(lambda scope: metrics))        # ephemera.web._metrics

It finds by itself what is bound to the store: spaces, connections, caches, limits, locks, events, jobs,
write-behind, the planner. `families` declares every metric, docs/operations/metrics.md describes them.

Cost: counting is plain additions where things happen. A scrape reads those and makes no trip, whatever the
number of keys. What only a server or a database knows is asked every `every` seconds by one background task,
in a handful of commands none of which is a scan, and shown with its age. Down or hung: scrapes answer as
ever; `ephemera_connection_up` is 0, and the age of what could not be sampled grows. Keys: it has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from ephemera.errors import InvalidValue
from ephemera.keyspace import Store
from ephemera.operations.metrics._client_counts import counted
from ephemera.operations.metrics._families import METRICS, Metric, Sample
from ephemera.operations.metrics._scrape import Sampler

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["METRICS", "Metric", "Sample", "StoreMetrics"]

_EVERY = timedelta(seconds=15)


class StoreMetrics:
    """The metrics of one store, from now until it is closed.

    They are added to `registry`, such as prometheus_client's own `REGISTRY`, or else to one that is made for
    them, to which a service may add its own metrics. `every` is how often servers and databases are asked.
    """

    def __init__(
        self, store: Store, *, every: timedelta = _EVERY, registry: CollectorRegistry | None = None
    ) -> None:
        # Here, so that only who has metrics needs the extra.
        from ephemera.operations.metrics import _exposition as exposition

        if every <= timedelta(0):
            raise InvalidValue("every", "a positive duration", repr(every))
        self.registry = exposition.CollectorRegistry() if registry is None else registry
        self._store = store
        self._exposed = exposition.exposed
        self._collector = exposition.registered(self.registry, self.samples)
        self._sampler = Sampler(store, every.total_seconds())
        store.before_close(self._aclose)

    def samples(self) -> Iterator[Sample]:
        """Every value of this moment, without a trip."""
        yield from counted(self._store)
        yield from self._sampler.samples()

    async def sample(self) -> None:
        """Ask servers and databases now, and not at the next turn."""
        await self._sampler.sample()

    def exposed(self, accept: str = "") -> tuple[bytes, str]:
        """What a scrape gets, in the form it accepts, and the content type; on any thread."""
        return self._exposed(self.registry, accept)

    async def _aclose(self) -> None:
        self.registry.unregister(self._collector)
        await self._sampler.aclose()
